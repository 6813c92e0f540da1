"""Batches in a log file or from a leader, of any format: magic 0, 1 or 2.

Owns what the formats have in common: where a batch ends, which offsets it covers, its greatest timestamp, and whether
its CRC is valid. Must not know the records in a batch, nor where the bytes come from.
"""

import struct
from typing import Final, NamedTuple

from protocol.records.batch import (
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    NO_LEADER_EPOCH,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from protocol.records.legacy import message_crc_is_valid, read_message_header

_PREFIX: Final = struct.Struct(">qi4xb")  # base_offset, batch_length, magic: at the same position in all three
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23
_LENGTH_MIN: Final = {0: 14, 1: 22, 2: 49}

_TIMESTAMP_POSITIONS: Final = {1: 18, MAGIC: MAX_TIMESTAMP_POSITION}


class Extent(NamedTuple):
    """The position and the offsets of a batch, or of a message of an old format.

    A message of an old format contains only the offset of its last record, which is also used as its base offset.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def timestamp_position(self) -> int | None:
        """The position of its greatest timestamp; None for magic 0, which has none."""
        within = _TIMESTAMP_POSITIONS.get(self.magic)
        return None if within is None else self.position + within


class StoredBatch(NamedTuple):
    """A complete batch in `view`; `header` is None for a message of an old format."""

    extent: Extent
    view: memoryview
    header: BatchHeader | None

    @property
    def max_timestamp_ms(self) -> int:
        if self.header is not None:
            return self.header.max_timestamp
        return read_message_header(self.view).timestamp

    @property
    def leader_epoch(self) -> int:
        return NO_LEADER_EPOCH if self.header is None else self.header.partition_leader_epoch

    @property
    def is_crc_valid(self) -> bool:
        if self.header is not None:
            return crc_is_valid(self.view, 0, self.header)
        return message_crc_is_valid(self.view, 0, read_message_header(self.view))


_new = tuple.__new__  # half the time of calling the class, and a scan calls it for every batch


def extent_at(buffer: bytes | bytearray | memoryview, index: int, position: int) -> Extent:
    """Return the extent of the batch that begins at `index` of the buffer and at `position` of the log file.

    Raises struct.error if the buffer ends within the first fields, ValueError if the bytes are no batch.
    """
    base_offset, length, magic = _PREFIX.unpack_from(buffer, index)
    length_min = _LENGTH_MIN.get(magic)
    if length_min is None or length < length_min:
        raise ValueError(f"magic {magic} and length {length} are no batch")
    last_offset = base_offset
    if magic == MAGIC:
        last_offset += _LAST_OFFSET_DELTA.unpack_from(buffer, index + _LAST_OFFSET_DELTA_POSITION)[0]
    return _new(Extent, (position, LOG_OVERHEAD + length, base_offset, last_offset, magic))


def batch_of(extent: Extent, view: memoryview) -> StoredBatch:
    return StoredBatch(extent, view, read_header(view) if extent.magic == MAGIC else None)


def timestamp_at(buffer: bytes | bytearray | memoryview, index: int) -> int:
    timestamp_ms: int = MAX_TIMESTAMP.unpack_from(buffer, index)[0]
    return timestamp_ms
