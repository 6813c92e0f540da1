"""Reading the segments of one log: by offset for a fetch, by timestamp for a list of offsets.

Owns the lookup from an offset to a position, the aborted transactions that overlap a range, and a small cache of where
the last reads ended: a consumer that continues there needs neither index nor scan. Must not know why an upper bound is
what it is. Any thread may read while the owning thread appends.

Invariants:
- Nothing at or above the upper bound is returned, even during appends: the log end and its position are one value.
- An index entry is checked against the batch at its position, so a wrong index costs time, never records.
- When cached positions become invalid, the cache is replaced, not emptied: a read in progress keeps its own.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from base.file_slice import FileSlice
from protocol.errors import Malformed
from protocol.records.batch import Parts
from protocol.records.entries import entry_records
from storage.batches.stored_batch import Extent, extent_at
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.offset_index import OffsetPosition
from storage.segments.segment import CorruptSegmentError, Segment
from storage.segments.segments import Segments, slot_above, slot_of
from storage.segments.time_index import NO_TIMESTAMP
from storage.segments.transaction_index import AbortedTransaction

_POSITIONS_MAX: Final = 64
_POSITIONS_FORGOTTEN: Final = 8
_BATCHES_WALKED_MAX: Final = 16
_READ_AHEAD_MAX: Final = 64 * 1024
_FIRST_READ_SIZE_MIN: Final = 64

# Below this size, a copy costs less than the system calls that a slice needs.
SLICE_SIZE_MIN: Final = 64 * 1024

_new_tuple = tuple.__new__  # builds a named tuple in half the time that calling its class takes


Records = TypeVar("Records", memoryview, memoryview | FileSlice)


class FetchedRecords(NamedTuple, Generic[Records]):
    """`records` begins with the batch that holds `offset`, and may end within a batch.

    `segment_base_offset` and `position` say where they are stored, so two reads of one segment can be compared without
    parsing records. The last two fields are None unless the read asked for aborted transactions: `end_offset` follows
    the last whole batch of `records`, and the transactions are those that overlap the offsets below it.
    """

    records: Records
    offset: int
    segment_base_offset: int
    position: int
    end_offset: int | None = None
    aborted_transactions: Sequence[AbortedTransaction] | None = None


class Wanted(NamedTuple):
    """What a read asks for."""

    offset: int
    max_bytes: int
    """The most bytes to return."""
    bound: int
    """Nothing at or above this offset is returned."""
    min_one_batch: bool
    """Whether the first batch is whole even if it is larger than `max_bytes`."""
    may_cut_first: bool
    """Whether a first batch that is larger is cut off. If it is neither that nor whole, nothing is returned."""
    wait: bool
    """Whether the read waits for the disk. If not, it fails when the bytes are not in memory."""
    may_slice: bool
    """Whether a large range that is in memory may be returned as a slice of its file.

    What has to be read from the disk never is.
    """
    with_aborted: bool
    """Whether to return the aborted transactions that overlap the bytes as well, from the same segments.

    Then `bound` must not be above the last stable offset.
    """


LogEnd: TypeAlias = tuple[int, Segment, int]
"""Offset, segment and position of the next batch."""


class FoundOffset(NamedTuple):
    timestamp_ms: int
    offset: int


Positions: TypeAlias = dict[int, tuple[Segment, int]]

_NOTHING: Final = memoryview(b"")


class SegmentReader:
    """Finds and reads the bytes of one log. The log sets `end`."""

    __slots__ = ("_lowest_aborted", "end", "first_batch_size", "positions", "segments")

    def __init__(self, segments: Segments, end: LogEnd) -> None:
        self.segments = segments
        self.end = end
        self.positions: Positions = {}  # of the batch that holds an offset, for recent offsets
        self.first_batch_size = 0  # of the last read: the estimate for the next
        self._lowest_aborted: tuple[Sequence[Segment], Sequence[int]] = ((), ())  # see `_lowest_aborted_from`

    def forget_positions(self) -> None:
        """Forget cached positions, because segments were truncated, replaced or deleted."""
        self.positions = {}

    def read(self, wanted: Wanted) -> FetchedRecords[memoryview | FileSlice]:
        """Return the wanted bytes, from the batch that holds the offset on; see `LogReader.read_or_slice`.

        Raises NotInMemoryError, SegmentGoneError, CorruptSegmentError, CorruptIndexError, OSError.
        """
        end_offset, active, end_position = self.end
        offset = wanted.offset
        if offset == end_offset >= wanted.bound:
            # Consumers at the log's end repeat this read: it needs no lookup.
            if wanted.with_aborted:
                return FetchedRecords(_NOTHING, offset, active.base_offset, end_position, offset, ())
            return FetchedRecords(_NOTHING, offset, active.base_offset, end_position)
        return _Read(self, wanted).run()

    def read_without_index(self, wanted: Wanted) -> FetchedRecords[memoryview | FileSlice]:
        """`read` without the index, which is slow: every segment is walked from its beginning. It waits for the disk.

        Raises SegmentGoneError, CorruptSegmentError, OSError; CorruptIndexError for the index of aborted transactions.
        """
        read = _Read(self, wanted)
        read.wait = True
        read.uses_index = False
        read.positions = {}
        return read.run()

    def aborted_transactions(
        self, segments: Sequence[Segment], start_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the range, in the order of their markers.

        `segments` are all of the log. The marker of a transaction may be in any segment from that of `start_offset`
        on. Of the sealed segments, only those up to the last one with a matching marker are visited.

        Raises CorruptIndexError, OSError.
        """
        found: list[AbortedTransaction] = []
        lowest = self._lowest_aborted_from(segments)
        slot = slot_of(segments, start_offset)
        while slot < len(lowest) and lowest[slot] < end_offset:
            found.extend(segments[slot].transaction_index.overlapping(start_offset, end_offset))
            slot += 1
        found.extend(segments[-1].transaction_index.overlapping(start_offset, end_offset))
        return found

    def _lowest_aborted_from(self, segments: Sequence[Segment]) -> Sequence[int]:
        """Return for each sealed segment the lowest first offset of aborted transactions in it and all later ones.

        The result is cached until the segments change. Any thread: concurrent computations give the same result.
        """
        known_segments, lowest = self._lowest_aborted
        if known_segments is not segments:
            each = (segment.transaction_index.lowest_first_offset for segment in reversed(segments[:-1]))
            lowest = tuple(accumulate(each, min))[::-1]
            self._lowest_aborted = (segments, lowest)
        return lowest

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return the bytes between the batches of two offsets. Raises what `Segment.find` raises."""
        first, first_position = self._position_of(start_offset)
        last, last_position = self._position_of(end_offset)
        if first is last:
            return max(last_position - first_position, 0)
        between = sum(each.size for each in self.segments.covering(first.base_offset, last.base_offset))
        return max(between - first_position + last_position, 0)

    def _position_of(self, offset: int) -> tuple[Segment, int]:
        """Return where the batch of an offset begins; the log's end for offsets at or above it."""
        end_offset, active, end_position = self.end
        if offset < end_offset and (segment := self.segments.floor(offset)) is not None:
            extent = segment.find(offset, wait=False)
            return segment, segment.size if extent is None else extent.position
        return active, end_position

    def first_at_or_after(self, timestamp_ms: int, start_offset: int) -> FoundOffset | None:
        """Return the first record from `start_offset` on with a timestamp at or after the given one."""
        for segment in self.segments.all():
            if segment.largest().timestamp_ms < timestamp_ms:
                continue
            near = max(segment.time_index.lookup(timestamp_ms).offset, start_offset)
            for extent in segment.walk(segment.lookup(near).position):
                if extent.last_offset < start_offset or segment.max_timestamp_of(extent) < timestamp_ms:
                    continue
                for found in _records_in(segment, extent):
                    if found.timestamp_ms >= timestamp_ms and found.offset >= start_offset:
                        return found
        return None

    def with_max_timestamp(self) -> FoundOffset | None:
        """Return the first record with the greatest timestamp of the log; None if no record has one."""
        segment = max(self.segments.all(), key=lambda candidate: candidate.largest().timestamp_ms)
        largest = segment.largest()
        extent = None if largest.timestamp_ms == NO_TIMESTAMP else segment.find(largest.offset)
        if extent is None:
            return None
        return next(
            (found for found in _records_in(segment, extent) if found.timestamp_ms == largest.timestamp_ms), None
        )


