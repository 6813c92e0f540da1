"""Records of an opened batch as slices: what the cleaner has to know of each, and how some of them are written again.

Owns a second, narrower reader of the record layout (docs/formats/record-batch.md): `protocol.records` makes objects of
values and headers, which costs several times as much, and the cleaner looks at the key alone.

Invariant: a record that is written again differs from its bytes in length and timestamp delta only.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.errors import Malformed

_NULL = 1  # the varint of -1


class RawRecord(NamedTuple):
    """`start` to `end` are its bytes; from `rest` on they do not depend on the batch's base timestamp."""

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def raw_records(plain: bytes) -> Iterator[RawRecord]:
    """The records of a batch's plain bytes. Raises Malformed where they cannot be stepped over."""
    new = tuple.__new__
    position, size = 0, len(plain)
    try:
        while position < size:
            start = position
            length, position = _varint(plain, position)
            end = position + length
            timestamp_delta, rest = _varint(plain, position + 1)
            offset_delta, position = _varint(plain, rest)
            length, position = _varint(plain, position)
            if length < 0:
                key = None
            else:
                key = plain[position : position + length]
                position += length
            if not position < end <= size:
                raise Malformed(f"record of {end - start} bytes at {start} where {size - start} are left")
            yield new(RawRecord, (start, rest, end, timestamp_delta, offset_delta, key, plain[position] != _NULL))
            position = end
    except IndexError:
        raise Malformed("records cut off") from None


def encode(plain: bytes, kept: Iterable[RawRecord], timestamp_shift: int) -> bytes:
    """The kept records one after the other, for a base timestamp that is lower by `timestamp_shift`."""
    if timestamp_shift == 0:
        return b"".join([plain[record.start : record.end] for record in kept])
    encoded = bytearray()
    for record in kept:
        timestamp_delta = _encoded_varint(record.timestamp_delta + timestamp_shift)
        encoded += _encoded_varint(1 + len(timestamp_delta) + record.end - record.rest)
        encoded.append(0)  # attributes
        encoded += timestamp_delta
        encoded += plain[record.rest : record.end]
    return bytes(encoded)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it) of a zigzag varint."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7


def _encoded_varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
