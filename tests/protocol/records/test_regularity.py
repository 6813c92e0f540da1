"""The check of records against a reader that shares no code with it, at the places where lengths change."""

import tracemalloc
from collections.abc import Iterator
from hashlib import blake2b
from random import Random

import pytest

from protocol.errors import Malformed
from protocol.records.batch import HEADER_SIZE, HeaderBudget, Record, TooManyHeadersError, parse_records, read_header
from protocol.records.builder import RecordData, build_batch
from protocol.records.plain_records import encode_records, timestamp_deltas
from protocol.records.regularity import are_regular, are_regular_pieces
from tests.protocol.records.test_regularity_twin import read

pytestmark = pytest.mark.usefixtures("form")

TIME = 1_700_000_000_000
HEADER = read_header(build_batch([RecordData(TIME, None, b"v")]))

_verdicts: dict[tuple[bytes, int], bool] = {}

# Around every change in the size of an offset delta.
COUNTS = [1, 2, 63, 64, 65, 200]


def is_readable(data: bytes, count: int) -> bool:
    """Whether each record can be read and has the offset that is its number: the twin and the parser agree on it."""
    try:
        opened = list(parse_records([data], HEADER._replace(records_count=count, base_timestamp=0)))
        found = [record.offset for record in opened] == list(range(count))
    except Malformed:
        found = False
    assert found == is_readable_by_the_twin(data, count)
    return found


def is_readable_by_the_twin(data: bytes, count: int) -> bool:
    """What the twin says: once, as it is the same for both forms of the check, and takes most of the time."""
    key = blake2b(data, digest_size=16).digest(), count
    if key not in _verdicts:
        _verdicts[key] = read(data, count) is not None
    return _verdicts[key]


def encoded(rows: list[Record]) -> bytes:
    return encode_records(rows, 0, TIME)


def same_size(count: int, key: bytes | None, size: int, time_step_ms: int = 1) -> list[Record]:
    rng = Random(size)
    return [Record(n, TIME + n * time_step_ms, key, rng.randbytes(size), []) for n in range(count)]


def any_size(count: int, seed: int) -> list[Record]:
    rng = Random(seed)
    keys = [None, b"", b"key", rng.randbytes(62), rng.randbytes(64), rng.randbytes(9000)]
    sizes = [0, 1, 40, 60, 62, 63, 64, 100, 8185, 8190, 8200]
    headers = [[], [], [("h", b"1")], [("", None), ("h" * 70, b"2" * 70)]]
    times = [0, 1, -1, 63, 64, 9000, -(10**9), 10**15]
    shapes = [
        (rng.choice(keys[:4]), rng.choice(sizes[:7]), rng.choice(headers), rng.choice(times)) for _ in range(3)
    ] + [(rng.choice(keys), rng.choice(sizes), rng.choice(headers), rng.choice(times))]
    rows: list[Record] = []
    while len(rows) < count:
        key, size, names, time = rng.choice(shapes)
        for _ in range(rng.choice((1, 1, 2, 5, 40))):
            rows.append(Record(len(rows), TIME + time + len(rows), key, rng.randbytes(size), list(names)))
    return rows[:count]


Headers = list[tuple[str, bytes | None]]


def varied_values(
    count: int, key: bytes | None, sizes: range, time_step_ms: int, headers: Headers | None = None
) -> list[Record]:
    rng = Random(count)
    return [
        Record(n, TIME + n * time_step_ms, key, rng.randbytes(rng.choice(sizes)), list(headers or []))
        for n in range(count)
    ]


VALUE_SIZES = [range(5, 40), range(70, 130), range(50, 75), range(3), range(1000, 8180), range(8170, 8200)]
TIME_STEPS_MS = [0, 100_000]


@pytest.mark.parametrize("sizes", VALUE_SIZES, ids=str)
@pytest.mark.parametrize("time_step_ms", TIME_STEPS_MS)
def test_values_of_any_size_are_regular(sizes: range, time_step_ms: int) -> None:
    for key in (None, b"", b"key", b"k" * 63):
        for count in (7, 64, 66, 300):
            data = encoded(varied_values(count, key, sizes, time_step_ms))
            assert are_regular(data, count)
            assert are_regular(memoryview(data), count)
            assert not are_regular(data, count - 1)
            assert not are_regular(data, count + 1)
            assert not are_regular(data + b"\0", count)
            assert not are_regular(data[:-1], count)


