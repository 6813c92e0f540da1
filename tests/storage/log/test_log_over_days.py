"""Logs over days of a clock that is set by hand: what rolling and retention leave, as operators reckon with it."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from storage.log.log import Log
from storage.log.log_state import LogOptions
from tests.storage.builders import NOW_MS, QuickFiles, append, batch, create_log, delete_expired, log_config

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BATCH_SIZE = len(batch(1))


def live(log: Log, days: int) -> Iterator[int]:
    """A batch every six hours, retention after each; yields once a day, before the first batch of the next."""
    for quarter in range(1, 4 * days + 1):
        now_ms = NOW_MS + quarter * DAY_MS // 4
        append(log, batch(1, timestamp_ms=now_ms), now_ms=now_ms)
        log.advance_high_watermark(log.log_end_offset)
        delete_expired(log, now_ms)
        if quarter % 4 == 0:
            yield quarter // 4


def days_kept(log: Log) -> float:
    return (log.log_end_offset - log.log_start_offset) / 4


def test_retention_of_seven_days_with_a_daily_roll_keeps_seven_to_eight_days(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=7 * DAY_MS, segment_ms=DAY_MS - HOUR_MS))
    counts, firsts = [], []
    for _ in live(log, 40):
        counts.append(log.segment_count)
        firsts.append(log.segments.first.base_offset)
    settled = slice(10, None)
    assert set(counts[settled]) <= {8, 9}  # seven to eight whole days and the one that is written
    steps = {later - earlier for earlier, later in zip(firsts[settled], firsts[11:], strict=False)}
    assert steps == {4}  # one segment is made and one dropped each day
    assert 7 <= days_kept(log) <= 8.25


def test_retention_of_one_day_keeps_a_segment_that_spans_five_days(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=DAY_MS, segment_bytes=20 * BATCH_SIZE, segment_ms=99 * DAY_MS))
    kept = [days_kept(log) for _ in live(log, 30)]
    # A segment of five days goes when its last record is a day old.
    assert kept[:6] == [1, 2, 3, 4, 5, 6]
    assert max(kept) == 6
    assert min(kept[6:]) >= 1


def test_log_with_a_tenth_of_a_segment_a_day_keeps_7_to_17_days(tmp_path: Path) -> None:
    log = create_log(
        tmp_path, log_config(retention_ms=7 * DAY_MS, segment_bytes=40 * BATCH_SIZE, segment_ms=99 * DAY_MS)
    )
    kept = [days_kept(log) for _ in live(log, 100)]
    assert max(kept) == 17
    assert min(kept[17:]) >= 7


@pytest.mark.parametrize(
    ("limits", "days"),
    [
        ({"retention_ms": DAY_MS, "retention_bytes": 1000 * BATCH_SIZE}, 1.5),
        ({"retention_ms": 99 * DAY_MS, "retention_bytes": 12 * BATCH_SIZE}, 3.25),
        ({"retention_ms": DAY_MS, "retention_bytes": 2 * BATCH_SIZE}, 0.75),
    ],
    ids=["time", "size", "both, size first"],
)
def test_retention_applies_the_limit_that_is_reached_first(tmp_path: Path, limits: dict[str, int], days: float) -> None:
    log = create_log(tmp_path, log_config(segment_bytes=2 * BATCH_SIZE, segment_ms=99 * DAY_MS, **limits))
    kept = [days_kept(log) for _ in live(log, 30)]
    assert max(kept[5:]) <= days
    assert min(kept[5:]) >= days - 0.5
    assert log.size >= min(limits["retention_bytes"], 4 * BATCH_SIZE)


def test_age_without_timestamps_is_that_of_the_file(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=DAY_MS))
    append(log, batch(1, timestamp_ms=-1))
    log.advance_high_watermark(1)
    log.segments.first.on_disk.set_modified_ms(NOW_MS)
    assert delete_expired(log, NOW_MS + DAY_MS) == 0
    assert delete_expired(log, NOW_MS + DAY_MS + 1) == 1


def test_age_with_timestamps_ignores_that_of_the_file(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=DAY_MS))
    append(log, batch(1))
    log.advance_high_watermark(1)
    log.segments.first.on_disk.set_modified_ms(NOW_MS - 99 * DAY_MS)
    assert delete_expired(log, NOW_MS) == 0


def test_record_with_a_future_timestamp_keeps_its_segment_and_later_ones(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=DAY_MS, segment_bytes=2 * BATCH_SIZE, segment_ms=99 * DAY_MS))
    for timestamp_ms in (NOW_MS, NOW_MS, NOW_MS, NOW_MS + 50 * DAY_MS, NOW_MS, NOW_MS):
        append(log, batch(1, timestamp_ms=timestamp_ms))
    log.advance_high_watermark(6)
    assert delete_expired(log, NOW_MS + 40 * DAY_MS) == 1
    assert log.log_start_offset == 2
    assert delete_expired(log, NOW_MS + 52 * DAY_MS) == 2
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)


def test_idle_log_does_not_roll(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_ms=DAY_MS, retention_ms=-1))
    append(log, batch(1))
    log.advance_high_watermark(1)
    delete_expired(log, NOW_MS + 99 * DAY_MS)
    assert log.segment_count == 1


def test_jitter_spreads_the_rolls_of_logs_created_together(tmp_path: Path) -> None:
    options = LogOptions(QuickFiles(), Random(1))
    config = log_config(segment_ms=DAY_MS, segment_jitter_ms=DAY_MS // 2)
    hours = []
    for number in range(20):
        log = create_log(tmp_path / str(number), config, options)
        append(log, batch(1))
        hour = 0
        while log.segment_count == 1:
            hour += 1
            append(log, batch(1, timestamp_ms=NOW_MS + hour * HOUR_MS))
        hours.append(hour)
    assert len(set(hours)) > 5
    assert 12 <= min(hours) <= max(hours) <= 25
