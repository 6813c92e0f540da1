"""The wire format of Protocol Buffers: fields of a message as their numbers and undecoded values.

Owns the format alone. Pure. Must not know any message.

A field is a varint `number << 3 | wire type`, then its value: a varint (0), 8 bytes (1), a length and so many bytes
(2), or 4 bytes (5). The groups of the wire types 3 and 4 are not supported.
"""

from collections.abc import Iterator

Value = int | bytes | memoryview
"""By wire type: a number (0), 8 bytes or 4 bytes (1, 5), or the bytes of a text, message or packed list (2)."""

_FIXED_SIZES = {1: 8, 5: 4}
_BITS_MAX = 64


def fields(data: memoryview) -> Iterator[tuple[int, int, Value]]:
    """Yield number, wire type and value of each field of a message. Raises ValueError for damaged bytes."""
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        value, position = _value(data, position, key & 7)
        yield key >> 3, key & 7, value


def _value(data: memoryview, position: int, wire_type: int) -> tuple[Value, int]:
    if wire_type == 0:
        return varint(data, position)
    if wire_type == 2:
        length, position = varint(data, position)
        if length > len(data) - position:
            raise ValueError("a field is cut off")
        return data[position : position + length], position + length
    size = _FIXED_SIZES.get(wire_type)
    if size is None or size > len(data) - position:
        raise ValueError(f"wire type {wire_type}")
    return bytes(data[position : position + size]), position + size


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned number and the position behind it. Raises ValueError."""
    value = shift = 0
    while True:
        if position >= len(data) or shift >= _BITS_MAX:
            raise ValueError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
