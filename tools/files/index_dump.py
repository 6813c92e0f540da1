"""The lines that kafka-dump-log prints for indexes and snapshots, and the differences between an index and its log.

An index entry must point at the batch that contains its offset; the comparison is the main use of these dumps.

Owns the comparison and its texts. Must not know options, or how files are opened (`segment_files`).
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from protocol.errors import Malformed
from protocol.records.batch import Parts
from protocol.records.entries import entry_records
from storage.batches.stored_batch import StoredBatch
from storage.disk.names import OFFSET_INDEX
from storage.producers import producer_snapshots
from storage.producers.producer_snapshots import CorruptSnapshotError
from storage.producers.producer_state import NONE, ProducerEntry
from storage.segments import transaction_index
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.offset_index import OffsetIndex, OffsetPosition
from storage.segments.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from tools.files.segment_files import (
    DumpError,
    LogFile,
    absolute,
    base_offset_of,
    beside,
    offset_index_entries,
    read_file,
    time_index_entries,
)

_TRANSACTION_INDEX_VERSION: Final = 0

Pair = tuple[int, int]


class IndexCheck(Enum):
    """What to do with an index."""

    PRINT = auto()
    """Print its entries, and compare them with the log."""
    VERIFY = auto()
    """Only compare."""
    SANITY = auto()
    """Only perform the checks of a broker's start."""


@dataclass(slots=True)
class Findings:
    """Differences to report after all files were dumped. Keys are absolute paths."""

    index_mismatches: dict[str, list[Pair]] = field(default_factory=dict)
    timestamp_mismatches: dict[str, list[Pair]] = field(default_factory=dict)
    timestamps_out_of_order: dict[str, list[Pair]] = field(default_factory=dict)
    offsets_not_found: dict[str, list[Pair]] = field(default_factory=dict)
    gaps: dict[str, list[Pair]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield lines in the order of Kafka's tool: mismatches of offset indexes and gaps start with the last."""
        for path, pairs in self.index_mismatches.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {index}, log offset: {log}" for index, log in reversed(pairs))
        for path, pairs in self.timestamp_mismatches.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {index}, log timestamp: {log}" for index, log in pairs)
        for path, pairs in self.timestamps_out_of_order.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (
                f"  Index timestamp: {index}, Previously indexed timestamp: {before}" for index, before in pairs
            )
        for pairs in self.offsets_not_found.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {index}, found log offset: {log}" for index, log in pairs)
        for path, pairs in self.gaps.items():
            if pairs:
                yield f"Non-consecutive offsets in {path}"
                yield from (f"  {first} is followed by {second}" for first, second in reversed(pairs))


def offset_index_lines(path: str, check: IndexCheck, findings: Findings) -> Iterator[str]:
    """Yield the lines of an `.index` file. Raises DumpError."""
    base_offset = base_offset_of(path)
    log = LogFile.of_segment(path)
    entries = offset_index_entries(path)
    if not entries:
        yield f"{path} is empty."
        return
    if check is IndexCheck.SANITY:
        _check_size(path, "Index", OffsetIndex.ENTRY.size)
        if entries[-1].offset < base_offset:
            raise DumpError(
                f"Corrupt index found, index file ({absolute(path)}) has non-zero size but the last offset "
                f"is {entries[-1].offset} which is less than the base offset {base_offset}"
            )
        yield f"{path} passed sanity check."
        return
    for entry in entries:
        batch = next(log.batches(entry.position), None)
        log_offset = -1 if batch is None else batch.extent.last_offset
        if log_offset != entry.offset:
            findings.index_mismatches.setdefault(absolute(path), []).append((entry.offset, log_offset))
        if check is IndexCheck.PRINT:
            yield f"offset: {entry.offset} position: {entry.position}"


def time_index_lines(path: str, check: IndexCheck, findings: Findings) -> Iterator[str]:
    """Yield the lines of a `.timeindex` file. Raises DumpError."""
    base_offset = base_offset_of(path)
    log = LogFile.of_segment(path)
    entries = time_index_entries(path)
    if check is IndexCheck.SANITY:
        _check_size(path, "Time index", TimeIndex.ENTRY.size)
        _check_times(path, entries, base_offset)
        yield f"{path} passed sanity check."
        return
    offset_index = beside(path, OFFSET_INDEX)
    positions = offset_index_entries(offset_index) if os.path.exists(offset_index) else []
    previous_ms = NO_TIMESTAMP
    for timestamp_ms, offset in entries:
        batches = log.batches(_position(positions, offset))
        batch = next((batch for batch in batches if batch.extent.last_offset >= offset), None)
        if batch is None or batch.extent.last_offset != offset:
            found = -1 if batch is None else batch.extent.last_offset
            findings.offsets_not_found.setdefault(absolute(path), []).append((offset, found))
        else:
            log_timestamp_ms = _greatest_timestamp_ms(log.path, batch)
            if log_timestamp_ms != timestamp_ms:
                findings.timestamp_mismatches.setdefault(absolute(path), []).append((timestamp_ms, log_timestamp_ms))
            if previous_ms >= timestamp_ms:
                findings.timestamps_out_of_order.setdefault(absolute(path), []).append((timestamp_ms, previous_ms))
        if check is IndexCheck.PRINT:
            yield f"timestamp: {timestamp_ms} offset: {offset}"
        previous_ms = timestamp_ms


def transaction_index_lines(path: str) -> Iterator[str]:
    """Yield the lines of a `.txnindex` file. Raises DumpError."""
    base_offset_of(path)
    try:
        entries = transaction_index.parse(read_file(path), path)
    except CorruptIndexError as error:
        raise DumpError(str(error)) from None
    for entry in entries:
        yield (
            f"version: {_TRANSACTION_INDEX_VERSION} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def producer_snapshot_lines(path: str) -> Iterator[str]:
    """Yield the lines of a `.snapshot` file. Raises DumpError."""
    try:
        entries = producer_snapshots.decode(read_file(path), path)
    except CorruptSnapshotError as error:
        raise DumpError(str(error)) from None
    for entry in entries:
        yield _producer_line(entry)


def _producer_line(entry: ProducerEntry) -> str:
    first_offset = entry.current_transaction_first_offset
    open_since = "OptionalLong.empty" if first_offset == NONE else f"OptionalLong[{first_offset}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {open_since} lastTimestamp: {entry.last_timestamp_ms} "
    )
    for batch in entry.batches:
        line += (
            f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp_ms}"
        )
    return line