HEADERS: list[Headers] = [[("", None)], [("h", b"1")], [("trace", bytes(16)), ("x" * 60, b""), ("n", None)]]


@pytest.mark.parametrize("sizes", VALUE_SIZES, ids=str)
@pytest.mark.parametrize("headers", HEADERS, ids=len)
def test_headers_of_one_shape_are_regular(sizes: range, headers: Headers) -> None:
    for key in (None, b"key"):
        for count in (7, 70):
            rows = varied_values(count, key, sizes, 1, headers)
            data = encoded(rows)
            assert are_regular(data, count)
            assert are_regular(data, count, HeaderBudget(count * len(headers)))
            with pytest.raises(TooManyHeadersError):
                are_regular(data, count, HeaderBudget(count * len(headers) - 1))
            for other in ([], [*headers, ("more", b"1")], [("y", b"22")] * len(headers)):
                mixed = [row._replace(headers=other) if row.offset % 9 == 8 else row for row in rows]
                assert are_regular(encoded(mixed), count)


@pytest.mark.parametrize("headers", HEADERS, ids=len)
def test_no_changed_byte_of_headers_goes_unnoticed(headers: Headers) -> None:
    data = encoded(varied_values(10, b"key", range(5, 40), 1, headers))
    for at in range(len(data) * 3 // 5, len(data)):
        for byte in (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, data[at] ^ 1, data[at] + 2 & 0xFF, data[at] - 2 & 0xFF):
            changed = data[:at] + bytes((byte,)) + data[at + 1 :]
            assert are_regular(changed, 10) == is_readable(changed, 10)


def test_claimed_headers_longer_than_their_record_are_irregular() -> None:
    """The headers of the record before have 4 KB: no position before the record is read in their place."""
    long = [("h" * 60, bytes(60))] * 33
    rows = varied_values(12, b"key", range(5, 40), 1, long)
    rows[8:] = [row._replace(headers=[]) for row in rows[8:]]
    assert are_regular(encoded(rows), 12)
    data = bytearray(encoded(rows))
    data[-1] = 2
    assert not are_regular(bytes(data), 12)


@pytest.mark.parametrize("sizes", VALUE_SIZES[2:4], ids=str)
@pytest.mark.parametrize("time_step_ms", [0, 100_000])
def test_no_changed_byte_of_a_layout_goes_unnoticed(sizes: range, time_step_ms: int) -> None:
    """Each byte of several records changed in turn, to each other length of one byte: parsing decides the same."""
    count = 10 if time_step_ms else 70
    data = encoded(varied_values(count, b"key", sizes, time_step_ms))
    start = data.index(b"key", len(data) * 3 // 4) - 12
    for at in range(start, min(start + 150, len(data))):
        for byte in (0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, data[at] ^ 1, data[at] + 2 & 0xFF, data[at] - 2 & 0xFF):
            changed = data[:at] + bytes((byte,)) + data[at + 1 :]
            assert are_regular(changed, count) == is_readable(changed, count)


@pytest.mark.parametrize("sizes", VALUE_SIZES[:2], ids=str)
@pytest.mark.parametrize("headers", [[], HEADERS[-1]], ids=len)
def test_keys_of_any_size_are_checked_like_parsing_does(sizes: range, headers: Headers) -> None:
    """Keys and values of other sizes in each record, with lengths of one and two bytes, and each byte changed once."""
    rng = Random(len(sizes) + len(headers))
    keys = [None, b"", *(bytes(size) for size in (1, 7, 40, 63, 64, 65, 90))]
    for choice in (keys[:4], keys[2:6], keys):
        rows = [
            Record(n, TIME + n, rng.choice(choice), rng.randbytes(rng.choice(sizes)), list(headers)) for n in range(80)
        ]
        data = encoded(rows)
        assert are_regular(data, 80)
        assert are_regular(data, 80, needs_keys=True) == all(row.key is not None for row in rows)
        for _ in range(100):
            at = rng.randrange(len(data))
            byte = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, data[at] ^ 1, data[at] + 2 & 0xFF, data[at] - 2 & 0xFF))
            changed = data[:at] + bytes((byte,)) + data[at + 1 :]
            assert are_regular(changed, 80) == is_readable(changed, 80)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("key", [None, b"k" * 64])
