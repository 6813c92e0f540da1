"""The records of an uncompressed batch as slices of bytes, as the cleaner reads and rewrites them.

Owns a second, narrower reader of the record layout (docs/formats/record-batch.md). The cleaner needs only the keys;
`protocol.records` also creates objects for values and headers, which costs many times as much. Each function is one
loop with inline code for short varints, because these loops determine the speed of the cleaner. Must not know which
records are kept.

The fields of a record, of which all lengths and deltas are varints:

    | length | attributes | timestamp delta | offset delta | key length | key | value length | value | headers |
    |        |<------------------------------------- length ------------------------------------------------->|

Invariant: a rewritten record differs from the original only in its length and its timestamp delta.
"""

from typing import NamedTuple

from protocol.errors import Malformed

_NULL = 1  # the varint of -1


class Keys(NamedTuple):
    """The keys of a batch, None for a record without one, and the numbers of the records without a value."""

    keys: list[bytes | None]
    tombstones: list[int]


class Rebased(NamedTuple):
    """Records for another base timestamp, and the greatest of their timestamp deltas before that."""

    content: bytes
    timestamp_delta_max: int


def read_keys(plain: bytes, count: int) -> Keys:
    """Return the keys of the `count` records in `plain`. Raises Malformed if it does not contain exactly these.

    Invariant at the top of the loop: `end` is the start of record `number`. Within it, `position` moves over the
    fields up to the value length, which must be below the record's end.
    """
    keys: list[bytes | None] = []
    tombstones: list[int] = []
    append = keys.append
    end, size = 0, len(plain)
    try:
        for number in range(count):
            position = end
            low = plain[position]
            if low < 0x80:
                end = position + 1 + (low >> 1)
                position += 2  # the attributes too
            elif (high := plain[position + 1]) < 0x80:
                end = position + 2 + (high << 6) + ((low & 0x7F) >> 1)
                position += 3
            else:
                length, position = _varint(plain, position)
                end = position + length
                position += 1
            for _ in _TIMESTAMP_AND_OFFSET_DELTA:
                if plain[position] < 0x80:
                    position += 1
                elif plain[position + 1] < 0x80:
                    position += 2
                else:
                    position = _varint(plain, position)[1]
            length = plain[position]
            if length < 0x80:
                length = length >> 1 ^ -(length & 1)
                position += 1
            else:
                length, position = _varint(plain, position)
            if length < 0:
                append(None)
            else:
                append(plain[position : position + length])
                position += length
            if plain[position] == _NULL:
                tombstones.append(number)
            if not position < end <= size:
                raise Malformed(f"record of {end - position} bytes at {position} where {size - position} are left")
    except IndexError:
        raise Malformed("records cut off") from None
    if end != size:
        raise Malformed(f"{size - end} bytes after the last of {count} records")
    return Keys(keys, tombstones)


def boundaries(plain: bytes, count: int) -> list[int]:
    """Return where each of `count` records begins, and the end of the last. Raises Malformed if it is not the end."""
    found: list[int] = []
    append = found.append
    position, size = 0, len(plain)
    try:
        for _ in range(count):
            append(position)
            low = plain[position]
            if low < 0x80:
                position += 1 + (low >> 1)
            elif (high := plain[position + 1]) < 0x80:
                position += 2 + (high << 6) + ((low & 0x7F) >> 1)
            else:
                length, position = _varint(plain, position)
                position += max(length, 0)
    except IndexError:
        raise Malformed("records cut off") from None
    if position != size:
        raise Malformed(f"{count} records end at byte {position} of {size}")
    append(position)
    return found


def timestamp_delta(record: bytes) -> int:
    """Return the timestamp delta of one complete record."""
    return _varint(record, _varint(record, 0)[1] + 1)[0]


def rebase(records: list[bytes], timestamp_shift: int) -> Rebased:
    """Return the concatenated complete records for a base timestamp that is lower by `timestamp_shift` ms."""
    rebased = records.copy()
    largest = timestamp_delta(records[0])
    for number, record in enumerate(records):
        position = 2 if record[0] < 0x80 else 3 if record[1] < 0x80 else _varint(record, 0)[1] + 1
        low = record[position]
        if low < 0x80:
            delta = low >> 1 ^ -(low & 1)
            rest = position + 1
        else:
            delta, rest = _varint(record, position)
        if delta > largest:
            largest = delta
        if timestamp_shift:
            timestamp = _encoded_varint(delta + timestamp_shift)
            if len(timestamp) == rest - position:
                rebased[number] = record[:position] + timestamp + record[rest:]
            else:
                length = _encoded_varint(1 + len(timestamp) + len(record) - rest)
                rebased[number] = length + record[position - 1 : position] + timestamp + record[rest:]
    return Rebased(b"".join(rebased), largest)


_TIMESTAMP_AND_OFFSET_DELTA = (None, None)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it) of a zigzag varint."""
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
    if rest < 0x80:
        return _ONE_BYTE[rest]
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))
