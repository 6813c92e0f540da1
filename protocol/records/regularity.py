"""The fast check that the records of a batch are well formed.

Owns one question about the plain bytes after a batch header: are they exactly `count` records, does every field end
where its record ends, and are the offset deltas 0, 1, 2, ...? Must not know what happens to a batch that fails:
`protocol.records.batch.parse_records` reports the error.

A record, with every length and delta as a zigzag varint:

    length | attributes (1 byte) | timestamp delta | offset delta | key length, key | value length, value | headers

The fast path handles fields whose varints have one or two bytes; `_record_end` handles all others.

Plain bytes may come in pieces. A record that crosses pieces is read by the reader that parsing uses, whatever its size;
pieces are not joined.

The check runs for every batch that a leader appends, so it determines the cost of small records. There are three ways
to pass a record, from the slowest to the fastest:

1. `_step_over` reads it field by field.
2. The records after it nearly always have timestamp deltas of as many bytes, and headers of the same sizes or none.
   Then the positions of all fields follow from the lengths of record and key. `_pass_alike` unpacks them in one call,
   together with the count of headers of the record before, and the lengths of headers in another.
3. Many producers send records of the same size in key and value. `_run` checks such a run by columns: the bytes at the
   same position of each record are one slice with the record size as its step, compared in one call:

    record n     [len|att|time|delta n  |klen|key..|vlen|value..|0]
    record n + 1 [len|att|time|delta n+1|klen|key..|vlen|value..|0]      equal length: same columns len, klen, vlen, 0
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import RECORD_SIZE_MIN, UNZIGZAG, HeaderBudget, outline_across_pieces, read_varint
from protocol.records.compression import PIECE_SIZE, Buffer, CannotOpen
from protocol.records.pieces import PieceReader

# The distance from a one-byte length of a key or value to the field after it; the length of a null is a single byte. An
# invalid length, or one of more bytes, maps to a distance beyond the end of any data.
_TOO_FAR = 1 << 62
_NULL = 0x01
_STEPS = tuple(
    [1 if code == _NULL else _TOO_FAR if code & 1 or code >= 0x80 else 1 + (code >> 1) for code in range(0x100)]
)
# The same if a key must not be null.
_STEPS_WITH_KEY = (*_STEPS[:_NULL], _TOO_FAR, *_STEPS[_NULL + 1 :])
# The same for the first byte of two; the second byte counts 64 each.
_LOW_STEPS = tuple([_TOO_FAR if low & 1 else 2 + ((low & 0x7F) >> 1) for low in range(0x100)])

_CONTINUES = bytes(0x80) + b"\x01" * 0x80  # low >> 7


class _Deltas(NamedTuple):
    """The encoded offset deltas from `first` to before `end`, as columns; all are encoded in `size` bytes.

    The third byte, if there is one, is the same in the whole block.
    """

    first: int
    end: int
    size: int
    lows: bytes
    highs: bytes
    top: int


_ONE_BYTE = 64
_BLOCK = 8192
_BLOCKS = 128
_HIGH_COUNT = _BLOCK // _ONE_BYTE
_LOWS = bytes(range(0x80, 0x100, 2)) * _HIGH_COUNT  # delta << 1 & 0x7F | 0x80
_HIGHS = b"".join([bytes((high,)) * _ONE_BYTE for high in range(_HIGH_COUNT)])  # delta >> 6
_CONTINUED_HIGHS = b"".join(bytes((high | 0x80,)) * _ONE_BYTE for high in range(_HIGH_COUNT))
_DELTAS = (
    _Deltas(0, _ONE_BYTE, 1, bytes(range(0, 2 * _ONE_BYTE, 2)), b"", 0),
    _Deltas(_ONE_BYTE, _BLOCK, 2, _LOWS[_ONE_BYTE:], _HIGHS[_ONE_BYTE:], 0),
    *(_Deltas(n * _BLOCK, (n + 1) * _BLOCK, 3, _LOWS, _CONTINUED_HIGHS, n) for n in range(1, _BLOCKS)),
)


def _two_byte_lengths() -> Sequence[int]:
    """Return the encoded lengths and deltas from 64 on that have two bytes."""
    codes = bytearray(2 * _BLOCK)
    codes[0::2], codes[1::2] = _LOWS, _HIGHS
    return struct.unpack(f">{_BLOCK}H", codes)[_ONE_BYTE:]


_Lone = tuple[
    Callable[[Buffer, int], tuple[int, int, int]], Callable[[Buffer, int], tuple[int]], Sequence[int], Sequence[int]
]
"""The layout of a record that is alone in its batch, for one size of the length fields of record and value.

