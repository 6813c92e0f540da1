"""Which segments go: the rules of retention as tables, and the cases that operators reckon with."""

import pytest

from storage.segments import retention
from storage.segments.retention import NO_LIMIT, RetentionPolicy, SegmentFacts

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FOREVER = RetentionPolicy(NO_LIMIT, NO_LIMIT)


def segments(*sizes_and_times: tuple[int, int]) -> list[SegmentFacts]:
    """Ten offsets each."""
    return [SegmentFacts(10 * (number + 1), size, time_ms) for number, (size, time_ms) in enumerate(sizes_and_times)]


def count_to_delete(facts: list[SegmentFacts], policy: RetentionPolicy, **offsets: int) -> int:
    return retention.count_to_delete(facts, policy, total_size=sum(one.size for one in facts), **offsets)


FOUR = segments((100, 1000), (100, 2000), (100, 3000), (100, 4000))
CASES: dict[str, tuple[RetentionPolicy, dict[str, int], int]] = {
    "nothing": (FOREVER, {}, 0),
    "time, strictly older": (RetentionPolicy(3000, NO_LIMIT), {}, 1),
    "time, all": (RetentionPolicy(0, NO_LIMIT), {}, 4),
    "size keeps at least as much": (RetentionPolicy(NO_LIMIT, 250), {}, 1),
    "size exactly": (RetentionPolicy(NO_LIMIT, 300), {}, 1),
    "size one more": (RetentionPolicy(NO_LIMIT, 301), {}, 0),
    "size none": (RetentionPolicy(NO_LIMIT, 0), {}, 4),
    "log start at a segment's end": (FOREVER, {"log_start_offset": 20}, 2),
    "log start within a segment": (FOREVER, {"log_start_offset": 19}, 1),
    "not past the high watermark": (RetentionPolicy(0, NO_LIMIT), {"high_watermark": 29}, 2),
    "the rule that takes more wins": (RetentionPolicy(3000, 200), {"log_start_offset": 10}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_count_to_delete_applies_time_size_and_log_start(case: str) -> None:
    policy, changes, expected = CASES[case]
    offsets = {"log_start_offset": 0, "high_watermark": 40} | changes
    assert count_to_delete(FOUR, policy, now_ms=5000, **offsets) == expected


def test_deletion_stops_at_the_first_segment_to_keep() -> None:
    mixed = segments((100, 1000), (100, 9000), (100, 1000))
    assert count_to_delete(mixed, RetentionPolicy(500, -1), now_ms=9000, log_start_offset=0, high_watermark=99) == 1


def test_segment_kept_by_one_rule_may_be_deleted_by_another() -> None:
    first_is_young = segments((100, 9000), (100, 1000), (100, 9000))
    policy = RetentionPolicy(500, 150)
    assert count_to_delete(first_is_young, policy, now_ms=9000, log_start_offset=0, high_watermark=99) == 2


@pytest.mark.parametrize(
    ("policy", "log_start_offset"),
    [(RetentionPolicy(3000, NO_LIMIT), 0), (RetentionPolicy(NO_LIMIT, 100), 0), (FOREVER, 20)],
)
def test_segment_without_records_is_deleted_like_any_other(policy: RetentionPolicy, log_start_offset: int) -> None:
    facts = segments((100, 1000), (0, 1500), (100, 4000))
    offsets = {"log_start_offset": log_start_offset, "high_watermark": 30}
    assert count_to_delete(facts, policy, now_ms=5000, **offsets) == 2


def test_seven_days_with_a_daily_roll_keep_seven_to_eight_segments() -> None:
    kept: list[SegmentFacts] = []
    for day in range(1, 40):
        kept.append(SegmentFacts(day, 100, day * DAY_MS))
        now_ms = day * DAY_MS + HOUR_MS
        gone = count_to_delete(
            kept, RetentionPolicy(7 * DAY_MS, -1), now_ms=now_ms, log_start_offset=0, high_watermark=day
        )
        assert day <= 8 or gone == 1
        kept = kept[gone:]
        assert len(kept) == min(day, 8) or len(kept) == min(day, 7)


def test_segment_that_spans_five_days_is_kept_whole() -> None:
    spanning = [SegmentFacts(10, 100, 5 * DAY_MS)]
    policy = RetentionPolicy(DAY_MS, -1)
    assert count_to_delete(spanning, policy, now_ms=6 * DAY_MS, log_start_offset=0, high_watermark=10) == 0
    assert count_to_delete(spanning, policy, now_ms=6 * DAY_MS + 1, log_start_offset=0, high_watermark=10) == 1
