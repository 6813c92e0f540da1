"""Scanning log files batch by batch: what is good, where it ends, and everything that can be derived from it.

Owns the checks and rebuilds that follow an unclean stop or a lost index. Must not know directories, checkpoints or
which segments a log keeps. Corruption is reported with path, position and reason; the caller cuts.

Invariant: nothing counts as good that did not pass the checks of length, CRC and order, and everything before the first
bad byte does.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import NO_PRODUCER_ID, BatchHeader
from storage.leader_epochs import LeaderEpochs
from storage.producer_state import ProducerState, marker_in
from storage.segment import RELATIVE_OFFSET_MAX, CorruptSegmentError, Segment
from storage.stored_batch import Extent, StoredBatch, batch_of, extent_at
from storage.transaction_index import AbortedTransaction

CHUNK_SIZE: Final = 1024 * 1024


class Scan(NamedTuple):
    """How far a segment is good. `damage` is None when that is to its end."""

    end_position: int
    next_offset: int
    damage: CorruptSegmentError | None


def stored_batches(segment: Segment, position: int, end: int) -> Iterator[StoredBatch]:
    """The batches between two positions, read in large pieces. No more of them is checked than where they end.

    Raises CorruptSegmentError at the first that cannot be one.
    """
    size_wanted = CHUNK_SIZE
    while position < end:
        chunk = segment.read(position, min(size_wanted, end - position))
        index = 0
        size_wanted = CHUNK_SIZE
        while (extent := _extent_in(segment, chunk, index, position + index, end)) is not None:
            if index + extent.size > len(chunk):
                size_wanted = max(CHUNK_SIZE, extent.size)
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
    """Checks every batch of a segment and rebuilds its indexes, and the epochs and producer state at its end.

    `producer_state` must be the state at the segment's base offset. The file itself is left as it is.
    """
    segment.reset_indexes()
    position, next_offset = 0, segment.base_offset
    try:
        for batch in stored_batches(segment, 0, segment.size):
            _check(segment, batch, next_offset)
            segment.add_recovered_batch(batch.extent, batch.max_timestamp_ms)
            if batch.header is not None:
                _take_in(segment, batch, batch.header, producer_state, leader_epochs)
            position, next_offset = batch.extent.end, batch.extent.last_offset + 1
            on_bytes(batch.extent.size)
    except CorruptSegmentError as damage:
        return Scan(position, next_offset, damage)
    return Scan(position, next_offset, None)


def replay(segments: Sequence[Segment], producer_state: ProducerState, end_offset: int) -> None:
    """Brings `producer_state` from where it stands to `end_offset`. Batches are trusted. Raises CorruptSegmentError."""
    for segment in segments:
        start = segment.find(max(producer_state.map_end_offset, segment.base_offset))
        if start is None:
            continue
        for batch in stored_batches(segment, start.position, segment.size):
            if batch.extent.base_offset >= end_offset:
                break
            if batch.header is not None:
                take_in_producer(segment, batch, batch.header, producer_state)
    producer_state.map_end_offset = max(producer_state.map_end_offset, end_offset)


def leader_epochs_in(segments: Sequence[Segment], leader_epochs: LeaderEpochs) -> None:
    """Rebuilds the epochs from the batches, each of which carries its own. Raises CorruptSegmentError."""
    for segment in segments:
        for batch in stored_batches(segment, 0, segment.size):
            if batch.header is not None and batch.header.partition_leader_epoch > leader_epochs.latest:
                leader_epochs.assign(batch.header.partition_leader_epoch, batch.header.base_offset)


def take_in_producer(
    segment: Segment, batch: StoredBatch, header: BatchHeader, producer_state: ProducerState
) -> AbortedTransaction | None:
    """The entry for the transaction index, when the batch is a marker that aborts something."""
    if header.producer_id == NO_PRODUCER_ID:
        return None
    try:
        marker = marker_in(batch.view, 0, header) if header.is_control else None
    except Malformed as error:
        raise CorruptSegmentError(segment.path, batch.extent.position, f"control record: {error}") from None
    return producer_state.append(header, header.base_offset, marker)


def _take_in(
    segment: Segment,
    batch: StoredBatch,
    header: BatchHeader,
    producer_state: ProducerState,
    leader_epochs: LeaderEpochs,
) -> None:
    aborted = take_in_producer(segment, batch, header, producer_state)
    if aborted is not None:
        segment.transaction_index.append(aborted)
    if header.partition_leader_epoch > leader_epochs.latest:
        leader_epochs.assign(header.partition_leader_epoch, header.base_offset)


def _extent_in(segment: Segment, chunk: memoryview, index: int, position: int, end: int) -> Extent | None:
    """The batch at `index`; None when the chunk ends before that can be told."""
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


def _check(segment: Segment, batch: StoredBatch, next_offset: int) -> None:
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
