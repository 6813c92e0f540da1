"""The deliveries of one partition to one share group (KIP-932): which records are whose, and which are done. Pure.

Records from `start_offset` up to `end_offset` are in flight, and are known in runs of consecutive offsets in the same
state. Below it everything is done; from `end_offset` on nothing has been delivered yet.

    new -> ACQUIRED -> ACKNOWLEDGED, ARCHIVED (done)
              |  ^
              v  |
           AVAILABLE

A record that a member acquires is locked for it: nobody else gets it until the member acknowledges it, leaves, or its
lock expires. A record that was delivered `delivery_count_max` times is not delivered once more, it is archived.

Owns: the states, the limits, and what has to be stored after a change. Must not know: the log, who may be a member,
sessions, or how states are stored.

Invariants, which `check` tests:
* The runs follow each other without a gap, from `start_offset` to `end_offset`, and none is empty.
* The first run is not done: what is done at the beginning moves `start_offset`.
* Exactly the acquired runs have an owner and a deadline.
* No run was delivered more often than `delivery_count_max` times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

from base.dataclass import dataclass
from protocol.errors import ErrorCode, KafkaError

NEVER: Final = 1 << 62
IN_FLIGHT_MIN: Final = 2000
"""A batch is not split if no more records are in flight with it, whatever the limit of a group."""
ENTRIES_MIN: Final = 4000
"""Batches and types that one acknowledgement may have in any case, however little is in flight."""


class RecordState(IntEnum):
    """The state of a record; the values are stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


DONE: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AcknowledgeType(IntEnum):
    """What a member says of a record."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class Acknowledgement(NamedTuple):
    """What a member says of consecutive records: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class StateBatch(NamedTuple):
    """Consecutive records in the same state, as they are stored."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class ReadBatch(NamedTuple):
    """A batch of the log."""

    first_offset: int
    last_offset: int
    has_records: bool = True
    """Whether it has records to be delivered; a marker of a transaction has none, nor has what was aborted."""


class Acquired(NamedTuple):
    """Consecutive records that are locked for a member now."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """The limits of one group."""

    delivery_count_max: int = 5
    in_flight_max: int = 200
    lock_duration_ms: int = 30_000


@dataclass(slots=True)
class _Run:
    """Consecutive records in the same state."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    owner: object = None
    deadline_ms: int = NEVER

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def is_like(self, other: _Run) -> bool:
        return (self.state, self.delivery_count, self.owner, self.deadline_ms) == (
            other.state, other.delivery_count, other.owner, other.deadline_ms,
        )  # fmt: skip


class Change(NamedTuple):
    """What an event has changed, which is to be stored."""

    start_offset: int
    """Where the records in flight begin now."""
    batches: Sequence[StateBatch]


