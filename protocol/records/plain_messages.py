"""Loops over plain messages of magic 0 and 1: those of a set without a codec, or what a wrapper opens to.

Owns the layout of such a message in both directions (docs/formats/message-set.md):

    offset | size | crc | magic | attributes | timestamp | key length | key | value length | value
       8      4      4      1         1       8, magic 1      4                    4
                  |<------------------------------- size ------------------------------------->|
                        |<------------------------ checked by crc ---------------------------->|

Must not know wrappers, pieces, nor what the messages are for. `plain_messages.pxd` beside this file declares the C
types with which it is compiled; both forms do the same.

Invariant: no byte at or behind the end is read.
"""

import struct
from collections.abc import Sequence
from zlib import crc32

from protocol.records.pieces import Chunks
from protocol.records.plain_records import READ_SIZE

Message = tuple[int, int, bytes | Chunks | None, bytes | Chunks | None, Sequence[tuple[str, bytes | None]]]
"""Offset, timestamp, key, value, and no headers: the fields of a `protocol.records.batch.Record`.

In a wrapper the offset may count from the first message's. Only other readers use Chunks.
"""

# magic, attributes, (timestamp), length of the key
_START = {0: struct.Struct(">bbi"), 1: struct.Struct(">bbqi")}
_LENGTH = struct.Struct(">i")
_ENTRY = struct.Struct(">qiI")


def read_messages(
    content: bytes, position: int, magic: int, has_append_time: bool, append_time: int
) -> tuple[list[Message], int, int, int, bool]:
    """Read the messages at `position`, and no more once they have `READ_SIZE` bytes.

    With `has_append_time` all have that timestamp, else those of magic 0 have -1. Reading stops before a message that
    is damaged, not whole, larger than `READ_SIZE`, of another magic, or compressed.

    Returns:
        The messages, the position after them, the size of the largest, the attributes of all combined by `or`, and
        whether one has no timestamp.
    """
    end = len(content)
    read_end = position + READ_SIZE
    size_max = READ_SIZE
    key_position = 26 if magic else 18
    messages: list[Message] = []
    largest_size = attributes = 0
    lacks_timestamp = False
    timestamp = append_time if has_append_time else -1
    while position < read_end and end - position >= key_position + 8:
        size = 12 + _int32(content, position + 8)
        if not key_position + 8 <= size <= end - position or size > size_max:
            break
        message_end = position + size
        if content[position + 16] != magic or content[position + 17] & 0b111:
            break
        key_at = position + key_position + 4
        key_size = _int32(content, key_at - 4)
        if not -1 <= key_size <= message_end - key_at - 4:
            break
        value_at = key_at + 4 if key_size < 0 else key_at + key_size + 4
        value_size = _int32(content, value_at - 4)
        if not value_size >= -1 or (value_at if value_size < 0 else value_at + value_size) != message_end:
            break
        if crc32(content[position + 16 : message_end]) != _uint32(content, position + 12):
            break
        if magic and not has_append_time:
            timestamp = _int64(content, position + 18)
        messages.append(
            (
                _int64(content, position),
                timestamp,
                None if key_size < 0 else content[key_at : key_at + key_size],
                None if value_size < 0 else content[value_at:message_end],
                (),
            )
        )
        if size > largest_size:
            largest_size = size
        if timestamp == -1:
            lacks_timestamp = True
        attributes |= content[position + 17]
        position = message_end
    return messages, position, largest_size, attributes, lacks_timestamp


def _uint32(data: bytes, at: int) -> int:
    high, low = data[at] << 8 | data[at + 1], data[at + 2] << 8 | data[at + 3]
    return high << 16 | low


def _int32(data: bytes, at: int) -> int:
    value = _uint32(data, at)
    return value if value < 0x80000000 else value - 0x100000000


def _int64(data: bytes, at: int) -> int:
    return _int32(data, at) * 0x100000000 + _uint32(data, at + 4)


def write_message(
    target: bytearray, offset: int, timestamp: int, key: bytes | None, value: bytes | None, magic: int, attributes: int
) -> None:
    """Append one message."""
    key_size = -1 if key is None else len(key)
    start = (
        _START[1].pack(magic, attributes, timestamp, key_size) if magic else _START[0].pack(magic, attributes, key_size)
    )
    length = _LENGTH.pack(-1 if value is None else len(value))
    body = b"".join((start, key or b"", length, value or b""))
    target += _ENTRY.pack(offset, 4 + len(body), crc32(body))
    target += body
