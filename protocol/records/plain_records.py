"""Loops over plain records: those of a batch that is not compressed, or what a compressed one opens to.

Owns the layout of a record in both directions. Every length, count and delta is a zigzag varint
(docs/formats/record-batch.md):

    length | attributes (1 byte) | timestamp delta | offset delta | key length, key | value length, value | headers
           |<------------------------------------------- length -------------------------------------------------->|

Must not know batches, pieces, nor what the records are for. `plain_records.pxd` beside this file declares the C types
with which it is compiled; both forms do the same.

Invariant: no byte at or behind the given end is read. A varint that is cut off or too large ends behind it, and so does
every field after that, so one comparison at the end of a record finds all such damage.
"""

from collections.abc import Iterable, Sequence

from protocol.errors import Malformed
from protocol.records.compression import PIECE_SIZE, Buffer

# One byte each: length, attributes, timestamp delta, offset delta, key length, value length, headers count.
RECORD_SIZE_MIN = 7

# The sum of two such values fits int64.
TIMESTAMP_DELTA_MAX = 1 << 62

# How many bytes of records are read into objects at a time, and not many more.
READ_SIZE = 1 << 16

ANY_NUMBER = (1 << 62) - 1
"""A limit of headers that no batch reaches."""

NumberedRecord = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""The fields of a `protocol.records.batch.Record`: offset, timestamp, key, value, headers."""

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

RecordBounds = tuple[int, int, int, int, int, int, int, int, int, int]
"""Where the fields of a record are:

    end of the record,
    timestamp delta, position after it,
    offset delta,
    position and size of the key, which is null if the size is below 0,
    position and size of the value, the same,
    position of the first header, number of headers