The functions unpack (record length, both deltas as one number, key length as one byte) and a length. The first table
maps the key length to the position of the value length. The second maps a size, which includes that of the length
itself, to the encoded length, or to -1 if that has another number of bytes.
"""


def _lone(length_format: str, encoded: Sequence[int], size_min: int) -> _Lone:
    length = struct.Struct(f">{length_format}")
    key_at = length.size + 3
    return (
        struct.Struct(f">{length_format}xHB").unpack_from,
        length.unpack_from,
        tuple(key_at + step for step in _STEPS),
        array("i", (*(-1,) * size_min, *encoded)),  # 30 KB; a tuple of as many numbers would have 300
    )


_HEADERS_COUNT_SIZE = 1

_SHORT_SIZE_MAX = 64
_LONE_SHORT = _lone("B", range(0, 2 * _SHORT_SIZE_MAX, 2), size_min=1)
_LONE_LONG = _lone("H", _two_byte_lengths(), size_min=66)


# How attributes and both deltas are unpacked, by the size of the deltas together. Attributes may have any value.
_DELTA_PAIRS = {2: "xH", 3: "I", 4: "xI"}
_NUMBERS = "BH"

# `_pass_alike` is tried if so many records are left, and for as many at a time. If it passed fewer, the next try waits.
_ALIKE_WORTH_IT = 6
_ALIKE_MAX = 512
_RECORDS_WITHOUT_ALIKE = 64
_SECTION_SIZE_MAX = 1024


class _Layout(NamedTuple):
    """The layout of records whose keys have one size, and whose length has a fixed number of bytes.

    A record is read together with the headers before it. Numbers of two bytes are unpacked with the first byte as the
    higher one.
    """

    unpack: Callable[[Buffer, int], tuple[int, int, int, int, int]]
    """Unpacks the count of the headers before the record, record length, both deltas as one number, key length, and the
    first two bytes of the value length."""
    record_sizes: Sequence[int]
    """The size of a record, its length field included, by that length; 0 if it is invalid or has another size."""
    key_length: int
    """As encoded, in one byte."""
    fields_size: int
    """The size of a record without the length of its value, the value, and the count of headers."""


class _ValueLengths(NamedTuple):
    """The encoded length of a value, by the size of this length, the value and the count of headers together."""

    codes: Sequence[int]
    shifts: Sequence[int]
    """How far two bytes are shifted to leave the length: 8 if it has one byte, 0 if it has two."""


# The tables are made when the first batch of several records arrives. Lists, because indexing them is fastest.


@cache
def _record_sizes(length_size: int) -> Sequence[int]:
    if length_size == 1:
        return [0 if code & 1 or code >= 0x80 else 1 + (code >> 1) for code in range(0x100)]
    sizes = [0] * (1 << 16)
    for size, code in enumerate(_two_byte_lengths(), _ONE_BYTE):
        sizes[code] = 2 + size
    return sizes


@cache
def _value_lengths() -> _ValueLengths:
    # With one byte for the count of headers, lengths from 0 to 63 end at 65; with one byte more, those from 64 on begin
    # at 67. A negative index, which counts from the end, finds unused entries too.
    unused = -1
    wrapped = (unused,) * (_SECTION_SIZE_MAX + 0x100)
    codes = [unused, unused, *range(0, 2 * _ONE_BYTE, 2), unused, *_two_byte_lengths(), *wrapped]
    shifts = [8 if left < _ONE_BYTE + 2 else 0 for left in range(len(codes))]
    return _ValueLengths(codes, shifts)


class _DeltaPair(NamedTuple):
    """Timestamp delta and offset delta of fixed sizes, unpacked as one number."""

    size: int
    mask: int
    """The bits that are fixed: those that say whether a byte of the timestamp delta is followed by another, and all of
    the offset delta."""
    expected: Sequence[int]
    """The values of these bits, by number of the record from the first one with such an offset delta on."""


@cache
def _delta_pair(time_size: int, delta_size: int) -> _DeltaPair | None:
    """Return the pair; None if it has too many bytes for `_pass_alike`."""
    if delta_size > len(_NUMBERS) or time_size + delta_size not in _DELTA_PAIRS:
        return None
    offsets = _DELTAS[0].lows if delta_size == 1 else _two_byte_lengths()
    bits = 8 * delta_size
    continued = int.from_bytes(b"\x80" * time_size, "big")
    continues = continued & ~0xFF  # all bytes but the last are followed by another
    expected = [continues << bits | offset for offset in offsets]
    return _DeltaPair(time_size + delta_size, continued << bits | (1 << bits) - 1, expected)


class _Section(NamedTuple):
    """The headers of a record, and the count before them."""

    size: int
    header_count: int
    unpack_lengths: Callable[[Buffer, int], tuple[int, ...]]
    """Unpacks the count, and the lengths of all keys and values, which have one byte each."""
    lengths: tuple[int, ...]
    """As encoded."""


@lru_cache(256)
def _section_of(codes: bytes) -> _Section:
    """Return the layout of headers by their encoded count and lengths."""
    count, *lengths = codes
    layout = struct.Struct("B" + "".join(f"B{_STEPS[length] - 1}x" for length in lengths))
    return _Section(layout.size, count >> 1, layout.unpack_from, tuple(codes))


_NO_HEADERS = _section_of(b"\0")


_ALL_PASSED = -1  # no deltas


class _Layouts(dict[int, _Layout]):
    """The layouts of records with a length of one size, by key length. They are made when such a record is met.

    A lookup raises IndexError for the length of no key, or of one with 64 bytes and more.
    """

    def __init__(self, length_size: int, pair_size: int, section_size: int) -> None:
        self._record_sizes = _record_sizes(length_size)
        self._section_size = section_size
        self._start = f"{_NUMBERS[length_size - 1]}{_DELTA_PAIRS[pair_size]}B"

    def __missing__(self, key_length: int) -> _Layout:
        key_size = _STEPS[key_length] - 1
        if key_size >= _ONE_BYTE:
            raise IndexError
        before = self._section_size - _HEADERS_COUNT_SIZE
        whole = struct.Struct(f">B{before}x{self._start}{key_size}xH")
        fields_size = struct.calcsize(f">{self._start}") + key_size + before
        layout = self[key_length] = _Layout(whole.unpack_from, self._record_sizes, key_length, fields_size)
        return layout


_layouts = lru_cache(128)(_Layouts)


# The sum of two such values fits int64.
_TIMESTAMP_MAX = 1 << 62

_TIME_SIZE_MAX = 9  # the bytes of the largest such varint

# A run is searched among at most this many records, so that a short run costs little. After a search that saved little,
# the next one waits for some records: for few after a long run, which a single record of another size may have ended,
# then for twice as many after each search in vain.
_RUN_MAX = 512
_RUN_WORTH_IT, _LONG_RUN = 8, 32
_WAIT_AFTER_LONG_RUN, _WAIT_MAX = 8, 512
_SAME = tuple(bytes((byte,)) * _RUN_MAX for byte in range(0x100))

# Indexing bytes is faster than indexing a view, but large records are not worth the copy.
_COPIED_SIZE_MAX = 1 << 16
_COPIED_RECORD_SIZE_MAX = 512


def are_regular(data: Buffer, count: int, budget: HeaderBudget | None = None, *, needs_keys: bool = False) -> bool:
    """Return whether `data` is exactly `count` whole records with the offset deltas 0 to count - 1.

    Keys, values, headers and attributes may be anything, but with `needs_keys` no key may be null; times must lie
    within 2^62 of their base. True proves that no reader can fail on the records. False proves nothing: more than 2^20
    records and times further away are valid too.

    Raises:
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    size = len(data)
    if count == 1 and is_one_plain(data, 0, needs_keys=needs_keys):
        return True
    if count * RECORD_SIZE_MIN > size or count > _DELTAS[-1].end:
        return False
    if size > PIECE_SIZE and size <= count * _COPIED_RECORD_SIZE_MAX:
        copies = (bytes(data[start : start + PIECE_SIZE]) for start in range(0, size, PIECE_SIZE))
        return _are_regular(copies, count, budget, needs_keys=needs_keys)
    if size <= count * _COPIED_RECORD_SIZE_MAX or (count >= _RUN_WORTH_IT and size <= _COPIED_SIZE_MAX):
        data = bytes(data)
    position = number = 0
    for deltas in _DELTAS:
        position, number = _step_over(
            data, position, deltas, number, min(count, deltas.end), budget, needs_keys=needs_keys
        )
        if number != deltas.end:
            break
    return number == count and position == size