class _Read:
    """One read: its arguments, and the log's end, cached positions and segments as they were when it began.

    It uses these segments to its end. So its records and aborted transactions are consistent even if retention or
    cleaning removes a segment from the log at the same time.
    """

    __slots__ = (
        "active",
        "all_segments",
        "bound",
        "end_offset",
        "end_position",
        "max_bytes",
        "may_cut_first",
        "may_slice",
        "min_one_batch",
        "offset",
        "positions",
        "reader",
        "uses_index",
        "wait",
        "with_aborted",
    )

    def __init__(self, reader: SegmentReader, wanted: Wanted) -> None:
        self.reader = reader
        # Positions before the end: what is found up to an end from before a truncation then goes into the old cache.
        self.positions = reader.positions
        self.end_offset, self.active, self.end_position = reader.end
        self.all_segments = reader.segments.all()
        (
            self.offset,
            max_bytes,
            self.bound,
            self.min_one_batch,
            self.may_cut_first,
            self.wait,
            self.may_slice,
            self.with_aborted,
        ) = wanted
        self.max_bytes = max(max_bytes, 0)
        self.uses_index = True

    def run(self) -> FetchedRecords[memoryview | FileSlice]:
        offset, bound = self.offset, self.bound
        known = self.positions.get(offset)
        indexed_offset: int | None = None
        if known is not None and self.with_aborted and self._floor(known[0].base_offset) is not known[0]:
            known = None  # the segment was replaced, and its aborted transactions differ from those of the new one
        if known is not None:
            segment, position = known
        else:
            segment = self._floor(offset)
            indexed_offset, position = self._lookup(segment)
        while offset < bound:
            limit = self._limit(segment)
            if position < limit:
                fetched = self._read_in(segment, position, limit, indexed_offset)
                if fetched is not None:
                    return fetched
            following = None if segment is self.active else self._after(segment)
            if following is None or following.base_offset >= bound:
                break
            segment, position, indexed_offset = following, 0, following.base_offset
        return self._nothing(segment, position)

    def _nothing(self, segment: Segment, position: int) -> FetchedRecords[memoryview | FileSlice]:
        if self.with_aborted:
            return FetchedRecords(_NOTHING, self.offset, segment.base_offset, position, self.offset, ())
        return FetchedRecords(_NOTHING, self.offset, segment.base_offset, position)

    def _floor(self, offset: int) -> Segment:
        """Return the segment with the greatest base offset at or below `offset`, or the first."""
        segments = self.all_segments
        return segments[-1] if segments[-1].base_offset <= offset else segments[slot_of(segments, offset)]

    def _after(self, segment: Segment) -> Segment | None:
        segments = self.all_segments
        following = slot_above(segments, segment.base_offset)
        return segments[following] if following < len(segments) else None

    def _lookup(self, segment: Segment) -> OffsetPosition:
        if self.uses_index:
            return segment.lookup(self.offset)
        return OffsetPosition(segment.base_offset, 0)

    def _limit(self, segment: Segment) -> int:
        """Return the position in the segment of the first batch that must not be returned."""
        bound = self.bound
        segment_end = self.end_position if segment is self.active else segment.size
        if bound >= self.end_offset:
            return segment_end
        following = self._after(segment)
        if following is not None and following.base_offset <= bound:
            return segment_end
        known = self.positions.get(bound)
        if known is not None and known[0] is segment:
            return known[1]
        extent = segment.find(bound, wait=self.wait, uses_index=self.uses_index)
        limit = segment_end if extent is None else min(extent.position, segment_end)
        _remember(self.positions, bound, segment, limit)
        return limit

    def _read_in(
        self, segment: Segment, position: int, limit: int, indexed_offset: int | None
    ) -> FetchedRecords[memoryview | FileSlice] | None:
        """Scan from `position` for the batch that holds the offset; return the bytes from there on.

        Returns None if there is no such batch below `limit`.

        `indexed_offset` is the index entry for `position`; None if the batch is known to begin there. Skipped and
        wanted bytes are read together, because one longer read is cheaper than two. For a slice only the first bytes
        are read.

            position                         limit
            | skipped batches | wanted batch ... |
            | <----------- content ----->        |
        """
        size_wanted = max(self.max_bytes, _FIRST_READ_SIZE_MIN)
        if self.min_one_batch:
            size_wanted = max(size_wanted, min(self.reader.first_batch_size, _READ_AHEAD_MAX))
        is_sliced = self.may_slice and not self.wait and min(size_wanted, limit - position) >= SLICE_SIZE_MIN
        if is_sliced:
            size_wanted = _FIRST_READ_SIZE_MIN
        if indexed_offset is not None:
            size_wanted += min(2 * segment.index_interval_bytes, _READ_AHEAD_MAX)
        content_position = -1
        content = _NOTHING
        while True:
            extent = _extent_or_none(segment, content, position - content_position, position) if content else None
            if extent is None:
                if position == content_position:
                    raise CorruptSegmentError(segment.path, position, f"{limit - position} bytes are no batch")
                content = segment.read(position, min(size_wanted, limit - position), wait=self.wait)
                content_position = position
                continue
            if indexed_offset is not None:
                _check_index(segment, extent, indexed_offset)
                indexed_offset = None
            if extent.last_offset >= self.offset:
                break
            position = extent.end
            if position >= limit:
                return None
        if is_sliced:
            content = _NOTHING
        return self._cut(segment, extent, limit, content, position - content_position, is_sliced=is_sliced)

    def _cut(
        self, segment: Segment, first: Extent, limit: int, content: memoryview, index: int, *, is_sliced: bool
    ) -> FetchedRecords[memoryview | FileSlice]:
        """Return `content` from `index` on, cut to the wanted size; read again if it is too short."""
        if first.end > limit:
            raise CorruptSegmentError(
                segment.path, first.position, f"a batch of {first.size} bytes, {limit - first.position} left"
            )
        size = min(self.max_bytes, limit - first.position)
        if self.min_one_batch:
            self.reader.first_batch_size = first.size
            size = max(size, first.size)
        elif size < first.size and not self.may_cut_first:
            return self._nothing(segment, first.position)
        returned: memoryview | FileSlice
        if is_sliced and size >= SLICE_SIZE_MIN:
            returned = segment.slice(first.position, size)
        else:
            if len(content) - index < min(size, first.size):
                content, index = segment.read(first.position, size, wait=self.wait), 0
            returned = content[index : index + size]
        if self.with_aborted:
            return self._with_aborted(segment, first, limit, returned)
        self._remember_end(segment, first, limit, returned)
        return _new_tuple(FetchedRecords, (returned, self.offset, segment.base_offset, first.position, None, None))

    def _with_aborted(
        self, segment: Segment, first: Extent, limit: int, returned: memoryview | FileSlice
    ) -> FetchedRecords[memoryview | FileSlice]:
        """Return the records with their end offset and the aborted transactions that overlap them."""
        offset = end_offset = self.offset
        aborted: Sequence[AbortedTransaction] = ()
        if len(returned) >= first.size:
            last = self._last_returned(segment, first, limit, first.position + len(returned))
            _remember(self.positions, last.last_offset + 1, segment, last.end)
            end_offset = last.last_offset + 1
            aborted = self.reader.aborted_transactions(self.all_segments, offset, end_offset)
        return FetchedRecords(returned, offset, segment.base_offset, first.position, end_offset, aborted)

    def _last_returned(self, segment: Segment, first: Extent, limit: int, end_position: int) -> Extent:
        """Return the last batch that ends at or below `end_position`, by a short walk from an index entry."""
        if end_position == first.end:
            return first
        begin = end_position
        while self.uses_index:
            indexed_offset, begin = segment.offset_index.lookup_position(begin - 1)
            if begin <= first.position:
                break
            last = None
            for extent in segment.walk(begin, wait=self.wait, end=limit):
                if last is None:
                    _check_index(segment, extent, indexed_offset)
                if extent.end > end_position:
                    break
                last = extent
            if last is not None:
                return last
        last = first
        for extent in segment.walk(first.end, wait=self.wait, end=limit):
            if extent.end > end_position:
                break
            last = extent
        return last

    def _remember_end(self, segment: Segment, first: Extent, limit: int, returned: memoryview | FileSlice) -> None:
        """Cache where the next read of this consumer will begin, if that is cheap to find."""
        size = len(returned)
        if segment is self.active and first.position + size == limit:
            _remember(self.positions, min(self.bound, self.end_offset), segment, limit)
            return
        last = first
        if size > first.size:
            if isinstance(returned, FileSlice) or size > _BATCHES_WALKED_MAX * first.size:
                return
            last = _last_whole(segment, returned, first)
        _remember(self.positions, last.last_offset + 1, segment, last.end)