class Deliveries:
    """One partition of one share group."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """`batches` are what is stored, in order; what they do not cover up to the last one is available."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._runs: list[_Run] = []
        for first, last, state, delivery_count in batches:
            if last < self.end_offset:
                continue
            if first > self.end_offset:
                self._append(_Run(self.end_offset, first - 1, RecordState.AVAILABLE, 0))
            # Who had acquired a record is not stored: it is available again.
            known = RecordState(state) if state in DONE else RecordState.AVAILABLE
            self._append(_Run(max(first, self.end_offset), last, known, delivery_count))
        self._move_start()

    # Queries

    @property
    def in_flight_count(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def wake_at_ms(self) -> int:
        """When the first lock expires."""
        return min((run.deadline_ms for run in self._runs), default=NEVER)

    def next_offset(self, limits: DeliveryLimits) -> int | None:
        """Return the offset from which records may be acquired; None if there are none before something is done."""
        for run in self._runs:
            if run.state is RecordState.AVAILABLE:
                return run.first
        return self.end_offset if self.in_flight_count < limits.in_flight_max else None

    # Events

    def acquire(
        self,
        owner: object,
        read_from: int,
        batches: Iterable[ReadBatch],
        count_max: int,
        limits: DeliveryLimits,
        now_ms: int,
    ) -> list[Acquired]:
        """Lock records for their owner, and return them in order.

        `batches` are what was read from `read_from` on; what is missing between them does not exist in the log any
        more. About `count_max` records are acquired: a batch is not split for that.
        """
        acquired: list[Acquired] = []
        left, deadline_ms, covered = count_max, now_ms + limits.lock_duration_ms, read_from
        for first, last, has_records in batches:
            if left <= 0:
                break
            if first > covered:
                self.archive(covered, first - 1)
            covered = last + 1
            if not has_records:
                self.archive(first, last)
                continue
            left -= self._acquire_known(owner, first, last, deadline_ms, acquired)
            begin, room = self.end_offset, max(limits.in_flight_max, IN_FLIGHT_MIN) - self.in_flight_count
            if first <= begin <= last and left > 0 and self.in_flight_count < limits.in_flight_max:
                end = min(last, begin + room - 1)
                self._append(_Run(begin, end, RecordState.ACQUIRED, 1, owner, deadline_ms))
                acquired.append(Acquired(begin, end, 1))
                left -= end - begin + 1
                if end < last:
                    break  # what comes next is no gap
        return acquired

    def archive(self, first: int, last: int) -> None:
        """Do not deliver offsets without records, unless they were delivered before."""
        for run in self._split(first, last):
            if run.state is RecordState.AVAILABLE:
                run.state = RecordState.ARCHIVED
        if first <= self.end_offset <= last:
            self._append(_Run(self.end_offset, last, RecordState.ARCHIVED, 0))
        self._move_start()

    def acknowledge(
        self, owner: object, acknowledgements: Sequence[Acknowledgement], limits: DeliveryLimits
    ) -> Change | None:
        """Apply what a member says of records that it has acquired: all of it or nothing. Return None if it is nothing.

        Raises KafkaError: INVALID_REQUEST for offsets or types that cannot be, INVALID_RECORD_STATE if a record is not
        acquired by the member.
        """
        entries_max = max(ENTRIES_MIN, 2 * self.in_flight_count)
        if sum(1 + len(each.types) for each in acknowledgements) > entries_max:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {entries_max} acknowledgements of a partition.")
        _check(acknowledgements)
        for each in acknowledgements:
            self._require_acquired(owner, each)
        return self._changed([batch for each in acknowledgements for batch in self._acknowledge(each, limits)])

    def release(self, owner: object, limits: DeliveryLimits) -> Change | None:
        """Make what a member has acquired available: it left. Its last delivery does not count."""
        changed: list[StateBatch] = []
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and run.owner is owner:
                run.delivery_count -= 1
                changed.append(self._end(run, RecordState.AVAILABLE, limits))
        return self._changed(changed)

    def expire(self, limits: DeliveryLimits, now_ms: int) -> Change | None:
        """Make records available whose locks have expired."""
        return self._changed(
            [self._end(run, RecordState.AVAILABLE, limits) for run in self._runs if run.deadline_ms <= now_ms]
        )

    def move_to(self, log_start_offset: int) -> None:
        """Forget what the log does not have any more. Records that are acquired stay with their owners."""
        if log_start_offset <= self.start_offset:
            return
        for run in self._split(self.start_offset, log_start_offset - 1):
            if run.state is RecordState.AVAILABLE:
                run.state = RecordState.ARCHIVED
        if log_start_offset > self.end_offset:
            self._append(_Run(self.end_offset, log_start_offset - 1, RecordState.ARCHIVED, 0))
        self._move_start()

    def stored_batches(self) -> list[StateBatch]:
        """Return the states of all records in flight, as they are stored."""
        return [_batch(run) for run in self._runs]

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold between two events."""
        following = self.start_offset
        for run in self._runs:
            assert run.first == following <= run.last, "The runs follow each other without a gap"
            following = run.last + 1
            is_acquired = run.state is RecordState.ACQUIRED
            assert is_acquired == (run.owner is not None) == (run.deadline_ms != NEVER), (
                "Exactly the acquired runs have an owner and a deadline"
            )
        assert following == self.end_offset, "The runs end at the end offset"
        assert not self._runs or self._runs[0].state not in DONE, "The first run is not done"

    # Steps

    def _acquire_known(self, owner: object, first: int, last: int, deadline_ms: int, acquired: list[Acquired]) -> int:
        """Lock what is available in a range; return how many records."""
        count = 0
        for run in self._split(first, min(last, self.end_offset - 1)):
            if run.state is RecordState.AVAILABLE:
                run.state, run.owner, run.deadline_ms = RecordState.ACQUIRED, owner, deadline_ms
                run.delivery_count += 1
                acquired.append(Acquired(run.first, run.last, run.delivery_count))
                count += run.count
        return count

    def _require_acquired(self, owner: object, given: Acknowledgement) -> None:
        """Check that a member has acquired what it acknowledges. Raises KafkaError.

        It may also acknowledge what is before the start: retention or an administrator may have moved that.
        """
        if given.last_offset >= self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Offsets up to {given.last_offset}: {self.end_offset} is not delivered yet."
            )
        first = max(given.first_offset, self.start_offset)
        if first > given.last_offset:
            return
        for run in islice(self._runs, self._index_of(first), self._index_of(given.last_offset) + 1):
            if run.state is not RecordState.ACQUIRED:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"The batch cannot be acknowledged. The record {max(run.first, first)} is not in the acquired "
                    f"state.",
                )
            if run.owner is not owner:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"Member {owner} is not the owner of record {max(run.first, first)}.",
                )

    def _acknowledge(self, given: Acknowledgement, limits: DeliveryLimits) -> Iterator[StateBatch]:
        if given.last_offset >= self.start_offset:
            for first, last, kind in _parts(given, self.start_offset):
                for run in self._split(first, last):
                    yield self._end(run, _STATES[kind], limits)

    def _end(self, run: _Run, state: RecordState, limits: DeliveryLimits) -> StateBatch:
        """Take an acquired run from its member."""
        if state is RecordState.AVAILABLE and run.delivery_count >= limits.delivery_count_max:
            state = RecordState.ARCHIVED
        run.state, run.owner, run.deadline_ms = state, None, NEVER
        return _batch(run)

    def _changed(self, batches: Sequence[StateBatch]) -> Change | None:
        if not batches:
            return None
        self._move_start()
        self._join()
        start = self.start_offset
        return Change(start, [each for each in batches if each.last_offset >= start])

    # Runs

    def _append(self, run: _Run) -> None:
        if self._runs and self._runs[-1].is_like(run):
            self._runs[-1].last = run.last
        else:
            self._runs.append(run)
        self.end_offset = run.last + 1

    def _split(self, first: int, last: int) -> list[_Run]:
        """Return the runs between two offsets, split so that none reaches beyond them."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        if first > last:
            return []
        self._split_at(first)
        self._split_at(last + 1)
        return self._runs[self._index_of(first) : self._index_of(last) + 1]

    def _index_of(self, offset: int) -> int:
        """Return the index of the run with an offset in flight."""
        return bisect_right(self._runs, offset, key=_first) - 1

    def _split_at(self, offset: int) -> None:
        index = self._index_of(offset)
        if index < 0:
            return
        run = self._runs[index]
        if run.first < offset <= run.last:
            rest = _Run(offset, run.last, run.state, run.delivery_count, run.owner, run.deadline_ms)
            run.last = offset - 1
            self._runs.insert(index + 1, rest)

    def _join(self) -> None:
        """Join neighbours in the same state."""
        joined: list[_Run] = []
        for run in self._runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self._runs = joined

    def _move_start(self) -> None:
        done = 0
        while done < len(self._runs) and self._runs[done].state in DONE:
            done += 1
        del self._runs[:done]
        self.start_offset = self._runs[0].first if self._runs else self.end_offset


_STATES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


def _first(run: _Run) -> int:
    return run.first


def _batch(run: _Run) -> StateBatch:
    """Return a run as it is stored: as if nobody had acquired it this time."""
    if run.state is RecordState.ACQUIRED:
        return StateBatch(run.first, run.last, RecordState.AVAILABLE, run.delivery_count - 1)
    return StateBatch(run.first, run.last, run.state, run.delivery_count)


def _check(acknowledgements: Iterable[Acknowledgement]) -> None:
    """Raise KafkaError(INVALID_REQUEST) for what no client means."""
    following = 0
    for first, last, types in acknowledgements:
        if first < following or first > last:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Offsets {first} to {last}: expected a range from {following} on."
            )
        if len(types) != 1 and len(types) != last - first + 1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Offsets {first} to {last} with {len(types)} acknowledge types: expected one, or one for each offset.",
            )
        for kind in types:
            if kind not in _STATES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Acknowledge type {kind}: expected 0 to 3.")
        following = last + 1


def _parts(given: Acknowledgement, start_offset: int) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """Yield consecutive offsets from `start_offset` on with the same type."""
    first, last, types = given
    if len(types) == 1:
        yield max(first, start_offset), last, AcknowledgeType(types[0])
        return
    begin = first
    for offset in range(first + 1, last + 2):
        if offset > last or types[offset - first] != types[begin - first]:
            if offset > start_offset:
                yield max(begin, start_offset), offset - 1, AcknowledgeType(types[begin - first])
            begin = offset
