"""The offset map against a dict, its fixed memory, and what happens when it is full."""

from random import Random

import pytest

from storage.cleaning.offset_map import ENTRY_SIZE, OffsetMap

pytestmark = pytest.mark.usefixtures("form")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slots", [64, 1000])
def test_map_returns_the_same_numbers_as_a_dict(slots: int, seed: int) -> None:
    random = Random(seed)
    offsets, twin = OffsetMap(slots * ENTRY_SIZE, 1.0), dict[bytes, int]()
    superseded: list[int] = []
    expected = []
    for number in range(500):
        key = str(random.randrange(60)).encode()
        assert offsets.put_all([key], [number], superseded) == 1
        if key in twin:
            expected.append(twin[key])
        twin[key] = number
    assert offsets.newest(twin) == list(twin.values())
    assert offsets.newest([b"never put", b""]) == [-1, -1]
    assert offsets.count == len(twin)
    assert superseded == expected


def test_put_into_a_full_map_returns_the_number_of_stored_keys() -> None:
    offsets = OffsetMap(10 * ENTRY_SIZE, 0.5)
    superseded: list[int] = []
    assert offsets.put_all([str(number).encode() for number in range(9)], range(100, 109), superseded) == 5
    assert offsets.count == 5
    assert offsets.newest([b"4", b"5"]) == [104, -1]
    # A key that the map already has needs no room.
    assert offsets.put_all([b"4", b"3", b"9", b"4"], range(105, 109), superseded) == 2
    assert superseded == [104, 103]


@pytest.mark.parametrize("load_factor", [0.0, 0.9, 1.0, 7.0])
def test_lookup_of_a_missing_key_in_a_full_map_ends_and_counts_its_probes(load_factor: float) -> None:
    offsets = OffsetMap(4 * ENTRY_SIZE, load_factor)
    assert (
        offsets.put_all([b"a", b"b", b"c", b"d"], range(4), [])
        == offsets.usable
        == min(max(int(4 * load_factor), 1), 3)
    )
    probes = offsets.probes
    assert offsets.newest([b"%d" % number for number in range(50)]) == [-1] * 50
    assert offsets.probes > probes


@pytest.mark.parametrize(
    ("memory", "entries"), [(8 << 30, 2**31 // 24), (200_000_000, 8_333_333), (24_000_000, 1_000_000)]
)
def test_memory_limits_the_number_of_keys(memory: int, entries: int) -> None:
    assert OffsetMap(memory, 1.0).usable == pytest.approx(entries, abs=1)