def _greatest_timestamp_ms(path: str, batch: StoredBatch) -> int:
    """Return the greatest timestamp of the records, as the header may be wrong."""
    try:
        stored = entry_records(batch.view, parts=Parts.OUTLINE)
        return max((record.timestamp for record in stored), default=NO_TIMESTAMP)
    except Malformed as error:
        raise DumpError(f"{path}: batch at position {batch.extent.position}: {error}") from None


def _position(entries: Sequence[OffsetPosition], offset: int) -> int:
    """Return the position from which to search for an offset: that of the last entry at or below it."""
    slot = bisect_right(entries, offset, key=lambda entry: entry.offset)
    return entries[slot - 1].position if slot else 0


def _check_size(path: str, what: str, entry_size: int) -> None:
    size = os.path.getsize(path)
    if size % entry_size:
        raise DumpError(
            f"{what} file {absolute(path)} is corrupt, "
            f"found {size} bytes which is neither positive nor a multiple of {entry_size}"
        )


def _check_times(path: str, entries: Sequence[TimestampOffset], base_offset: int) -> None:
    if not entries:
        return
    first, last = entries[0], entries[-1]
    for what, found, least in (
        ("timestamp", last.timestamp_ms, first.timestamp_ms),
        ("offset", last.offset, base_offset),
    ):
        if found < least:
            raise DumpError(
                f"Corrupt time index found, time index file ({absolute(path)}) has non-zero size but the last {what} "
                f"is {found} which is less than the first {what} {least}"
            )
