"""A log as a list of batches: what any history of changes must lead to, however the files are laid out.

Owns what a crash may undo, and the comparison of a real log with that. Must not know segments, indexes, snapshots or
checkpoints. All of it is written in the plainest way: it is the other half of `test_histories.py`.

A `Branch` is one line of the log's history; a truncation begins a new one. A kill loses nothing. After a power cut the
log holds the beginning of a branch: at least the part that was synced (`floor`). A branch that an interrupted
truncation has left may return as long as nothing behind that point was synced since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from protocol.records.batch import BatchHeader, batches, records
from protocol.records.control import ControlType
from storage.log.log import Log
from storage.segments.transaction_index import AbortedTransaction

NO_SEQUENCE = -1
SIZE_MAX = 1 << 20


class Entry(NamedTuple):
    """A record."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Batch:
    """A batch of data, or the marker of a transaction, which has no entries here."""

    base_offset: int
    last_offset: int
    epoch: int
    entries: tuple[Entry, ...] = ()
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    marker: ControlType | None = None


@dataclass(frozen=True)
class Branch:
    """Batches in order. `end` is behind the last one if a truncation has ended behind a gap."""

    batches: tuple[Batch, ...] = ()
    end: int = 0

    def end_of_batches(self, offset: int) -> int:
        """Return where the last batch below `offset` ends, 0 without one."""
        return max((it.last_offset + 1 for it in self.batches if it.last_offset < offset), default=0)

    def with_batch(self, batch: Batch) -> Branch:
        return Branch((*self.batches, batch), batch.last_offset + 1)

    def up_to(self, offset: int) -> Branch:
        """Return what is before the batch that holds `offset`."""
        cut = next((it for it in self.batches if it.last_offset >= offset), None)
        end = offset if cut is None else min(offset, cut.base_offset)
        return Branch(tuple(it for it in self.batches if it.last_offset < offset), min(end, self.end))


class Left(NamedTuple):
    """A branch that an interrupted truncation has left. It and the present one are equal below `split`."""

    branch: Branch
    split: int


@dataclass
class Model:
    """The present branch, and what a crash may make of it."""

    branch: Branch = field(default_factory=Branch)
    high_watermark: int = 0
    log_start: int = 0
    durable_start: int = 0
    """The log start in the checkpoint: nothing below it returns."""
    floor: int = 0
    """Everything below is synced."""
    left: tuple[Left, ...] = ()

    def copy(self) -> Model:
        return replace(self)

    def append(self, batch: Batch) -> None:
        self.branch = self.branch.with_batch(batch)

    def truncate(self, offset: int) -> None:
        self.branch = self.branch.up_to(offset)
        end = self.branch.end
        self.left = tuple(it._replace(split=min(it.split, end)) for it in self.left)
        self.floor, self.high_watermark = min(self.floor, end), min(self.high_watermark, end)
        self.log_start, self.durable_start = min(self.log_start, end), min(self.durable_start, end)

    def start_anew(self, offset: int) -> None:
        self.branch = Branch((), offset)
        self.high_watermark = self.log_start = self.durable_start = self.floor = offset
        self.left = ()

    def synced(self, offset: int) -> None:
        """Note that all batches below `offset` are synced."""
        self.floor = max(self.floor, offset)
        self.left = tuple(it for it in self.left if it.split >= self.floor)

    def flushed(self) -> None:
        self.synced(self.branch.end)
        self.left = ()


# What a log has to be


class Outcome(NamedTuple):
    """What the consumers and producers of a log see of it."""

    newest: Mapping[bytes, bytes | None]
    """The newest committed value of each key below the last stable offset."""
    open_transactions: Mapping[int, int]
    """Producer id -> first offset."""
    producers: Mapping[int, tuple[int, int]]
    """Producer id -> epoch and last sequence."""
    last_data_offsets: Mapping[int, int]
    """Producer id -> last offset of its data."""


