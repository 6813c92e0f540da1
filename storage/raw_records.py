"""Records of an opened batch as slices: what the cleaner has to know of each, and how some of them are written again.

Owns a second, narrower reader of the record layout (docs/formats/record-batch.md): `protocol.records` makes objects of
values and headers, which costs several times as much, and the cleaner looks at the key alone.

Invariant: a record that is written again differs from its bytes in length and timestamp delta only.
"""

from collections.abc import Iterable
from typing import TypeAlias

from protocol.errors import Malformed

_NULL = 1  # the varint of -1

RawRecord: TypeAlias = tuple[int, int, int, int, int, bytes | None, bool]
"""(start, rest, end, timestamp delta, offset delta, key, has a value). From `rest` on the bytes do not depend on the
base timestamp of the batch. A plain tuple: it is made for every record that is cleaned."""


def raw_records(plain: bytes) -> list[RawRecord]:
    """The records of a batch's plain bytes. Raises Malformed where they cannot be stepped over.

    One loop with the short cases of each varint in line: it decides how fast the cleaner is.
    """
    found: list[RawRecord] = []
    append = found.append
    position, size = 0, len(plain)
    try:
        while position < size:
            start = position
            low = plain[position]
            if low < 0x80:
                end = position + 1 + (low >> 1)
                position += 1
            else:
                high = plain[position + 1]
                if high < 0x80:
                    end = position + 2 + ((high << 7 | low & 0x7F) >> 1)
                    position += 2
                else:
                    length, position = _varint(plain, position)
                    end = position + length
            position += 1  # attributes
            timestamp_delta = plain[position]
            if timestamp_delta < 0x80:
                timestamp_delta = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
                position += 1
            else:
                timestamp_delta, position = _varint(plain, position)
            rest = position
            low = plain[position]
            if low < 0x80:
                offset_delta = low >> 1
                position += 1
            else:
                high = plain[position + 1]
                if high < 0x80:
                    offset_delta = (high << 7 | low & 0x7F) >> 1
                    position += 2
                else:
                    offset_delta, position = _varint(plain, position)
            length = plain[position]
            if length < 0x80:
                position += 1
                length = length >> 1 ^ -(length & 1)
            else:
                length, position = _varint(plain, position)
            if length < 0:
                key = None
            else:
                key = plain[position : position + length]
                position += length
            if not position < end <= size:
                raise Malformed(f"record of {end - start} bytes at {start} where {size - start} are left")
            append((start, rest, end, timestamp_delta, offset_delta, key, plain[position] != _NULL))
            position = end
    except IndexError:
        raise Malformed("records cut off") from None
    return found


def encode(plain: bytes, kept: Iterable[RawRecord], timestamp_shift: int) -> bytes:
    """The kept records one after the other, for a base timestamp that is lower by `timestamp_shift`."""
    if timestamp_shift == 0:
        return b"".join([plain[record[0] : record[2]] for record in kept])
    encoded = bytearray()
    for _, rest, end, timestamp_delta, _, _, _ in kept:
        timestamp = _encoded_varint(timestamp_delta + timestamp_shift)
        encoded += _encoded_varint(1 + len(timestamp) + end - rest)
        encoded.append(0)  # attributes
        encoded += timestamp
        encoded += plain[rest:end]
    return bytes(encoded)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it) of a zigzag varint."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position
        shift += 7


def _encoded_varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
