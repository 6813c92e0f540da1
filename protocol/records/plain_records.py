"""Loops over plain records: those of a batch that is not compressed, or what a compressed one opens to.

Owns the layout of a record, in which every length, count and delta is a zigzag varint (docs/formats/record-batch.md):

    length | attributes (1 byte) | timestamp delta | offset delta | key length, key | value length, value | headers
           |<------------------------------------------- length -------------------------------------------------->|

Must not know what the records are for, and creates no object for one. `plain_records.pxd` beside this file declares the
C types with which it is compiled; both forms do the same.

Invariant: no byte at or behind the given end is read. A varint that is cut off or too large ends behind it, and so does
every field after that, so one comparison at the end of a record finds all such damage.
"""

from protocol.records.compression import Buffer

# One byte each: length, attributes, timestamp delta, offset delta, key length, value length, headers count.
RECORD_SIZE_MIN = 7

# The sum of two such values fits int64.
TIMESTAMP_DELTA_MAX = 1 << 62

ANY_NUMBER = (1 << 62) - 1
"""A limit of headers that no batch reaches."""


def varint(data: Buffer, position: int, end: int, bits: int) -> tuple[int, int]:
    """Return the value of a zigzag varint and the position after it; (0, end + 1) if it is cut off or too large."""
    if position < end and data[position] < 0x80:
        return data[position] >> 1 ^ -(data[position] & 1), position + 1
    value = 0
    for shift in range(0, bits, 7):
        if position >= end:
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift + 7 > bits and byte >> (bits - shift):
                break
            return value >> 1 ^ -(value & 1), position
    return 0, end + 1


def pass_regular(
    data: Buffer, position: int, number: int, count: int, headers_max: int, needs_keys: bool
) -> tuple[int, int, int]:
    """Pass the records from `number` at `position` to before `count`, as long as they are whole and regular.

    A record is regular if each field ends where the length of the record says, its offset delta is its number, its
    timestamp delta is within 2^62, and with `needs_keys` it has a key.

    Returns:
        Position and number of the first record that is not passed, and how many headers were met. More than
        `headers_max` are not read: then their record is the one that is not passed.
    """
    end = len(data)
    size_min, delta_max = RECORD_SIZE_MIN - 1, TIMESTAMP_DELTA_MAX
    headers_met = 0
    while number < count:
        size, at = varint(data, position, end, 32)
        record_end = at + size
        if size < size_min or record_end > end:
            break
        timestamp_delta, at = varint(data, at + 1, record_end, 64)
        offset_delta, at = varint(data, at, record_end, 32)
        if offset_delta != number:
            break
        size, at = varint(data, at, record_end, 32)
        if size > 0:
            at += size
        elif size < 0 and needs_keys:
            break
        size, at = varint(data, at, record_end, 32)
        if size > 0:
            at += size
        headers, at = varint(data, at, record_end, 32)
        if headers:
            if not 0 < headers <= record_end - at:  # a header has two bytes at least
                break
            headers_met += headers
            if headers_met > headers_max:
                break
            at = _headers_end(data, at, record_end, headers)
        if at != record_end or not -delta_max <= timestamp_delta <= delta_max:
            break
        position = record_end
        number += 1
    return position, number, headers_met


def _headers_end(data: Buffer, position: int, end: int, count: int) -> int:
    """Return the position after `count` headers, or one behind `end` if they are damaged."""
    for _ in range(count):
        size, position = varint(data, position, end, 32)
        if size < 0:
            return end + 1
        size, position = varint(data, position + size, end, 32)
        if size > 0:
            position += size
        if position > end:
            break
    return position


def timestamp_deltas(data: Buffer, count: int) -> tuple[int, int]:
    """Return the smallest and the largest timestamp delta of `count` records that are regular."""
    earliest, latest = TIMESTAMP_DELTA_MAX, -TIMESTAMP_DELTA_MAX
    end = len(data)
    position = 0
    for _ in range(count):
        size, position = varint(data, position, end, 32)
        delta, _ = varint(data, position + 1, end, 64)
        if delta < earliest:
            earliest = delta
        if delta > latest:
            latest = delta
        position += size
    return earliest, latest