def outcome_of(branch: Branch, start: int, end: int, forgotten: Collection[int] = frozenset()) -> Outcome:
    """Return what a log that starts at `start` shows of the batches below `end`.

    Transactions and producers are followed from the very first batch, except that those of `forgotten` producers begin
    at `start`.
    """
    committed: list[Entry] = []
    pending: dict[int, list[Entry]] = {}
    opened: dict[int, int] = {}
    producers: dict[int, tuple[int, int]] = {}
    last_data: dict[int, int] = {}
    for batch in branch.batches:
        if batch.last_offset >= end:
            break
        producer_id = batch.producer_id
        if batch.marker is not None:
            epoch, sequence = producers.get(producer_id, (batch.producer_epoch, NO_SEQUENCE))
            producers[producer_id] = batch.producer_epoch, sequence if epoch == batch.producer_epoch else NO_SEQUENCE
            decided = pending.pop(producer_id, [])
            opened.pop(producer_id, None)
            committed += decided if batch.marker is ControlType.COMMIT else []
            continue
        if producer_id >= 0:
            producers[producer_id] = batch.producer_epoch, batch.last_sequence
            last_data[producer_id] = batch.last_offset
        if batch.is_transactional:
            if producer_id not in forgotten or batch.last_offset >= start:
                opened.setdefault(producer_id, batch.base_offset)
            pending.setdefault(producer_id, []).extend(batch.entries)
        else:
            committed += batch.entries
    stable = min(opened.values(), default=end)
    newest = {it.key: it.value for it in sorted(committed) if start <= it.offset < stable}
    return Outcome(newest, opened, producers, last_data)


# What a log is

Stored = Sequence[tuple[BatchHeader, bytes]]


