"""Scans log files batch by batch, and rebuilds what is derived from them.

Owns the checks and rebuilds that follow an unclean stop or a lost index. Must not know directories, checkpoints or
which segments a log keeps. Corruption is reported with path, position and reason; the caller cuts.

Invariant: a batch is valid if it passes the checks of length, CRC and order. A scan ends at the first that does not.
"""

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from protocol.crc import crc32c
from protocol.errors import Malformed
from protocol.records.batch import (
    CONTROL_BIT,
    CRC_COVERED_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from storage.batches.stored_batch import Extent, StoredBatch, batch_of, extent_at
from storage.producers.producer_state import BATCHES_KEPT, BatchMetadata, ProducerEntry, ProducerState, marker_in
from storage.segments.leader_epochs import LeaderEpochs
from storage.segments.offset_index import OffsetPosition
from storage.segments.segment import RELATIVE_OFFSET_MAX, CorruptSegmentError, RebuiltEntries, Segment
from storage.segments.time_index import TimestampOffset
from storage.segments.transaction_index import AbortedTransaction

CHUNK_SIZE: Final = 1024 * 1024
RECALL_SIZE_MAX: Final = 256 * 1024
"""How many bytes are searched for the batches of one producer. Those that it may send again are recent."""

# The header fields that decide whether a batch is an ordinary one:
# base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, max_timestamp and
# producer_id.
_DECISIVE_FIELDS: Final = struct.Struct(">qiibIhi8xqq")


class Scan(NamedTuple):
    """How far a segment is valid. `damage` is None if it is valid to its end."""

    end_position: int
    next_offset: int
    damage: CorruptSegmentError | None


def stored_batches(segment: Segment, position: int, end: int, *, chunk_size: int = CHUNK_SIZE) -> Iterator[StoredBatch]:
    """Yield the batches between two positions, read in large chunks. Only their sizes are checked.

    A batch larger than `chunk_size` is read whole, provided that the file is long enough for it.

    Raises CorruptSegmentError at the first bytes that cannot be a batch.
    """
    size_wanted = chunk_size
    while position < end:
        chunk = segment.read(position, min(size_wanted, end - position))
        index = 0
        size_wanted = chunk_size
        while (extent := _extent_in(segment, chunk, index, position + index, end)) is not None:
            if index + extent.size > len(chunk):
                size_wanted = max(chunk_size, extent.size)
                break
            view = chunk[index : index + extent.size]
            yield batch_of(extent, view)
            index += extent.size
        position += index


def scan_segment(
    segment: Segment,
    producer_state: ProducerState,
    leader_epochs: LeaderEpochs,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Scan:
    """Check every batch of a segment; rebuild its indexes, and the epochs and producer state at its end.

    `producer_state` must be the state at the segment's base offset. The log file is not changed.
    """
    segment.reset_indexes()
    return _Scanner(segment, producer_state, leader_epochs).scan(on_bytes)


def replay(
    segments: Sequence[Segment],
    producer_state: ProducerState,
    end_offset: int,
    on_damage: Callable[[CorruptSegmentError], None] = lambda damage: None,
) -> None:
    """Bring `producer_state` forward to `end_offset`. Batches are trusted, and no index is used.

    Batches before the damage of a segment count; the replay continues with the next segment.
    """
    for segment in segments:
        try:
            start = segment.find(max(producer_state.map_end_offset, segment.base_offset), uses_index=False)
            if start is not None:
                _replay_from(segment, start.position, producer_state, end_offset)
        except CorruptSegmentError as damage:
            on_damage(damage)
    producer_state.map_end_offset = max(producer_state.map_end_offset, end_offset)


def _replay_from(segment: Segment, position: int, producer_state: ProducerState, end_offset: int) -> None:
    for batch in stored_batches(segment, position, segment.size):
        if batch.extent.base_offset >= end_offset:
            break
        if batch.header is not None:
            apply_to_producer(segment, batch, batch.header, producer_state)


def batches_before(segments: Sequence[Segment], entry: ProducerEntry) -> list[BatchMetadata]:
    """Return the batches of a producer's epoch that belong before the remembered ones, in order.

    Searches the last `RECALL_SIZE_MAX` bytes before those. Raises OSError, CorruptSegmentError, CorruptIndexError.
    """
    first_offset = entry.batches[0].first_offset
    wanted, size_left = BATCHES_KEPT - len(entry.batches), RECALL_SIZE_MAX
    found: list[BatchMetadata] = []
    for segment in reversed(segments):
        extent = segment.find(first_offset)
        end = segment.size if extent is None else extent.position
        start = segment.offset_index.lookup_position(max(end - size_left, 0)).position
        headers = (batch.header for batch in stored_batches(segment, start, end))
        found = [
            BatchMetadata(it.last_sequence, it.last_offset, it.last_offset_delta, it.max_timestamp)
            for it in headers
            if it is not None
            and (it.producer_id, it.producer_epoch) == (entry.producer_id, entry.epoch)
            and not it.is_control
        ] + found
        size_left -= end - start
        if len(found) >= wanted or size_left <= 0:
            break
    return found[-wanted:]


def leader_epochs_in(segments: Sequence[Segment], leader_epochs: LeaderEpochs) -> None:
    """Rebuild the epochs from the batches, each of which carries its own. Raises CorruptSegmentError."""
    for segment in segments:
        for batch in stored_batches(segment, 0, segment.size):
            if batch.header is not None and batch.header.partition_leader_epoch > leader_epochs.latest:
                leader_epochs.assign(batch.header.partition_leader_epoch, batch.header.base_offset)


def apply_to_producer(
    segment: Segment, batch: StoredBatch, header: BatchHeader, producer_state: ProducerState
) -> AbortedTransaction | None:
    """Apply a batch to the producer state; return the aborted transaction if it is a marker that aborts one.

    Raises CorruptSegmentError.
    """
    if header.producer_id <= NO_PRODUCER_ID:
        return None
    try:
        marker = marker_in(batch.view, header) if header.is_control else None
    except Malformed as error:
        raise CorruptSegmentError(segment.path, batch.extent.position, f"control record: {error}") from None
    return producer_state.append(header, header.base_offset, marker)


def _extent_in(segment: Segment, chunk: memoryview, index: int, position: int, end: int) -> Extent | None:
    """Return the extent of the batch at `index`; None if the chunk ends within its header."""
    if position == end:
        return None
    try:
        extent = extent_at(chunk, index, position)
    except struct.error:
        if index + end - position > len(chunk):
            return None
        raise CorruptSegmentError(segment.path, position, f"{end - position} bytes are no batch") from None
    except ValueError as error:
        raise CorruptSegmentError(segment.path, position, str(error)) from None
    if extent.end > end:
        raise CorruptSegmentError(segment.path, position, f"a batch of {extent.size} bytes, {end - position} are left")
    return extent


def _latest_indexes() -> deque[int]:
    return deque(maxlen=BATCHES_KEPT)


class _Scanner:
    """Applies the batches of one segment in order. Invariant: all batches below `_next_offset` are applied."""

    def __init__(self, segment: Segment, producer_state: ProducerState, leader_epochs: LeaderEpochs) -> None:
        self._segment = segment
        self._producer_state = producer_state
        self._leader_epochs = leader_epochs
        self._next_offset = segment.base_offset

    def scan(self, on_bytes: Callable[[int], None]) -> Scan:
        segment = self._segment
        end = segment.size
        position, size_wanted = 0, CHUNK_SIZE
        try:
            while position < end:
                chunk = segment.read(position, min(size_wanted, end - position))
                start = position
                size_wanted = CHUNK_SIZE
                while True:
                    position += self._apply_ordinary(chunk[position - start :], position)
                    extent = _extent_in(segment, chunk, position - start, position, end)
                    if extent is None:
                        break
                    if extent.end > start + len(chunk):
                        size_wanted = max(CHUNK_SIZE, extent.size)
                        break
                    self._apply(batch_of(extent, chunk[position - start : extent.end - start]))
                    position = extent.end
                on_bytes(position - start)
        except CorruptSegmentError as damage:
            return Scan(position, self._next_offset, damage)
        return Scan(position, self._next_offset, None)

    def _apply_ordinary(self, chunk: memoryview, position: int) -> int:
        """Apply the ordinary batches at the start of `chunk`, which is at `position` of the file; return their size.

        Stops before the first batch that is not whole or needs more than the checks of its header and CRC: damage, an
        old format, a control batch, the first batch of a leader epoch. With small batches this loop determines how long
        an unclean start takes, so it creates no object per batch and writes index entries once.

            chunk   | batch | batch | batch |  not whole or not ordinary ...
                            ^ index: all before it are applied and end below next_offset
        """
        segment = self._segment
        unpack, checksum = _DECISIVE_FIELDS.unpack_from, crc32c
        leader_epoch, next_offset = self._leader_epochs.latest, self._next_offset
        offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        largest_ms, largest_offset = segment.largest()
        interval = segment.index_interval_bytes
        index_entry_after = segment.bytes_before_index_entry()  # index in the chunk
        positions: list[OffsetPosition] = []
        timestamps: list[TimestampOffset] = []
        latest: defaultdict[int, deque[int]] = defaultdict(_latest_indexes)
        first_timestamp_ms = None
        size = len(chunk)
        index = 0
        while index + HEADER_SIZE <= size:
            base_offset, length, epoch, magic, crc, attributes, delta, timestamp_ms, producer_id = unpack(chunk, index)
            end = index + LOG_OVERHEAD + length
            last_offset = base_offset + delta
            if (
                magic != MAGIC
                or not index + HEADER_SIZE <= end <= size
                or not next_offset <= base_offset <= last_offset <= offset_max
                or epoch > leader_epoch
                or checksum(chunk[index + CRC_COVERED_POSITION : end]) != crc
            ):
                break
            if producer_id > NO_PRODUCER_ID:
                if attributes & CONTROL_BIT:
                    break
                if attributes & TRANSACTIONAL_BIT:
                    self._apply_producers(chunk, latest)
                    self._producer_state.append_data(read_header(chunk, index), base_offset)
                else:
                    latest[producer_id].append(index)
            if timestamp_ms > largest_ms:
                largest_ms, largest_offset = timestamp_ms, last_offset
            if index > index_entry_after:
                positions.append(OffsetPosition(last_offset, position + index))
                timestamps.append(TimestampOffset(largest_ms, largest_offset))
                index_entry_after = index + interval
            index = end
            next_offset = last_offset + 1
        if index == 0:
            return 0
        if position == 0:
            (first_timestamp_ms,) = MAX_TIMESTAMP.unpack_from(chunk, MAX_TIMESTAMP_POSITION)
        self._apply_producers(chunk, latest)
        self._next_offset = next_offset
        largest = TimestampOffset(largest_ms, largest_offset)
        segment.add_recovered_batches(
            RebuiltEntries(first_timestamp_ms, largest, positions, timestamps, index_entry_after - index)
        )
        return index

    def _apply_producers(self, chunk: memoryview, latest: defaultdict[int, deque[int]]) -> None:
        """Apply the latest batches of each producer, then clear `latest`: producer id -> indexes in the chunk.

        Without a transaction, the producer state keeps only a producer's latest batches, so older ones are skipped.
        """
        for places in latest.values():
            for index in places:
                header = read_header(chunk, index)
                self._producer_state.append_data(header, header.base_offset)
        latest.clear()

    def _apply(self, batch: StoredBatch) -> None:
        """Check and apply any batch. Raises CorruptSegmentError."""
        segment, header = self._segment, batch.header
        check_batch(segment, batch, self._next_offset)
        segment.add_recovered_batch(batch.extent, batch.max_timestamp_ms)
        if header is not None:
            aborted = apply_to_producer(segment, batch, header, self._producer_state)
            if aborted is not None:
                segment.transaction_index.append(aborted)
            if header.partition_leader_epoch > self._leader_epochs.latest:
                self._leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._next_offset = batch.extent.last_offset + 1


def check_batch(segment: Segment, batch: StoredBatch, next_offset: int) -> None:
    """Check a whole batch that follows all offsets below `next_offset`. Raises CorruptSegmentError."""
    extent = batch.extent
    if extent.base_offset < next_offset or extent.last_offset < extent.base_offset:
        reason = f"offsets {extent.base_offset} to {extent.last_offset}, expected {next_offset} or later"
    elif extent.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        reason = f"offset {extent.last_offset} is too far from the base offset {segment.base_offset}"
    elif not batch.is_crc_valid:
        reason = "the CRC is wrong"
    else:
        return
    raise CorruptSegmentError(segment.path, extent.position, reason)