@pytest.mark.parametrize("size", [0, 56, 1000])
def test_records_of_one_size_are_regular(count: int, key: bytes | None, size: int) -> None:
    for time_step_ms in (0, 1, 50, 10_000):
        data = encoded(same_size(count, key, size, time_step_ms))
        assert are_regular(data, count)
        assert are_regular(memoryview(data), count)
        assert not are_regular(data, count + 1)
        assert not are_regular(data, count - 1)


@pytest.mark.parametrize("seed", range(12))
def test_records_of_any_form_are_regular(seed: int) -> None:
    rows = any_size(1 + seed * 12, seed)
    data = encoded(rows)
    times = [row.timestamp - TIME for row in rows]
    assert timestamp_deltas(data, len(rows)) == (min(times), max(times))
    assert are_regular(memoryview(data), len(rows))
    assert not are_regular(data, len(rows) + 1)
    assert not are_regular(data + b"\0", len(rows))


@pytest.mark.parametrize("count", [8190, 8193, 20_000])
def test_offset_deltas_of_three_bytes_are_regular(count: int) -> None:
    rows = same_size(count, None, 3, 0)
    rows[9000:9001] = [row._replace(value=b"another size") for row in rows[9000:9001]]
    data = encoded(rows)
    assert are_regular(data, count)
    for wrong in {64, 8191, 8192, 8200, 9001, count - 1} & set(range(count)):
        swapped = list(rows)
        swapped[wrong] = rows[wrong]._replace(offset=rows[wrong].offset ^ 1 << 13)
        assert not are_regular(encoded(swapped), count)


def test_wrong_offset_delta_is_irregular_at_any_position() -> None:
    rows = same_size(150, b"key", 20)
    for wrong in range(150):
        for delta in {0, wrong - 1, wrong + 1, 63, 64, 150, -1} - {wrong}:
            changed = list(rows)
            changed[wrong] = rows[wrong]._replace(offset=delta)
            assert not are_regular(encoded(changed), 150)


@pytest.mark.parametrize("seed", range(4))
def test_regular_records_are_accepted_by_the_parser(seed: int) -> None:
    """Every byte of the structure changed in turn: the proof never says more than parsing, and nothing less."""
    rng = Random(seed)
    rows = same_size(70 + seed, rng.choice((None, b"key")), rng.choice((5, 30, 70))) if seed % 2 else any_size(12, seed)
    rows = [row for row in rows if len(row.value or b"") < 1000 and len(row.key or b"") < 1000]
    rows = [row._replace(offset=number) for number, row in enumerate(rows)]
    data = encoded(rows)
    for _ in range(700):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(mutated))
            mutated[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, mutated[at] ^ 1, mutated[at] + 2 & 0xFF))
        if rng.random() < 0.1:
            del mutated[rng.randrange(len(mutated)) :]
        assert are_regular(bytes(mutated), len(rows)) == is_readable(bytes(mutated), len(rows))


@pytest.mark.parametrize("value", [None, b"", bytes(40), bytes(61), bytes(64), bytes(100), bytes(8180), bytes(8200)])
@pytest.mark.parametrize("key", [None, b"", b"key", bytes(63), bytes(64)])
def test_single_record_is_checked_like_several(key: bytes | None, value: bytes | None) -> None:
    data = encoded([Record(0, TIME, key, value, [])])
    assert are_regular(data, 1)
    structure = [*range(min(len(data), 80)), len(data) - 1]
    for at in structure:
        for byte in {0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFF, data[at] ^ 1, data[at] + 2 & 0xFF}:
            mutated = bytearray(data)
            mutated[at] = byte
            assert are_regular(mutated, 1) == is_readable(bytes(mutated), 1)
    for size in (*structure, len(data) - 2):
        assert not are_regular(data[:size], 1)
    assert not are_regular(data + b"\0", 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(7),
        b"\x01" + bytes(6),
        b"\x0a" + bytes(6),
        b"\xff\xff\xff\xff\xff\x01",
        b"\x80",
        b"\x0c" + bytes(4) + b"\x01\x01",  # more headers than none
        b"\x0c\x00\x00\x00\x7e\x01\x00",  # key past the end
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # header without a key
    ],
    ids=bytes.hex,
)
def test_malformed_records_are_not_regular(data: bytes) -> None:
    assert not are_regular(data, 1)
    assert not are_regular(data * 2, 2)


