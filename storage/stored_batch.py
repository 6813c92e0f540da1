"""Batches as they lie in a log file or come from a leader, of any format that may be met there.

Owns what magic 0, 1 and 2 have in common: where a batch ends, which offsets it covers, its greatest timestamp, whether
its CRC is right. Must not know what is inside, nor where the bytes come from.
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

_PREFIX: Final = struct.Struct(">qi4xb")  # base_offset, batch_length, magic: at the same place in all three
HEADER_START: Final = struct.Struct(">qi4xb6xi")
"""Of magic 2 alone: base offset, batch length, magic and last offset delta."""
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23
_LENGTH_MIN: Final = {0: 14, 1: 22, 2: 49}

_TIMESTAMP_POSITIONS: Final = {1: 18, MAGIC: MAX_TIMESTAMP_POSITION}


class Extent(NamedTuple):
    """Where a batch, or a message of an old format, lies: all that is needed to step over it.

    A message of an old format carries the offset of its last record only; that stands for its base offset too.
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
        """Where its greatest timestamp stands; None for magic 0, which has none."""
        within = _TIMESTAMP_POSITIONS.get(self.magic)
        return None if within is None else self.position + within


class StoredBatch(NamedTuple):
    """`view` is the whole batch, `header` is None for a message of an old format."""

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


_new = tuple.__new__  # half the time of calling the class, and this is called for every batch that is stepped over


def extent_at(buffer: bytes | bytearray | memoryview, index: int, position: int) -> Extent:
    """The batch whose first bytes stand at `index` of the buffer and at `position` of the log file.

    Raises struct.error when too few bytes are there to tell, ValueError when they cannot be a batch.
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