def _last_whole(segment: Segment, content: memoryview, first: Extent) -> Extent:
    """Return the last batch that is whole in `content`, which begins with `first`. Raises CorruptSegmentError."""
    last, index, size = first, first.size, len(content)
    while index < size:
        extent = _extent_or_none(segment, content, index, last.end)
        if extent is None or index + extent.size > size:
            break
        last, index = extent, index + extent.size
    return last


def _remember(positions: Positions, offset: int, segment: Segment, position: int) -> None:
    positions[offset] = (segment, position)
    if len(positions) > _POSITIONS_MAX:
        _forget_oldest(positions)


def _forget_oldest(positions: Positions) -> None:
    # Several in one step: finding the oldest costs more than an entry is worth. Other threads may do the same.
    for oldest in list(positions)[:_POSITIONS_FORGOTTEN]:
        positions.pop(oldest, None)


def _extent_or_none(segment: Segment, content: memoryview, index: int, position: int) -> Extent | None:
    """Return the extent of a batch; None if `content` ends within its header. Raises CorruptSegmentError."""
    try:
        return extent_at(content, index, position)
    except struct.error:
        return None
    except ValueError as error:
        raise CorruptSegmentError(segment.path, position, str(error)) from None


def _check_index(segment: Segment, extent: Extent, indexed_offset: int) -> None:
    """Raise CorruptIndexError if the batch at the position of an index entry begins above the entry's offset.

    An entry holds the last offset of an append that begins at its position. A position that is too high would silently
    skip records; one that is too low only costs time.
    """
    if not segment.base_offset <= extent.base_offset <= indexed_offset and extent.position:
        raise CorruptIndexError(
            f"{segment.offset_index.path} sends offset {indexed_offset} to position {extent.position}, "
            f"where the batch of offset {extent.base_offset} is"
        )


def _records_in(segment: Segment, extent: Extent) -> Iterator[FoundOffset]:
    """Yield the records of a batch. Raises CorruptSegmentError if it cannot be parsed."""
    content = segment.read(extent.position, extent.size)
    try:
        for record in entry_records(content, parts=Parts.OUTLINE):
            yield FoundOffset(record.timestamp, record.offset)
    except Malformed as error:
        raise CorruptSegmentError(segment.path, extent.position, str(error)) from None
