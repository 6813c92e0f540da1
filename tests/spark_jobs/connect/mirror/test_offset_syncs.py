"""Pairs of offsets: when one is written, which are kept, and what positions become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.connect.mirror.formats import OffsetSync
from spark_jobs.connect.mirror.offset_syncs import (
    SYNCS_PER_PARTITION,
    TOO_OLD,
    OffsetSyncQueue,
    OffsetSyncStore,
    PartitionState,
)
from tests.spark_jobs.connect.mirror.recorded import RECORDED

NOT_TRANSLATED = -2


def loaded_store(*pairs: tuple[int, int]) -> OffsetSyncStore:
    """Return a store that has got pairs of t-0 after it was loaded."""
    store = OffsetSyncStore()
    store.begin(begins_at_end=True)
    store.loaded()
    for pair in pairs:
        store.add(OffsetSync("t", 0, *pair))
    return store


@pytest.mark.parametrize("row", RECORDED["translations"])
def test_positions_are_translated_as_by_kafka(row: Any) -> None:
    store = OffsetSyncStore()
    store.begin(begins_at_end=row["must_read_to_end"])
    for pair in row["loaded"]:
        store.add(OffsetSync("t", 0, *pair))
    store.loaded()
    for pair in row["later"]:
        store.add(OffsetSync("t", 0, *pair))
    for position, expected in row["asked"]:
        translated = store.translate("t", 0, position)
        assert (NOT_TRANSLATED if translated is None else translated) == expected, position


def test_a_position_between_two_pairs_is_behind_the_earlier_one() -> None:
    store = loaded_store((495, 500), (596, 600))
    positions = (495, 496, 550, 595, 596, 597, 10_000)
    assert [store.translate("t", 0, each) for each in positions] == [500, 501, 501, 501, 600, 601, 601]


def test_a_position_before_all_pairs_is_too_old() -> None:
    assert loaded_store((495, 500)).translate("t", 0, 494) == TOO_OLD


def test_partitions_without_a_pair_are_not_translated() -> None:
    assert loaded_store((1, 1)).translate("t", 1, 1) is None


def test_nothing_is_translated_before_all_earlier_pairs_are_read() -> None:
    store = OffsetSyncStore()
    store.begin(begins_at_end=False)
    store.add(OffsetSync("t", 0, 1, 1))
    assert store.translate("t", 0, 1) is None
    store.loaded()
    assert store.translate("t", 0, 1) == 1


def test_offsets_that_go_back_at_the_source_drop_all_pairs() -> None:
    store = loaded_store((100, 200), (150, 251), (20, 20))
    assert [store.translate("t", 0, each) for each in (19, 20, 150)] == [TOO_OLD, 20, 21]


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=200), st.integers(0, 2**42))
def test_a_translation_is_never_behind_the_true_position(steps: list[int], position: int) -> None:
    """Each pair is of a record; the target lacks half of the records between them."""
    store = loaded_store()
    pairs, source, target = [], 0, 0
    for step in steps:
        pairs.append((source, target))
        store.add(OffsetSync("t", 0, source, target))
        source, target = source + step, target + max(1, step // 2)
    translated = store.translate("t", 0, position)
    before = max((pair for pair in pairs if pair[0] <= position), default=None)
    assert before is not None
    assert translated is not None
    assert 0 <= translated <= before[1] + (before[0] < position)
    assert len(store.kept("t", 0)) <= SYNCS_PER_PARTITION
    assert store.kept("t", 0)[0].upstream_offset == pairs[-1][0]
    assert store.kept("t", 0)[-1].upstream_offset == 0


@pytest.mark.parametrize("row", RECORDED["emissions"], ids=lambda row: f"lag {row['lag_max']}")
def test_pairs_are_due_when_kafka_writes_them(row: Any) -> None:
    state = PartitionState()
    for upstream, downstream, is_due in row["records"]:
        assert state.update(upstream, downstream, row["lag_max"]) == bool(is_due), upstream


def take(queue: OffsetSyncQueue) -> list[OffsetSync]:
    return list(queue.take())


def test_a_pair_that_is_not_due_is_written_when_offsets_are_stored() -> None:
    queue = OffsetSyncQueue(lag_max=100)
    for offset in range(5):
        queue.add("t", 0, offset, offset + 10)
    assert take(queue) == [("t", 0, 0, 10)]
    queue.promote()
    assert take(queue) == [("t", 0, 4, 14)]
    queue.promote()
    assert take(queue) == []


def test_a_newer_pair_replaces_one_that_waits() -> None:
    queue = OffsetSyncQueue(lag_max=0)
    for offset in range(3):
        queue.add("t", 0, offset, offset)
    queue.add("t", 1, 7, 8)
    assert take(queue) == [("t", 0, 2, 2), ("t", 1, 7, 8)]


def test_a_pair_that_was_not_taken_waits_on() -> None:
    queue = OffsetSyncQueue(lag_max=0)
    queue.add("t", 0, 1, 1)
    for _ in queue.take():
        break
    assert queue.pending_count == 1
    assert take(queue) == [("t", 0, 1, 1)]
    assert not queue.pending_count