"""


# --- reading ----------------------------------------------------------------------------------------------------------


def varint(data: Buffer, position: int, end: int, bits: int) -> tuple[int, int]:
    """Return the value of a zigzag varint and the position after it; (0, end + 1) if it is cut off or too large."""
    if position < end:
        byte = data[position]
        if byte < 0x80:
            return byte >> 1 ^ -(byte & 1), position + 1
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


def record_at(data: Buffer, position: int, end: int, headers_max: int) -> RecordBounds:
    """Return where the fields of the record at `position` are.

    Only `pass_regular`, which runs for every batch of a producer, does not use it: that is a quarter faster.

    The end of the result is -1 if a field does not end where the length says, or if there are more than `headers_max`
    headers, which are not read then.
    """
    size, at = varint(data, position, end, 32)
    record_end = at + size
    if size < 6 or record_end > end:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    timestamp_delta, timestamp_end = varint(data, at + 1, record_end, 64)  # no bit of the attributes has a meaning
    offset_delta, at = varint(data, timestamp_end, record_end, 32)
    key_size, key_at = varint(data, at, record_end, 32)
    at = key_at + key_size if key_size > 0 else key_at
    value_size, value_at = varint(data, at, record_end, 32)
    at = value_at + value_size if value_size > 0 else value_at
    headers_count, headers_at = varint(data, at, record_end, 32)
    if not 0 <= headers_count <= record_end - headers_at:  # a header has two bytes at least
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at, left = headers_at, headers_count
    if left and left <= headers_max:
        at, left = pass_headers(data, at, record_end, left)
    if left or at != record_end:
        record_end = -1
    return (
        record_end,
        timestamp_delta,
        timestamp_end,
        offset_delta,
        key_at,
        key_size,
        value_at,
        value_size,
        headers_at,
        headers_count,
    )


def pass_headers(data: Buffer, position: int, end: int, count: int) -> tuple[int, int]:
    """Pass `count` headers, as long as they are whole before `end`; return the position and how many are left."""
    while count > 0:
        size, at = varint(data, position, end, 32)
        if size < 0:
            break
        size, at = varint(data, at + size, end, 32)
        if size > 0:
            at += size
        if at > end:
            break
        position = at
        count -= 1
    return position, count


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
        left, at = varint(data, at, record_end, 32)
        if left:
            if not 0 < left <= record_end - at:  # a header has two bytes at least
                break
            headers_met += left
            if headers_met > headers_max:
                break
            at, left = pass_headers(data, at, record_end, left)
        if left or at != record_end or not -delta_max <= timestamp_delta <= delta_max:
            break
        position = record_end
        number += 1
    return position, number, headers_met


def timestamp_deltas(data: Buffer, count: int) -> tuple[int, int]:
    """Return the smallest and the largest timestamp delta of `count` records that are regular."""
    earliest, latest = TIMESTAMP_DELTA_MAX, -TIMESTAMP_DELTA_MAX
    end = len(data)
    position = 0
    for _ in range(count):
        size, position = varint(data, position, end, 32)
        if size < 0:
            break
        delta, _ = varint(data, position + 1, end, 64)
        if delta < earliest:
            earliest = delta
        if delta > latest:
            latest = delta
        position += size
    return earliest, latest


def read_records(
    content: bytes,
    position: int,
    count: int,
    headers_max: int,
    base_offset: int,
    base_timestamp: int,
    is_append_time: bool,
    has_fields: bool,
    has_headers: bool,
) -> tuple[list[NumberedRecord], int, int]:
    """Read the records at `position`, at most `count`, and no more once they have `READ_SIZE` bytes.

    With `is_append_time` all have the base timestamp. Without `has_fields`, keys and values that are not null are
    empty; without `has_headers`, lists of headers are.

    Returns:
        The records, the position after them, and how many headers were met. Reading stops before a record that is
        damaged or not whole, has a timestamp outside int64, or with which there are more than `headers_max` headers.
    """
    data = content
    end = len(content)
    read_end = position + READ_SIZE
    lowest, highest = INT64_MIN, INT64_MAX
    if base_timestamp > 0:
        highest -= base_timestamp
    else:
        lowest -= base_timestamp
    headers_met = 0
    records: list[NumberedRecord] = []
    key: bytes | None
    value: bytes | None
    while count > 0 and position < read_end:
        (
            record_end,
            timestamp_delta,
            _,
            offset_delta,
            key_at,
            key_size,
            value_at,
            value_size,
            headers_at,
            headers_count,
        ) = record_at(data, position, end, headers_max - headers_met)
        if record_end < 0:
            break
        timestamp = base_timestamp
        if not is_append_time:
            if not lowest <= timestamp_delta <= highest:
                break
            timestamp += timestamp_delta
        key = value = b""
        if key_size < 0:
            key = None
        elif has_fields:
            key = content[key_at : key_at + key_size]
        if value_size < 0:
            value = None
        elif has_fields:
            value = content[value_at : value_at + value_size]
        headers = []
        if headers_count and has_headers:
            headers = _headers(content, data, headers_at, record_end, headers_count)
        records.append((base_offset + offset_delta, timestamp, key, value, headers))
        headers_met += headers_count
        position = record_end
        count -= 1
    return records, position, headers_met


def _headers(content: bytes, data: Buffer, position: int, end: int, count: int) -> list[tuple[str, bytes | None]]:
    """Return `count` headers that are whole."""
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = varint(data, position, end, 32)
        key = content[position : position + size].decode("utf-8", "surrogateescape")
        size, position = varint(data, position + size, end, 32)
        if size < 0:
            headers.append((key, None))
        else:
            headers.append((key, content[position : position + size]))
            position += size
    return headers


def read_keys(content: bytes, count: int) -> tuple[list[bytes | None], list[int]]:
    """Return the keys of the `count` records in `content`, and the numbers of the records without a value.

    Raises:
        Malformed: `content` is not exactly these records.
    """
    data = content
    end = len(content)
    any_number = ANY_NUMBER
    keys: list[bytes | None] = []
    tombstones = []
    position = 0
    for number in range(count):
        record_end, _, _, _, key_at, key_size, _, value_size, _, _ = record_at(data, position, end, any_number)
        if record_end < 0:
            raise _damaged(position, end)
        keys.append(None if key_size < 0 else content[key_at : key_at + key_size])
        if value_size < 0:
            tombstones.append(number)
        position = record_end
    if position != end:
        raise Malformed(f"{end - position} bytes after the last of {count} records")
    return keys, tombstones


# --- writing ----------------------------------------------------------------------------------------------------------


def write_varint(target: bytearray, value: int) -> None:
    """Append an int64 as a zigzag varint."""
    rest = value << 1 ^ value >> 63
    while rest > 0x7F:
        target.append(rest & 0x7F | 0x80)
        rest >>= 7
    target.append(rest)


def varint_size(value: int) -> int:
    rest = value << 1 ^ value >> 63
    size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


def write_field(target: bytearray, field: bytes | None) -> None:
    """Append a key or value, with its length."""
    if field is None:
        write_varint(target, -1)
    else:
        write_varint(target, len(field))
        target += field


def write_record(
    target: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> None:
    """Append one record."""
    body = bytearray(1)  # no attributes
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    write_field(body, key)
    write_field(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        write_field(body, name.encode("utf-8", "surrogateescape"))
        write_field(body, content)
    write_varint(target, len(body))
    target += body


def encode_records(records: Iterable[NumberedRecord], base_offset: int, base_timestamp: int) -> bytes:
    """Return the plain bytes that follow a batch header with these base values.

    Raises:
        Malformed: a timestamp is too far from the base.
    """
    target = bytearray()
    for offset, timestamp, key, value, headers in records:
        timestamp_delta = timestamp - base_timestamp
        if not INT64_MIN <= timestamp_delta <= INT64_MAX:
            raise Malformed(f"timestamp {timestamp} is too far from {base_timestamp} for one batch")
        write_record(target, timestamp_delta, offset - base_offset, key, value, headers)
    return bytes(target)


# --- rewriting --------------------------------------------------------------------------------------------------------


def renumber(content: bytes, position: int, number: int, count: int, target: bytearray) -> tuple[int, int]:
    """Append the records from `number` at `position` to before `count`, with their numbers as offset deltas.

    Returns:
        Position and number of the first record that was not appended: it is not whole, or `target` has a piece.
    """
    data = content
    end = len(content)
    any_number, size_max = ANY_NUMBER, PIECE_SIZE
    while number < count and len(target) < size_max:
        record_end, timestamp_delta, timestamp_end, _, _, _, _, _, _, _ = record_at(data, position, end, any_number)
        if record_end < 0:
            break
        _, rest = varint(data, timestamp_end, record_end, 32)
        write_varint(target, 1 + varint_size(timestamp_delta) + varint_size(number) + record_end - rest)
        target.append(0)  # no attributes
        write_varint(target, timestamp_delta)
        write_varint(target, number)
        target += content[rest:record_end]
        position = record_end
        number += 1
    return position, number


def first_timestamp_delta(content: bytes, is_kept: bytes) -> int:
    """Return the timestamp delta of the first record with a true value in `is_kept`; 0 if there is none."""
    data = content
    end = len(content)
    any_number = ANY_NUMBER
    position = 0
    for kept in is_kept:
        record_end, timestamp_delta, _, _, _, _, _, _, _, _ = record_at(data, position, end, any_number)
        if record_end < 0:
            raise _damaged(position, end)
        if kept:
            return timestamp_delta
        position = record_end
    return 0


def copy_kept(content: bytes, is_kept: bytes, base_delta: int) -> tuple[bytes, int]:
    """Copy the records with a true value in `is_kept`, for a base timestamp that is later by `base_delta` ms.

    A copy differs from its record only in its length and its timestamp delta.

    Returns:
        The bytes of the copies, and their largest timestamp delta before the change.

    Raises:
        Malformed: `content` is not exactly these records, or a timestamp is too far from the new base.
    """
    data = content
    end = len(content)
    any_number = ANY_NUMBER
    lowest, highest, largest = INT64_MIN, INT64_MAX, INT64_MIN
    if base_delta > 0:
        lowest += base_delta
    else:
        highest += base_delta
    target = bytearray()
    position = 0
    for kept in is_kept:
        record_end, timestamp_delta, timestamp_end, _, _, _, _, _, _, _ = record_at(data, position, end, any_number)
        if record_end < 0:
            raise _damaged(position, end)
        if kept:
            if not lowest <= timestamp_delta <= highest:
                raise Malformed(f"timestamp delta {timestamp_delta} less {base_delta} is out of range")
            if timestamp_delta > largest:
                largest = timestamp_delta
            if base_delta:
                _, at = varint(data, position, end, 32)
                write_varint(target, 1 + varint_size(timestamp_delta - base_delta) + record_end - timestamp_end)
                target.append(data[at])
                write_varint(target, timestamp_delta - base_delta)
                target += content[timestamp_end:record_end]
            else:
                target += content[position:record_end]
        position = record_end
    if position != end:
        raise Malformed(f"{end - position} bytes after the last of {len(is_kept)} records")
    return bytes(target), largest


def _damaged(position: int, end: int) -> Malformed:
    return Malformed(f"the record at byte {position} of {end} is damaged")
