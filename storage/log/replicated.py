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


class ReplicatedAppend(NamedTuple):
    """The complete batches, from the start of the fetched bytes, that fit into one segment.

    The rest is for the next append: an incomplete last batch, and batches whose offset relative to the first exceeds an
    int32.
    """

    records: memoryview
    batches: list[StoredBatch]
    first_offset: int
    """A valid base offset of a segment that contains them."""
    last_offset: int
    largest: TimestampOffset


def check_replicated(
    records: memoryview, *, next_offset: int, epochs: tuple[int, int] | None = None
) -> ReplicatedAppend:
    """Check the batches in `records`, which must continue a log at `next_offset`.

    `epochs` are the log's latest epoch and the leader's present one; the epochs of the batches must not fall below the
    first, nor from batch to batch, and not exceed the second. Batches of old formats have no epoch.

    Raises:
        KafkaError: CORRUPT_MESSAGE for a damaged batch or an impossible epoch, OFFSET_OUT_OF_RANGE for offsets that do
            not increase.
    """
    oldest, newest = (NO_EPOCH, EPOCH_MAX) if epochs is None else epochs
    batches: list[StoredBatch] = []
    position = 0
    largest = TimestampOffset(NO_TIMESTAMP, next_offset)
    first_offset = next_offset
    while (batch := _batch_at(records, position)) is not None:
        extent = batch.extent
        if extent.base_offset < next_offset or extent.last_offset < extent.base_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offsets {extent.base_offset} to {extent.last_offset} from the leader, expected {next_offset} on",
            )
        if not batch.is_crc_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch of offset {extent.base_offset} has a wrong CRC")
        if epochs is not None and batch.leader_epoch != NO_EPOCH:
            if not oldest <= batch.leader_epoch <= newest:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The batch of offset {extent.base_offset} has the leader epoch {batch.leader_epoch}, "
                    f"expected {oldest} to {newest}",
                )
            oldest = batch.leader_epoch
        if not batches:
            first_offset = extent.base_offset if batch.header is not None else _first_offset_of_old(extent, next_offset)
        if extent.last_offset - first_offset > RELATIVE_OFFSET_MAX:
            break
        if batch.max_timestamp_ms > largest.timestamp_ms:
            largest = TimestampOffset(batch.max_timestamp_ms, extent.last_offset)
        batches.append(batch)
        next_offset = extent.last_offset + 1
        position = extent.end
    return ReplicatedAppend(records[:position], batches, first_offset, next_offset - 1, largest)


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
