"""The offset map against a dict, its fixed memory, and what happens when it is full."""

from random import Random

import pytest

from storage.offset_map import ENTRY_SIZE, OffsetMap


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slots", [64, 1000])
def test_equals_a_dict(slots: int, seed: int) -> None:
    random = Random(seed)
    offsets, twin = OffsetMap(slots * ENTRY_SIZE, 1.0), dict[bytes, int]()
    for offset in range(500):
        key = str(random.randrange(60)).encode()
        assert offsets.put_all([(key, offset)])
        twin[key] = offset
    assert offsets.newest(twin) == list(twin.values())
    assert offsets.newest([b"never put", b""]) == [-1, -1]
    assert (offsets.count, offsets.latest_offset) == (len(twin), 499)


def test_stops_when_it_is_full_and_says_how_far_it_came() -> None:
    offsets = OffsetMap(10 * ENTRY_SIZE, 0.5)
    assert not offsets.put_all((str(number).encode(), 100 + number) for number in range(9))
    assert (offsets.count, offsets.latest_offset) == (5, 104)
    assert offsets.newest([b"4", b"5"]) == [104, -1]


@pytest.mark.parametrize(
    ("memory", "entries"), [(8 << 30, 2**31 // 24), (200_000_000, 8_333_333), (24_000_000, 1_000_000)]
)
def test_memory_decides_how_many_keys_fit(memory: int, entries: int) -> None:
    assert OffsetMap(memory, 1.0).usable == pytest.approx(entries, abs=1)
