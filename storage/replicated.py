"""What a follower accepts from its leader: the leader's bytes as they are, once they are known to be whole.

Owns the checks of length, CRC and order over a fetched run of batches. Pure. Offsets are the leader's and may have
gaps; limits of size are the leader's too, and are not asked again. Must not know who leads, or how bytes are fetched.
"""

import struct
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from storage.stored_batch import StoredBatch, batch_of, extent_at
from storage.time_index import NO_TIMESTAMP, TimestampOffset


class ReplicatedAppend(NamedTuple):
    """`records` are the whole batches of what was fetched; an incomplete last one is left out."""

    records: memoryview
    batches: list[StoredBatch]
    last_offset: int
    largest: TimestampOffset


def check_replicated(records: memoryview, *, next_offset: int) -> ReplicatedAppend:
    """Raises KafkaError: CORRUPT_MESSAGE for damage, OFFSET_OUT_OF_RANGE for offsets that do not rise."""
    batches: list[StoredBatch] = []
    position = 0
    largest = TimestampOffset(NO_TIMESTAMP, next_offset)
    while (batch := _batch_at(records, position)) is not None:
        extent = batch.extent
        if extent.base_offset < next_offset or extent.last_offset < extent.base_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offsets {extent.base_offset} to {extent.last_offset} from the leader, expected {next_offset} on",
            )
        if not batch.is_crc_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch of offset {extent.base_offset} has a wrong CRC")
        if batch.max_timestamp_ms > largest.timestamp_ms:
            largest = TimestampOffset(batch.max_timestamp_ms, extent.last_offset)
        batches.append(batch)
        next_offset = extent.last_offset + 1
        position = extent.end
    return ReplicatedAppend(records[:position], batches, next_offset - 1, largest)


def _batch_at(records: memoryview, position: int) -> StoredBatch | None:
    """None when no whole batch is left."""
    try:
        extent = extent_at(records, position, position)
    except struct.error:
        return None
    except ValueError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"From the leader, at byte {position}: {error}") from None
    return batch_of(extent, records[position : extent.end]) if extent.end <= len(records) else None
