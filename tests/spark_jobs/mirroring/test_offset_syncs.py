"""Offsets are translated by the last pair before them."""

import json

import pytest

from spark_jobs.mirroring import offset_syncs
from spark_jobs.mirroring.offset_syncs import OffsetTranslation
from spark_jobs.mirroring.sending import Run, Runs


def pair(source: int, target: int, partition: int = 0) -> Run:
    return Run("t", partition, source, "A.t", partition, target)


def test_a_position_between_two_pairs_follows_the_first_of_them() -> None:
    translation = OffsetTranslation()
    assert translation.add(pair(495, 500))
    assert translation.add(pair(596, 600))
    found = {offset: translation.translate("t", 0, offset) for offset in (494, 495, 550, 595, 596, 700)}
    assert found == {
        494: None,
        495: ("A.t", 0, 500),
        550: ("A.t", 0, 555),
        595: ("A.t", 0, 600),
        596: ("A.t", 0, 600),
        700: ("A.t", 0, 704),
    }
    assert translation.translate("t", 1, 550) is None


def test_a_pair_that_says_nothing_new_is_not_stored_and_a_repeated_batch_replaces_its_pair() -> None:
    translation = OffsetTranslation()
    translation.add(pair(0, 10))
    assert not translation.add(pair(5, 15))
    assert translation.add(pair(5, 20))
    assert translation.add(pair(5, 30))
    assert translation.translate("t", 0, 6) == ("A.t", 0, 31)
    assert translation.translate("t", 0, 4) == ("A.t", 0, 14)


def test_a_position_in_a_gap_of_the_source_is_that_of_the_next_record() -> None:
    translation = OffsetTranslation()
    for source, target in ((0, 0), (5, 1), (90, 40)):
        translation.add(pair(source, target))
    found = [translation.translate("t", 0, offset) for offset in (0, 1, 3, 5, 44, 45, 89, 90)]
    assert found == [("A.t", 0, target) for target in (0, 1, 1, 1, 40, 40, 40, 40)]


def test_a_position_before_all_records_of_the_source_is_the_start_of_the_target() -> None:
    translation = OffsetTranslation()
    translation.add(pair(5, 0))  # the records before were compacted away
    translation.add(pair(5, 3, partition=1))  # the target may have records of them that have no pairs
    assert [translation.translate("t", 0, offset) for offset in (0, 4)] == [("A.t", 0, 0)] * 2
    assert translation.translate("t", 1, 4) is None


def transactions(count: int) -> OffsetTranslation:
    """Return the pairs of `count` transactions of a record: a marker has an offset, but no place at the target."""
    translation = OffsetTranslation()
    for record in range(count):
        translation.add(pair(2 * record, record))
        assert sum(map(len, translation._pairs.values())) <= offset_syncs._PAIRS_MAX
    return translation


@pytest.mark.parametrize("count", [500, 20_000])
def test_a_group_that_is_behind_reads_at_most_twice_as_much_again_and_never_less(count: int) -> None:
    translation = transactions(count)
    for offset in range(2 * count):
        place, exact = translation.translate("t", 0, offset), (offset + 1) // 2
        assert place is not None
        assert 2 * exact - count <= place[2] <= exact
    assert translation.translate("t", 0, 2 * count - 2) == ("A.t", 0, count - 1)
    translation.add(pair(2 * count - 2, count))  # a batch that is repeated
    assert translation.translate("t", 0, 2 * count - 2) == ("A.t", 0, count)


def test_stored_pairs_are_bounded_and_translate_like_those_in_memory() -> None:
    count = 5_000
    translation, restored = transactions(count), OffsetTranslation()
    restored.add(pair(0, 77))
    restored.add(pair(3, 79))
    stored = json.dumps(translation.to_json(("t", 0)))
    assert len(stored) < 4_000
    restored.restore(json.loads(stored))
    for offset in range(2 * count):
        assert restored.translate("t", 0, offset) == translation.translate("t", 0, offset)
    assert restored.to_json(("t", 0)) == translation.to_json(("t", 0))


def test_pairs_of_a_topic_that_has_another_name_at_the_target_now_are_forgotten() -> None:
    translation = OffsetTranslation()
    translation.add(pair(0, 100))
    translation.add(Run("t", 0, 50, "B.t", 0, 500))
    assert [translation.translate("t", 0, offset) for offset in (20, 60)] == [None, ("B.t", 0, 510)]


def test_a_run_ends_where_the_difference_changes() -> None:
    found = Runs()
    places = [pair(0, 5), pair(1, 6), pair(2, 8), pair(3, 9), pair(0, 0, partition=1), pair(7, 7, partition=1)]
    for place in places:
        found.add(place)
    assert list(found) == [pair(0, 5), pair(2, 8), pair(0, 0, partition=1)]


def test_a_record_that_was_stored_after_later_ones_begins_a_run() -> None:
    found = Runs()
    for place in (pair(5, 15), pair(3, 13), pair(6, 16)):
        found.add(place)
    assert list(found) == [pair(5, 15), pair(3, 13)]
