"""What the first walk notes of each record: against a dict, with maps and tables that are too small, and look-ups."""

from random import Random

import pytest

from storage.cleaning.dirty_records import DEAD, LIVE, TOMBSTONE, DirtyRecords
from storage.cleaning.offset_map import ENTRY_SIZE

pytestmark = pytest.mark.usefixtures("form")

BATCHES = [[b"a", b"b", b"a"], [None, b"b"], [b"c"]]


def test_records_replaced_by_a_newer_one_or_without_a_key_are_dead() -> None:
    dirty = DirtyRecords(100 * ENTRY_SIZE, 0.9)
    assert [dirty.add(keys, [0]) for keys in BATCHES] == [3, 2, 1]
    assert dirty.states_of(0, 3) == bytes([DEAD, DEAD, LIVE])
    assert dirty.states_of(3, 2) == bytes([DEAD, LIVE])
    assert dirty.states_of(5, 1) == bytes([TOMBSTONE])
    assert (dirty.mapped, dirty.without_key) == (6, 1)


def test_skipped_record_has_a_number() -> None:
    dirty = DirtyRecords(100 * ENTRY_SIZE, 0.9)
    dirty.add([b"a"], [])
    dirty.skip(2)
    dirty.add([b"a"], [])
    assert dirty.states_of(0, 4) == bytes([DEAD, LIVE, LIVE, LIVE])


@pytest.mark.parametrize("count_max", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("slots", [2, 3, 5, 100])
@pytest.mark.parametrize("seed", range(3))
def test_unmapped_record_is_live(seed: int, slots: int, count_max: int) -> None:
    random = Random(seed)
    keys = [random.choice([None, b"a", b"b", b"c", b"d", b"e"]) for _ in range(20)]
    tombstones = [place for place in range(20) if random.random() < 0.3]
    dirty = DirtyRecords(slots * ENTRY_SIZE, 0.9, count_max)
    taken = dirty.add(keys, tombstones)
    assert 0 < taken == dirty.mapped <= 20
    newest = {key: place for place, key in enumerate(keys[:taken])}
    expected = bytes(
        LIVE
        if place >= taken
        else DEAD
        if keys[place] is None or newest[keys[place]] > place
        else TOMBSTONE
        if place in tombstones
        else LIVE
        for place in range(20)
    )
    assert dirty.states_of(0, 20) == expected
    assert dirty.look_up(keys, tombstones, 0) == expected


def test_record_before_the_dirty_part_is_dead_if_its_key_is_mapped() -> None:
    dirty = DirtyRecords(100 * ENTRY_SIZE, 0.9)
    dirty.add([b"a", b"c"], [])
    assert dirty.look_up([b"a", b"b", None, b"d"], [0, 1]) == bytes([DEAD, TOMBSTONE, DEAD, LIVE])
    assert dirty.without_key == 1
    # A batch whose first records an earlier pass has mapped.
    assert dirty.look_up([b"b", b"a", b"b", b"a", b"c"], [], -3) == bytes([LIVE, DEAD, LIVE, LIVE, LIVE])


def test_unmapped_record_without_a_key_is_live() -> None:
    dirty = DirtyRecords(100 * ENTRY_SIZE, 0.9)
    dirty.add([b"a"], [])
    assert dirty.look_up([None, b"a", None, b"b"], [1], 3) == bytes([LIVE] * 4)
    assert dirty.without_key == 0