def stored(log: Log) -> Stored:
    """Return the batches of a log from its start, read in small pieces."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while True:
        fetched = log.reader.read(offset, 400, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert fetched is not None
        if not fetched.records:
            return found
        for position, header in batches(fetched.records):
            found.append((header, bytes(fetched.records[position : position + header.size])))
            offset = header.next_offset


def _entries_of(content: bytes) -> Iterator[Entry]:
    for record in records(memoryview(content), 0, size_max=SIZE_MAX):
        yield Entry(record.offset, record.timestamp, record.key or b"", record.value)


def _committed(log: Log, found: Stored) -> Mapping[bytes, bytes | None]:
    """Return the newest value of each key, as a read_committed consumer finds it. The high watermark is the end."""
    start, bound = log.log_start_offset, log.last_stable_offset
    aborted: set[AbortedTransaction] = set()
    offset: int | None = start
    while offset is not None and offset < bound:
        fetched = log.reader.read(offset, 400, upper_bound_offset=bound, min_one_batch=True, with_aborted=True)
        assert fetched is not None
        aborted.update(fetched.aborted_transactions or ())
        offset = fetched.end_offset if fetched.records else None
    entries: list[Entry] = []
    for header, content in found:
        is_aborted = header.is_transactional and any(
            it.producer_id == header.producer_id and it.first_offset <= header.base_offset < it.last_offset
            for it in aborted
        )
        if not header.is_control and not is_aborted:
            entries += [it for it in _entries_of(content) if start <= it.offset < bound]
    return {it.key: it.value for it in sorted(entries)}


def difference(log: Log, branch: Branch, *, is_compacted: bool, has_newest: bool, highest_start: int) -> str | None:
    """Return in what a log differs from the beginning of `branch`, None if in nothing. Raises its high watermark.

    `highest_start` is the highest log start ever: producers may be forgotten whose data is below it, also if it has
    fallen since. `has_newest` says whether it must have the newest value of each key, as a cleaned log has until it is
    removed.
    """
    start, end = log.log_start_offset, log.log_end_offset
    log.advance_high_watermark(end)
    found = stored(log)
    expected = outcome_of(branch, start, end)
    present = log.producer_state.producers
    # A start may not know what they have sent before the log start: it was removed.
    forgotten = {
        producer_id
        for producer_id, offset in expected.open_transactions.items()
        if offset < start
        and (producer_id not in present or not 0 <= present[producer_id].current_transaction_first_offset < start)
    }
    expected = outcome_of(branch, start, end, forgotten)
    by_offset = {entry.offset: (batch, entry) for batch in branch.batches for entry in batch.entries}
    markers = {batch.base_offset: batch for batch in branch.batches if batch.marker is not None}
    offsets: list[int] = []
    for header, content in found:
        if header.is_control:
            batch = markers.get(header.base_offset)
            if batch is None or (batch.producer_id, batch.epoch) != (header.producer_id, header.partition_leader_epoch):
                return f"an unknown marker at {header.base_offset}"
        for entry in () if header.is_control else _entries_of(content):
            known, original = by_offset.get(entry.offset, (None, None))
            if entry != original or known is None or known.epoch != header.partition_leader_epoch:
                return f"{entry} of epoch {header.partition_leader_epoch} instead of {original} of {known}"
            offsets.append(entry.offset)
        if log.leader_epochs.epoch_at(max(header.base_offset, start)) != header.partition_leader_epoch:
            return f"the epochs {log.leader_epochs.entries} say nothing of the batch at {header.base_offset}"
    if not is_compacted:
        wanted = [it.offset for batch in branch.batches for it in batch.entries if start <= it.offset < end]
        if [it for it in offsets if it >= start] != wanted:
            return f"the offsets {offsets} instead of {wanted}"
    newest = {key: value for key, value in _committed(log, found).items() if value is not None}
    wanted_values = {key: value for key, value in expected.newest.items() if value is not None}
    if newest != wanted_values and (has_newest or not is_compacted):
        return f"the committed values {newest} instead of {wanted_values}"
    if has_newest:
        problem = _difference_of_producers(log, expected, max(start, highest_start))
        if problem is not None:
            return problem
    return _difference_in_time(log, found)


def _difference_of_producers(log: Log, expected: Outcome, known_from: int) -> str | None:
    """Compare producers. What is known of those whose last data is below `known_from` may be older, or nothing."""
    present, start = log.producer_state.producers, log.log_start_offset
    for producer_id, entry in present.items():
        wanted = expected.producers.get(producer_id)
        is_known = wanted is None or expected.last_data_offsets[producer_id] >= known_from
        if is_known and (entry.epoch, entry.last_sequence) != wanted:
            return f"producer {producer_id}: epoch {entry.epoch}, sequence {entry.last_sequence} instead of {wanted}"
    missing = [it for it, offset in expected.last_data_offsets.items() if offset >= known_from and it not in present]
    if missing:
        return f"the producers {missing} are forgotten"
    opened = {
        it.producer_id: max(it.current_transaction_first_offset, start)
        for it in present.values()
        if it.current_transaction_first_offset >= 0
    }
    wanted_opened = {producer_id: max(offset, start) for producer_id, offset in expected.open_transactions.items()}
    if opened != wanted_opened:
        return f"the open transactions {opened} instead of {wanted_opened}"
    last_stable_offset = max(min(opened.values(), default=log.log_end_offset), start)
    if log.last_stable_offset != last_stable_offset:
        return f"the last stable offset {log.last_stable_offset} instead of {last_stable_offset}"
    return None


def _difference_in_time(log: Log, found: Stored) -> str | None:
    entries = [it for header, content in found for it in _entries_of(content) if it.offset >= log.log_start_offset]
    for timestamp_ms in {it.timestamp_ms + more for it in entries for more in (0, 1)}:
        at = log.lookups.offset_for_timestamp(timestamp_ms, upper_bound_offset=log.log_end_offset)
        first = next((it for it in entries if it.timestamp_ms >= timestamp_ms), None)
        if (None if at is None else at.offset) != (None if first is None else first.offset):
            return f"the first record from {timestamp_ms} on is {at} instead of {first}"
    return None
