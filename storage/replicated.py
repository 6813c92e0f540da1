"""What a follower accepts from its leader: the leader's bytes as they are, once they are known to be whole.

Owns the checks of length, CRC and order over a fetched run of batches. Pure. Offsets are the leader's and may have
gaps; limits of size are the leader's too, and are not asked again. Must not know who leads, or how bytes are fetched.
"""

import struct
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from storage.segment import RELATIVE_OFFSET_MAX
from storage.stored_batch import Extent, StoredBatch, batch_of, extent_at
from storage.time_index import NO_TIMESTAMP, TimestampOffset


class ReplicatedAppend(NamedTuple):
    """`records` are the whole batches of what was fetched that one segment can hold.

    Left out, for the next append, are an incomplete last one and what is too far from the first to be numbered with it.
    """

    records: memoryview
    batches: list[StoredBatch]
    first_offset: int
    """Where a segment may begin that holds them."""
    last_offset: int
    largest: TimestampOffset


def check_replicated(records: memoryview, *, next_offset: int) -> ReplicatedAppend:
    """Raises KafkaError: CORRUPT_MESSAGE for damage, OFFSET_OUT_OF_RANGE for offsets that do not rise."""
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


def _first_offset_of_old(extent: Extent, next_offset: int) -> int:
    """As far before the last one, which is all that is known of an old format's message, as a segment can begin."""
    return max(next_offset, extent.last_offset - RELATIVE_OFFSET_MAX)


def _batch_at(records: memoryview, position: int) -> StoredBatch | None:
    """None when no whole batch is left."""
    try:
        extent = extent_at(records, position, position)
    except struct.error:
        return None
    except ValueError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"From the leader, at byte {position}: {error}") from None
    return batch_of(extent, records[position : extent.end]) if extent.end <= len(records) else None