def are_regular_pieces(
    pieces: Iterable[bytes], count: int, budget: HeaderBudget | None = None, *, needs_keys: bool = False
) -> bool:
    """Return `are_regular` of the concatenated `pieces`. If the result is False, not all of them may have been read.

    Raises:
        CannotOpen: the iterator raised it.
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    pieces = iter(pieces)
    first = next(pieces, b"")
    second = next(pieces, None)
    if second is None:
        return are_regular(first, count, budget, needs_keys=needs_keys)
    chained = chain((first, second), pieces)
    return count <= _DELTAS[-1].end and _are_regular(chained, count, budget, needs_keys=needs_keys)


def timestamp_deltas(data: bytes, count: int) -> tuple[int, int]:
    """Return the smallest and the largest timestamp delta of `count` records that are regular.

    Takes a quarter of the time of parsing the records.
    """
    unzigzag = UNZIGZAG
    earliest, latest = _TIMESTAMP_MAX, -_TIMESTAMP_MAX
    position = 0
    for _ in range(count):
        low = data[position]
        if low < 0x80:
            time_at = position + 2
            position += 1 + (low >> 1)
        else:
            size, time_at = read_varint(data, position)
            position = time_at + size
            time_at += 1
        delta = data[time_at]
        delta = unzigzag[delta] if delta < 0x80 else read_varint(data, time_at, 64)[0]
        if delta > latest:
            latest = delta
        if delta < earliest:
            earliest = delta
    return earliest, latest


def _are_regular(pieces: Iterable[bytes], count: int, budget: HeaderBudget | None, *, needs_keys: bool) -> bool:
    reader = PieceReader(pieces)
    number = 0
    for deltas in _DELTAS:
        end = min(count, deltas.end)
        while number < end:
            position, number = _step_over(
                reader.data, reader.position, deltas, number, end, budget, needs_keys=needs_keys
            )
            reader.position = position
            if number < end:
                try:
                    offset_delta, timestamp_delta, has_key = outline_across_pieces(reader, budget)
                except CannotOpen:
                    raise
                except Malformed:
                    return False
                if offset_delta != number or not -_TIMESTAMP_MAX <= timestamp_delta <= _TIMESTAMP_MAX:
                    return False
                if needs_keys and not has_key:
                    return False
                number += 1
        if number == count:
            break
    return reader.is_at_end()


def is_one_plain(data: Buffer, position: int, *, needs_keys: bool = False) -> bool:
    """Return whether the data from `position` on are one record without headers, at its batch's base time.

    That is the record that most clients send alone. It must have less than 8 KB and a key of less than 64 bytes. False
    only means that this was not proven: the record may have lengths of other sizes.
    """
    size = len(data) - position
    start, length, value_at_by_key, lengths = _LONE_SHORT if size <= _SHORT_SIZE_MAX else _LONE_LONG
    try:
        record_length, deltas, key_length = start(data, position)
        value_at = value_at_by_key[key_length]
        (value_length,) = length(data, position + value_at)
        return (
            record_length == lengths[size]
            and not deltas
            and value_length == lengths[size - value_at - _HEADERS_COUNT_SIZE]
            and not data[-1]
            and not (needs_keys and key_length == _NULL)
        )
    except (IndexError, struct.error):
        return False


def _step_over(
    data: Buffer,
    position: int,
    deltas: _Deltas,
    number: int,
    end: int,
    budget: HeaderBudget | None,
    *,
    needs_keys: bool,
) -> tuple[int, int]:
    """Pass the records from `number` at `position` to before `end`, as long as they are whole and regular.

    Returns the position and the number of the first record not passed. All their offset deltas are in `deltas`.

    Positions within a record, all of which are known before the record counts as regular:

        start        time_at           delta_at       key_at        value_at          headers_at   position
        | length, attributes | timestamp delta | offset delta | length, key | length, value | headers |

    Invariant: at the top of the loop `number` records are passed, and `position` is the start of the next.
    """
    first, _, delta_size, lows, highs, top = deltas
    number, count = number - first, end - first
    steps, low_steps = _STEPS, _LOW_STEPS
    key_steps = _STEPS_WITH_KEY if needs_keys else _STEPS
    next_run, wait = 0, _WAIT_MAX
    next_alike = 0 if count - number > _ALIKE_WORTH_IT else count
    while number < count:
        start = position
        is_plain = is_regular = False
        try:
            low = data[start]
            if low < 0x80:
                time_at = at = start + 2
                position = start + steps[low]
            else:
                time_at = at = start + 3
                high = data[start + 1]
                position = start + low_steps[low] + (high << 6) if high < 0x80 else _TOO_FAR
            while data[at] >= 0x80:
                at += 1
            if (
                data[at + 1] == lows[number]
                and (delta_size == 1 or (data[at + 2] == highs[number] and (delta_size == 2 or data[at + 3] == top)))
                and at - time_at < _TIME_SIZE_MAX
            ):
                key_at = at + 1 + delta_size
                key_low = data[key_at]
                if key_low < 0x80:
                    value_at = key_at + key_steps[key_low]
                else:
                    value_at = key_at + low_steps[key_low] + (data[key_at + 1] << 6)
                value_low = data[value_at]
                if value_low < 0x80:
                    headers_at = value_at + steps[value_low]
                else:
                    headers_at = value_at + low_steps[value_low] + (data[value_at + 1] << 6)
                delta_at = at + 1
                headers = data[headers_at]
                is_plain = headers == 0 and headers_at + 1 == position
                is_regular = is_plain or (
                    headers != 0
                    and headers_at < position <= len(data)
                    and _headers_end(data, headers_at, budget) == position
                )
        except IndexError:
            pass
        if not is_regular:
            try:
                position = _record_end(data, start, first + number, budget, needs_keys=needs_keys)
            except (IndexError, Malformed):
                return start, first + number
            number += 1
            continue
        number += 1
        if is_plain and next_run <= number < count:
            run = _run(data, (start, key_at, value_at, headers_at), time_at, delta_at, position, deltas, number, count)
            number += run
            position += run * (position - start)
            if run >= _RUN_WORTH_IT:
                wait = _WAIT_AFTER_LONG_RUN if run >= _LONG_RUN else wait
                continue
            next_run = number + wait
            wait = min(2 * wait, _WAIT_MAX)
        if next_alike <= number < count:
            passed = number
            section = _NO_HEADERS if is_plain else _section(data, headers_at)
            pair = _delta_pair(delta_at - time_at, delta_size)
            end = min(count, next_run if is_plain else number + _ALIKE_MAX)
            position, number = _pass_alike(data, position, pair, section, number, end, budget, needs_keys=needs_keys)
            if number - passed < _ALIKE_WORTH_IT:
                next_alike = number + _RECORDS_WITHOUT_ALIKE
    return position, first + number


def _section(data: Buffer, position: int) -> _Section:
    """Return the layout of the headers at `position`, which `_headers_end` has accepted."""
    codes = [data[position]]
    at = position + 1
    for _ in range(data[position]):  # twice the count: keys and values
        codes.append(data[at])
        at += _STEPS[data[at]]
    return _section_of(bytes(codes))


def _pass_alike(
    data: Buffer,
    position: int,
    pair: _DeltaPair | None,
    section: _Section,
    first: int,
    end: int,
    budget: HeaderBudget | None,
    *,
    needs_keys: bool,
) -> tuple[int, int]:
    """Do the same as `_step_over` for records with these sizes of deltas, and with headers of these sizes.

    Both numbers count from the first record whose offset delta has this size. A record with such headers must precede
    `position` in the data.

    The value must have exactly the size that is left in its record before the headers, and these must have the lengths
    of `section`. So a record that passes has no byte that belongs to no field. Its headers are read together with the
    record after it. Invariant: at the top of the loop, all records before are checked but for the headers at `at`.
    """
    section_size, header_count, unpack_lengths, lengths = section
    if pair is None or type(data) is not bytes or end - first < _ALIKE_WORTH_IT or section_size > _SECTION_SIZE_MAX:
        return position, first
    pair_size, mask, expected = pair
    by_length_size = _layouts(1, pair_size, section_size), _layouts(2, pair_size, section_size)
    codes, shifts = _value_lengths()
    headers = lengths[0]
    before = at = position - section_size
    short_key_at = section_size + 1 + 1 + pair_size
    deltas = expected[first]
    try:
        is_long = data[position] >= 0x80
        layouts = by_length_size[is_long]
        unpack, record_sizes, key_length, fields_size = layouts[data[at + short_key_at + is_long]]
        for deltas in expected[first:end]:
            count, length, found, key, value_length = unpack(data, at)
            size = record_sizes[length]
            if key != key_length or not size:
                if not size:  # the length has another number of bytes than in the layout
                    is_long = data[at + section_size] >= 0x80
                    layouts = by_length_size[is_long]
                    key = data[at + short_key_at + is_long]
                unpack, record_sizes, key_length, fields_size = layouts[key]
                count, length, found, key, value_length = unpack(data, at)
                size = record_sizes[length]
            left = size - fields_size
            if (
                count != headers
                or found & mask != deltas
                or value_length >> shifts[left] != codes[left]
                or (header_count and unpack_lengths(data, at) != lengths)
                or (needs_keys and key == _NULL)
            ):
                break
            before = at
            at += size
        else:
            deltas = _ALL_PASSED
    except (IndexError, struct.error):
        pass
    number = end if deltas == _ALL_PASSED else expected.index(deltas, first)
    if number > first and (at + section_size > len(data) or unpack_lengths(data, at) != lengths):
        at = before
        number -= 1
    if budget is not None:
        budget.spend(header_count * (number - first))
    return at + section_size, number


def _headers_end(data: Buffer, position: int, budget: HeaderBudget | None) -> int:
    """Return the position after the headers if their fields are short; else _TOO_FAR, or raise IndexError."""
    steps = _STEPS
    headers = data[position]
    if headers & 1 or headers >= 0x80:
        return _TOO_FAR
    count = headers >> 1
    if budget is not None:
        budget.left -= count
        if budget.left < 0:
            budget.spend(0)
    at = position + 1
    for _ in range(count):
        size = data[at]
        at += _TOO_FAR if size == _NULL else steps[size]
        at += steps[data[at]]
    return at


def _run(
    data: Buffer,
    fields: tuple[int, int, int, int],
    time_at: int,
    delta_at: int,
    position: int,
    deltas: _Deltas,
    number: int,
    end: int,
) -> int:
    """Return how many records from `number` at `position` to before `end` have the layout of the one before them.

    That one is regular. `fields` are the positions of its record length, key length, value length and count of headers,
    whose bytes must be equal in all records; `time_at` and `delta_at` are the positions of the timestamp delta and the
    offset delta.

    Invariant: after each column, the first `run` records agree in all columns compared so far.
    """
    size = position - fields[0]
    run = min(end - number, (len(data) - position) // size, _RUN_MAX)
    if not run or data[position] != data[fields[0]]:
        return 0
    same = [*fields, *(at + 1 for at in fields if data[at] >= 0x80)]
    for at in same:
        run = _agreeing(data[at + size : at + size * run + 1 : size], _SAME[data[at]][:run])
    run = _agreeing(data[delta_at + size : delta_at + size * run + 1 : size], deltas.lows[number : number + run])
    if deltas.size > 1:
        at = delta_at + 1
        run = _agreeing(data[at + size : at + size * run + 1 : size], deltas.highs[number : number + run])
    if deltas.size > 2:
        at = delta_at + 2
        run = _agreeing(data[at + size : at + size * run + 1 : size], _SAME[deltas.top][:run])
    for at in range(time_at, delta_at):
        continues = bytes(data[at + size : at + size * run + 1 : size]).translate(_CONTINUES)
        run = _agreeing(continues, _SAME[at < delta_at - 1][:run])
    return run


def _agreeing(column: Buffer, expected: bytes) -> int:
    """Return the length of the common prefix of two byte strings of the same length."""
    if column == expected:
        return len(expected)
    agreeing, differing = 0, len(expected)
    while differing - agreeing > 1:
        middle = (agreeing + differing) // 2
        if column[agreeing:middle] == expected[agreeing:middle]:
            agreeing = middle
        else:
            differing = middle
    return agreeing


def _record_end(
    data: Buffer, position: int, offset_delta: int, budget: HeaderBudget | None, *, needs_keys: bool
) -> int:
    """Return the position after a record of any form that has this offset delta.

    Raises:
        Malformed, IndexError: the record is damaged.
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    size, position = read_varint(data, position)
    end = position + size
    if size < RECORD_SIZE_MIN - 1 or end > len(data):
        raise Malformed(f"record of {size} bytes where {len(data) - position} are left")
    timestamp_delta, position = read_varint(data, position + 1, 64)
    found, position = read_varint(data, position)
    if found != offset_delta or not -_TIMESTAMP_MAX <= timestamp_delta <= _TIMESTAMP_MAX:
        raise Malformed(f"offset delta {found} in record {offset_delta}")
    key_size, position = read_varint(data, position)
    if needs_keys and key_size < 0:
        raise Malformed("record without a key")
    position = _nullable_end(data, position + max(key_size, 0))
    headers, position = read_varint(data, position)
    if not 0 <= headers <= end - position:
        raise Malformed(f"record with {headers} headers")
    if budget is not None:
        budget.spend(headers)
    for _ in range(headers):
        size, position = read_varint(data, position)
        if size < 0:
            raise Malformed("record header without a key")
        position = _nullable_end(data, position + size)
    if position != end:
        raise Malformed(f"record ends at byte {position}, not at {end} as its length says")
    return position


def _nullable_end(data: Buffer, position: int) -> int:
    size, position = read_varint(data, position)
    return position + size if size > 0 else position
