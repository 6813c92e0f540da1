"""The follower's validation of the batches that it fetched from its leader; it appends them unchanged.

Owns the checks of length, CRC and order. Pure. The leader has assigned the offsets, which may have gaps, and has
checked the sizes, which are not checked again. Must not know which broker leads, or how bytes are fetched.
"""

import struct
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import LOG_OVERHEAD
from storage.batches.stored_batch import Extent, StoredBatch, batch_of, extent_at
from storage.segments.leader_epochs import NO_EPOCH
from storage.segments.segment import RELATIVE_OFFSET_MAX
from storage.segments.time_index import NO_TIMESTAMP, TimestampOffset

EPOCH_MAX: Final = 2**31 - 1
PIECE_BATCHES: Final = 1_000
"""How many batches are appended before other work gets its turn: those of one record take 6 to 7 ms."""

_START = struct.Struct(">qi")  # base offset and length, of every format


class ReplicatedRun(NamedTuple):
    """Consecutive batches of one leader epoch, which are written together."""

    records: memoryview
    batches: list[StoredBatch]
    first_offset: int
    """A valid base offset of a segment that contains them."""
    last_offset: int
    largest: TimestampOffset
    leader_epoch: int
    """The latest epoch up to these batches. Batches of old formats, which have no epoch, begin no run."""


def check_replicated(
    records: memoryview, *, next_offset: int, epochs: tuple[int, int] | None = None
) -> list[ReplicatedRun]:
    """Check the batches in `records`, which must continue a log at `next_offset`; return them in runs of one epoch.

    `epochs` are the log's latest epoch and the leader's present one; the epochs of the batches must not fall below the
    first, nor from batch to batch, and not exceed the second. Batches of old formats have no epoch.

    The complete batches that fit into one segment are returned. The rest is for the next append: an incomplete last
    batch, and batches whose offset relative to the first exceeds an int32.

    Raises:
        KafkaError: CORRUPT_MESSAGE for a damaged batch or an impossible epoch, OFFSET_OUT_OF_RANGE for offsets that do
            not increase.
    """
    latest, newest = (NO_EPOCH, EPOCH_MAX) if epochs is None else epochs
    runs: list[ReplicatedRun] = []
    begun: list[StoredBatch] = []  # the batches of the last run
    position = 0
    first_offset = begun_at = next_offset
    while (batch := _batch_at(records, position)) is not None:
        extent = batch.extent
        if extent.base_offset < next_offset or extent.last_offset < extent.base_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offsets {extent.base_offset} to {extent.last_offset} from the leader, expected {next_offset} on",
            )
        if not batch.is_crc_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch of offset {extent.base_offset} has a wrong CRC")
        epoch = batch.leader_epoch
        if epochs is not None and epoch != NO_EPOCH and not latest <= epoch <= newest:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch of offset {extent.base_offset} has the leader epoch {epoch}, expected {latest} to {newest}",
            )
        if not position:
            first_offset = begun_at = (
                extent.base_offset if batch.header is not None else _first_offset_of_old(extent, next_offset)
            )
        if extent.last_offset - first_offset > RELATIVE_OFFSET_MAX:
            break
        if epoch > latest:
            if begun:
                runs.append(_run_of(records, begun, begun_at, latest))
            latest, begun, begun_at = epoch, [], extent.base_offset
        begun.append(batch)
        next_offset = extent.last_offset + 1
        position = extent.end
    if begun:
        runs.append(_run_of(records, begun, begun_at, latest))
    return runs


def _run_of(records: memoryview, batches: list[StoredBatch], first_offset: int, leader_epoch: int) -> ReplicatedRun:
    largest = TimestampOffset(NO_TIMESTAMP, first_offset)
    for batch in batches:
        if (max_timestamp_ms := batch.max_timestamp_ms) > largest.timestamp_ms:
            largest = TimestampOffset(max_timestamp_ms, batch.extent.last_offset)
    start, last = batches[0].extent, batches[-1].extent
    return ReplicatedRun(
        records[start.position : last.end], batches, first_offset, last.last_offset, largest, leader_epoch
    )


def end_of_piece(records: memoryview, position: int) -> int:
    """Return where at most `PIECE_BATCHES` batches from `position` on end; beyond the bytes for an incomplete one."""
    count = 0
    while count < PIECE_BATCHES and position + LOG_OVERHEAD <= len(records):
        _, length = _START.unpack_from(records, position)
        position += LOG_OVERHEAD + max(length, 0)
        count += 1
    return position if count == PIECE_BATCHES else len(records)


def start_of_rest(records: memoryview, position: int, next_offset: int) -> int:
    """Return where the batches from `next_offset` on start, which is not before `position`."""
    while position + LOG_OVERHEAD <= len(records):
        base_offset, length = _START.unpack_from(records, position)
        if base_offset >= next_offset:
            break
        position += LOG_OVERHEAD + max(length, 0)
    return position


def _first_offset_of_old(extent: Extent, next_offset: int) -> int:
    """Return the lowest base offset of a segment for a message of an old format, whose first offset is unknown."""
    return max(next_offset, extent.last_offset - RELATIVE_OFFSET_MAX)


def _batch_at(records: memoryview, position: int) -> StoredBatch | None:
    """Return the batch at `position`, None if it is incomplete. Raises KafkaError: CORRUPT_MESSAGE."""
    try:
        extent = extent_at(records, position, position)
    except struct.error:
        return None
    except ValueError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"From the leader, at byte {position}: {error}") from None
    return batch_of(extent, records[position : extent.end]) if extent.end <= len(records) else None
