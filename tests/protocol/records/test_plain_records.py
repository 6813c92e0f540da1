"""Keys and copies of plain records against the reader of whole records, and both forms on damaged bytes."""

from collections.abc import Callable
from random import Random
from types import ModuleType

import pytest

from protocol.errors import Malformed
from protocol.records.batch import HEADER_SIZE, parse_records, read_header
from protocol.records.builder import RecordData, build_batch, renumbered
from protocol.records.plain_records import INT64_MAX, INT64_MIN, copy_kept, first_timestamp_delta, read_keys
from tests.support.forms import both_forms, mutated

TIME = 10**12


def make_batch(random: Random, count_max: int = 200) -> bytes:
    sizes = (0, 1, 63, 64, 8191, 8192) if count_max > 9 else (0, 1, 3, 63, 70)

    def text(is_nullable: bool) -> bytes | None:
        return None if is_nullable and random.random() < 0.2 else random.randbytes(random.choice(sizes))

    return build_batch(
        [
            RecordData(
                TIME + random.choice((-(2**40), -70, -1, 0, 63, 64, 2**40)),
                text(True),
                text(True),
                [("header", text(True)) for _ in range(random.randrange(3))],
            )
            for _ in range(random.randint(1, count_max))
        ]
    )


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("seed", range(3))
def test_keys_are_those_of_whole_records(seed: int) -> None:
    content = make_batch(Random(seed))
    header = read_header(content)
    plain = content[HEADER_SIZE:]
    expected = list(parse_records([plain], header))
    keys, tombstones = read_keys(plain, header.records_count)
    assert keys == [record.key for record in expected]
    assert tombstones == [number for number, record in enumerate(expected) if record.value is None]


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("delta", [0, 1, -1, 70, 2**41, -(2**41)])
def test_copies_keep_their_content_and_timestamps(delta: int) -> None:
    content = make_batch(Random(1))
    header = read_header(content)
    plain = content[HEADER_SIZE:]
    is_kept = bytes(number % 2 for number in range(header.records_count))
    expected = list(parse_records([plain], header))[1::2]
    moved = header._replace(base_timestamp=header.base_timestamp + delta, records_count=is_kept.count(1))
    copied, largest = copy_kept(plain, is_kept, delta)
    assert list(parse_records([copied], moved)) == expected
    assert largest == max(record.timestamp for record in expected) - header.base_timestamp
    assert first_timestamp_delta(plain, is_kept) == expected[0].timestamp - header.base_timestamp


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("read", [read_keys, lambda plain, count: copy_kept(plain, b"\1" * count, 5)])
def test_truncated_records_and_wrong_counts_are_malformed(read: Callable[[bytes, int], object]) -> None:
    plain = build_batch([RecordData(0, b"key", b"value") for _ in range(3)])[HEADER_SIZE:]
    read(plain, 3)
    for size in range(len(plain)):
        with pytest.raises(Malformed):
            read(plain[:size], 3)
    for count in (0, 1, 2, 4):
        with pytest.raises(Malformed):
            read(plain, count)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(("delta", "base_delta"), [(INT64_MAX, -1), (INT64_MIN, 1), (-2, INT64_MAX), (0, INT64_MIN)])
def test_copy_with_a_timestamp_that_is_too_far_from_the_base_is_malformed(delta: int, base_delta: int) -> None:
    plain = build_batch([RecordData(0, None, None), RecordData(delta, None, None)])[HEADER_SIZE:]
    with pytest.raises(Malformed, match="out of range"):
        copy_kept(plain, b"\0\1", base_delta)
    assert copy_kept(plain, b"\0\1", 0)[1] == delta


@pytest.mark.usefixtures("form")
def test_renumbered_records_of_any_pieces_are_the_same() -> None:
    content = make_batch(Random(2), 9)
    header = read_header(content)
    plain = content[HEADER_SIZE:]
    is_kept = bytes(number % 3 != 1 for number in range(header.records_count))
    gaps, _ = copy_kept(plain, is_kept, 0)
    header = header._replace(records_count=is_kept.count(1))
    kept = list(parse_records([gaps], header))
    assert [record.offset for record in kept] == [0, 2, 3, 5, 6, 8][: len(kept)]
    for size in (1, 7, 100, len(gaps)):
        pieces = [gaps[at : at + size] for at in range(0, len(gaps), size)]
        opened = parse_records(renumbered(pieces, header.records_count), header)
        assert list(opened) == [record._replace(offset=number) for number, record in enumerate(kept)]


def outcomes(form: ModuleType, plain: bytes, count: int) -> list[object]:
    """Return what each loop returns or raises."""

    def renumber() -> object:
        target = bytearray()
        return form.renumber(plain, 0, 0, count, target), target

    is_kept = bytes(number % 3 for number in range(count))
    calls: list[Callable[[], object]] = [
        lambda: form.pass_regular(plain, 0, 0, count, 5, False),
        lambda: form.timestamp_deltas(plain, count),
        lambda: form.read_records(plain, 0, count, 5, 2**63, TIME, False, True, True),
        lambda: form.read_records(plain, 0, count, 2, 0, -(2**63), False, False, False),
        lambda: form.read_keys(plain, count),
        lambda: form.first_timestamp_delta(plain, is_kept),
        lambda: form.copy_kept(plain, is_kept, -(2**62)),
        renumber,
    ]
    found: list[object] = []
    for call in calls:
        try:
            found.append(call())
        except Malformed as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    "count", [3000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])], ids=str
)
def test_both_forms_do_the_same_with_mutated_records(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_form, interpreted_form = both_forms("protocol.records.plain_records", monkeypatch)
    random = Random(count)
    damaged = 0
    for number in range(count):
        if number % 20 == 0:
            content = make_batch(random, 4)
            records_count = read_header(content).records_count
        plain = mutated(content[HEADER_SIZE:], random)
        expected = outcomes(interpreted_form, plain, records_count)
        assert outcomes(compiled_form, plain, records_count) == expected, (plain.hex(), records_count)
        damaged += isinstance(expected[4], str)
    assert count / 2 < damaged < count