def test_length_of_three_bytes_is_not_read_as_a_shorter_one() -> None:
    """A third byte of the length read as attributes would let the rest be read one byte off."""
    content = b"\x00\x00\x01\x80\x00"  # as seen from one byte too far: time 0, delta 0, no key, value ...
    inner = b"\x00" + content + bytes(8192)
    for low in (0x80, 0x82, 0x9E):
        for high in (0x80, 0x81):
            for third in (0, 1):
                data = bytes((low, high, third)) + inner
                for size in range(len(data) - 12, len(data)):
                    assert are_regular(data[:size], 1) == is_readable(data[:size], 1)


def test_timestamps_far_from_their_base_are_not_regular() -> None:
    rows = [Record(0, TIME, None, b"v", []), Record(1, 2**63 - 1, None, b"v", [])]
    assert not are_regular(encode_records(rows, 0, 0), 2)


def test_batch_of_the_builder_is_regular() -> None:
    batch = build_batch([RecordData(TIME, b"k", b"v", [("h", None)])] * 100)
    assert are_regular(memoryview(batch)[HEADER_SIZE:], 100)


@pytest.mark.parametrize("seed", range(4))
def test_pieces_are_checked_like_joined_records(seed: int) -> None:
    """Cut at every boundary, and then with damage."""
    rng = Random(seed)
    rows = same_size(30 + seed, rng.choice((None, b"key")), rng.choice((5, 30, 70))) if seed % 2 else any_size(9, seed)
    rows = [row for row in rows if len(row.value or b"") + len(row.key or b"") < 1000]
    rows = [row._replace(offset=number) for number, row in enumerate(rows)]
    data = encoded(rows)
    for at in range(len(data) + 1):
        assert are_regular_pieces([data[:at], data[at:]], len(rows))
    assert are_regular_pieces([data[at : at + 1] for at in range(len(data))], len(rows))
    for _ in range(200):
        mutated = bytearray(data)
        mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        if rng.random() < 0.1:
            del mutated[rng.randrange(len(mutated)) :]
        size = rng.choice((1, 2, 7, 100))
        pieces = [bytes(mutated[at : at + size]) for at in range(0, len(mutated), size)]
        count = len(rows) + rng.choice((0, 0, 0, 1, -1))
        assert are_regular_pieces(pieces, count) == are_regular(bytes(mutated), count)


def test_pieces_are_regular_where_the_size_of_offset_deltas_changes() -> None:
    for count in (*COUNTS, 8190, 8193, 20_000):
        data = encoded(same_size(count, b"k", 3))
        pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
        assert are_regular_pieces(pieces, count)
        assert not are_regular_pieces(pieces, count + 1)
        assert not are_regular_pieces([*pieces, b"\0"], count)


def test_record_larger_than_a_piece_is_skipped() -> None:
    data = encoded(
        [Record(0, TIME, b"k" * 300, b"v" * 5000, [("h" * 400, b"w" * 400)]), Record(1, TIME, None, b"", [])]
    )

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(data), 100):
            yield data[at : at + 100]

    tracemalloc.start()
    try:
        assert are_regular_pieces(pieces(), 2)
        assert tracemalloc.get_traced_memory()[1] < 4000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [1, 63, 64, 200, 9000])
@pytest.mark.parametrize("size", [0, 100])
def test_headers_beyond_the_budget_are_not_read(count: int, size: int) -> None:
    """By the proof and by parsing, in one piece and across pieces."""
    rows = [Record(n, TIME, b"k", b"v" * n, [("h" * size, None)] * count) for n in range(2)]
    data = encoded(rows)
    header = HEADER._replace(records_count=2)
    pieces = [data[at : at + 100] for at in range(0, len(data), 100)]
    # Headers of other sizes than the quick step knows may be read twice.
    enough = 2 * count if size == 0 else 4 * count
    assert are_regular(data, 2, HeaderBudget(enough))
    assert are_regular_pieces(pieces, 2, HeaderBudget(enough))
    for each in ([data], pieces):
        assert len(list(parse_records(each, header, budget=HeaderBudget(enough)))) == 2
        with pytest.raises(TooManyHeadersError):
            list(parse_records(each, header, budget=HeaderBudget(2 * count - 1)))
    with pytest.raises(TooManyHeadersError):
        are_regular(data, 2, HeaderBudget(2 * count - 1))
    with pytest.raises(TooManyHeadersError):
        are_regular_pieces(pieces, 2, HeaderBudget(2 * count - 1))
