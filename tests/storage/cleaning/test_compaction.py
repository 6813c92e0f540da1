"""Decisions of compaction as tables: what is cleanable, what is due, which segments go together."""

import pytest

from storage.cleaning.compaction import CompactionLimits, DirtySegment, SourceSegment, cleanable_part, groups_of
from tests.support.lines import counted_lines

NOW_MS = 10_000
NO_LIMIT = 2**63 - 1


def segments(*timestamps: int, size: int = 100) -> list[DirtySegment]:
    """Ten offsets each; the last one is active."""
    return [DirtySegment(10 * number, size, time_ms, time_ms) for number, time_ms in enumerate(timestamps)]


LOG = segments(1000, 2000, 3000, 4000, 5000)
CASES: dict[str, tuple[int | None, int, dict[str, int], tuple[int, int, int, int]]] = {
    # checkpoint, log start, limits -> first dirty, first uncleanable, clean bytes, cleanable bytes
    "all sealed": (None, 0, {}, (0, 40, 0, 400)),
    "from the checkpoint": (20, 0, {}, (20, 40, 200, 200)),
    "a checkpoint within a segment": (25, 0, {}, (25, 40, 200, 200)),
    "a checkpoint below the log start": (5, 10, {}, (10, 40, 100, 300)),
    "a checkpoint above the active segment": (45, 0, {}, (0, 40, 0, 400)),
    "nothing is dirty": (40, 0, {}, (40, 40, 400, 0)),
    "an open transaction": (None, 0, {"last_stable_offset": 25}, (0, 20, 0, 200)),
    "the last stable offset at a segment": (None, 0, {"last_stable_offset": 30}, (0, 30, 0, 300)),
    "young segments": (None, 0, {"min_lag_ms": 7500}, (0, 20, 0, 200)),
}


@pytest.mark.parametrize("case", CASES)
def test_cleanable_part_ends_at_the_first_segment_that_must_wait(case: str) -> None:
    checkpoint, log_start, changes, expected = CASES[case]
    limits = CompactionLimits(**{"last_stable_offset": 45, "min_lag_ms": 0, "max_lag_ms": NO_LIMIT} | changes)
    part = cleanable_part(LOG, checkpoint, log_start, limits, NOW_MS)
    assert (part.first_dirty_offset, part.first_uncleanable_offset, part.clean_bytes, part.cleanable_bytes) == expected


@pytest.mark.parametrize(("checkpoint", "ratio", "is_due"), [(20, 0.5, False), (20, 0.49, True), (40, 0.0, False)])
def test_log_is_due_only_above_the_dirty_ratio(checkpoint: int, ratio: float, is_due: bool) -> None:
    part = cleanable_part(LOG, checkpoint, 0, CompactionLimits(45, 0, NO_LIMIT), NOW_MS)
    assert part.is_due(ratio) is is_due


@pytest.mark.parametrize(("max_lag_ms", "is_due"), [(7000, False), (6999, True)])
def test_log_with_an_overdue_record_is_due_at_any_ratio(max_lag_ms: int, is_due: bool) -> None:
    part = cleanable_part(LOG, 20, 0, CompactionLimits(45, 0, max_lag_ms), NOW_MS)
    assert part.is_due(1.0) is is_due


def sources(*sizes: int) -> list[SourceSegment]:
    return [SourceSegment(10 * number, 10 * number + 10, size, 8, 12, 0) for number, size in enumerate(sizes)]


GROUPS: list[tuple[list[SourceSegment], list[list[int]]]] = [
    (sources(40, 40, 40), [[0, 10], [20]]),
    (sources(0, 0, 100, 1), [[0, 10, 20], [30]]),
    (sources(500, 1), [[0], [10]]),
    ([SourceSegment(0, 10, 1, 8, 12, 0), SourceSegment(10, 2**31 + 1, 1, 8, 12, 0)], [[0], [10]]),
    ([SourceSegment(0, 10, 1, 30, 12, 0), SourceSegment(10, 20, 1, 30, 12, 0)], [[0], [10]]),
    ([], []),
]


@pytest.mark.parametrize(("given", "expected"), GROUPS)
def test_groups_fit_into_one_segment(given: list[SourceSegment], expected: list[list[int]]) -> None:
    assert [[segment.base_offset for segment in group] for group in groups_of(given, 100, 50)] == expected


def test_a_segment_costs_no_more_in_a_large_group() -> None:
    lines = []
    for count in (100, 1_000):
        given = sources(*[0] * count)
        with counted_lines() as counted:
            assert len(groups_of(given, 100, 12 * count)) == 1
        lines.append(counted.count)
    assert lines[1] < 11 * lines[0]
