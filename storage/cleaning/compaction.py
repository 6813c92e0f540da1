"""The decisions of compaction: which part of a log is cleaned, which segments are merged, which records are kept.

Owns these decisions, as pure functions over plain values; `cleaner` applies them. Must not know files or threads.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import takewhile
from typing import Final, NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.control import ControlType, TransactionMarker
from storage.segments.transaction_index import AbortedTransaction

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NONE: Final = -1


class DirtySegment(NamedTuple):
    """What `cleanable_part` needs of a segment. The last segment of a log is the active one."""

    base_offset: int
    size: int
    first_timestamp_ms: int
    largest_timestamp_ms: int


class CompactionLimits(NamedTuple):
    """The limits that a topic's configuration and open transactions set."""

    last_stable_offset: int
    min_lag_ms: int
    max_lag_ms: int


class CleanableLog(NamedTuple):
    """The part from `first_dirty_offset` up to `first_uncleanable_offset`, both where a segment begins or ends."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int  # the time since the oldest record exceeded max.compaction.lag.ms; 0 if none has

    @property
    def is_overdue(self) -> bool:
        return self.overdue_ms > 0

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        return self.cleanable_bytes > 0 and (self.is_overdue or self.dirty_ratio > min_dirty_ratio)


def cleanable_part(
    segments: Sequence[DirtySegment],
    checkpoint: int | None,
    log_start_offset: int,
    limits: CompactionLimits,
    now_ms: int,
) -> CleanableLog:
    """Return the part of a log that can be cleaned now.

    `checkpoint` is the first dirty offset of the last pass. One outside the log is replaced by the log's start:
    something has changed without the cleaner, and cleaning more than needed does no harm.
    """
    active = segments[-1]
    first_dirty = log_start_offset
    if checkpoint is not None and log_start_offset <= checkpoint <= active.base_offset:
        first_dirty = checkpoint
    ends = [segment.base_offset for segment in segments[1:]]
    sealed = [(segment, end) for segment, end in zip(segments, ends, strict=False)]
    dirty = [(segment, end) for segment, end in sealed if end > first_dirty]
    young = [
        segment.base_offset
        for segment, _ in dirty
        if limits.min_lag_ms > 0 and segment.largest_timestamp_ms > now_ms - limits.min_lag_ms
    ]
    bound = min([limits.last_stable_offset, active.base_offset, *young[:1]])
    cleanable = list(takewhile(lambda item: item[1] <= bound, dirty))
    firsts = [segment.first_timestamp_ms for segment, _ in dirty if segment.first_timestamp_ms > 0]
    return CleanableLog(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=cleanable[-1][1] if cleanable else first_dirty,
        clean_bytes=sum(segment.size for segment, end in sealed if end <= first_dirty),
        cleanable_bytes=sum(segment.size for segment, _ in cleanable),
        overdue_ms=max(now_ms - min(firsts) - limits.max_lag_ms, 0) if firsts else 0,
    )


class SourceSegment(NamedTuple):
    """A segment that is to be cleaned. `next_offset` is the base offset of the one after it."""

    base_offset: int
    next_offset: int
    size: int
    offset_index_size: int
    time_index_size: int
    modified_ms: int


def groups_of(segments: Iterable[SourceSegment], segment_bytes: int, index_bytes: int) -> list[list[SourceSegment]]:
    """Return groups of consecutive segments, each of which fits into one segment, or is a single larger one."""
    groups: list[list[SourceSegment]] = []
    size = offset_index_size = time_index_size = 0  # those of the last group, with the segment
    for segment in segments:
        size += segment.size
        offset_index_size += segment.offset_index_size
        time_index_size += segment.time_index_size
        if (
            groups
            and size <= segment_bytes
            and max(offset_index_size, time_index_size) <= index_bytes
            and segment.next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            offset_index_size, time_index_size = segment.offset_index_size, segment.time_index_size
    return groups


class ActiveProducer(NamedTuple):
    """The data that must stay in the log so that a producer's sequence and epoch can be checked after a restart."""

    last_data_offset: int  # NONE without data
    epoch: int


def must_keep_for_producer(header: BatchHeader, producers: Mapping[int, ActiveProducer]) -> bool:
    """Return whether a batch must stay, if only empty: it has the last sequence or marker of its producer."""
    producer = producers.get(header.producer_id)
    if producer is None:
        return False
    if producer.last_data_offset != NONE:
        return header.last_offset == producer.last_data_offset
    return header.is_control and header.producer_epoch == producer.epoch


class Transactions:
    """Follows the transactions of a log from its start, batch by batch, and decides which batches are useless.

    Data of an aborted transaction is useless. A marker is useless once no batch of its transaction is left before it.
    """

    __slots__ = ("_aborted", "_committed", "_ongoing", "kept_aborted")

    def __init__(self) -> None:
        self._aborted: list[tuple[int, AbortedTransaction]] = []  # transactions yet to begin, a heap by first offset
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}  # producer -> (transaction, has data left)
        self._committed: set[int] = set()  # producers with data of a transaction that will commit
        self.kept_aborted: list[AbortedTransaction] = []  # the entries of the cleaned segment's transaction index

    def begin_segment(self) -> None:
        """Collect the aborted transactions of the next cleaned segment."""
        self.kept_aborted = []

    @property
    def has_data_before_marker(self) -> bool:
        """Whether the batches so far have data of a transaction whose marker is behind them."""
        return bool(self._committed) or any(has_data for _, has_data in self._ongoing.values())

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        for transaction in aborted:
            heappush(self._aborted, (transaction.first_offset, transaction))

    def is_data_useless(self, header: BatchHeader) -> bool:
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._ongoing.get(header.producer_id)
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        self._ongoing[header.producer_id] = (ongoing[0], True)
        return True

    def is_marker_useless(self, header: BatchHeader, marker: TransactionMarker | None) -> bool:
        """Return whether a control batch is useless.

        `marker` is None if the batch has no records, or is of a type that does not concern transactions.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return header.records_count == 0
        if marker.control_type is ControlType.COMMIT:
            had_data = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not had_data
        ended = self._ongoing.pop(header.producer_id, None)
        if ended is None or not ended[1]:
            return True
        self.kept_aborted.append(ended[0])
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            transaction = heappop(self._aborted)[1]
            self._ongoing.setdefault(transaction.producer_id, (transaction, False))
