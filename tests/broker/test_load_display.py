"""What is said of a load that takes long."""

import pytest

from broker.load_display import LINE_INTERVAL_MS, LoadLines, progress_text, seconds_left, share_done
from storage.manager.log_startup import LoadStatus

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("status", "elapsed_ms", "text"),
    [
        (LoadStatus(0, 10, 0, 4 * GB), 500, "0 of 10 partitions, 0 of 4,000 MB scanned"),
        (LoadStatus(3, 10, GB, 4 * GB), 20_000, "3 of 10 partitions, 1,000 of 4,000 MB scanned, 1:00 left"),
        (LoadStatus(10, 10, 4 * GB, 4 * GB), 20_000, "10 of 10 partitions, 4,000 of 4,000 MB scanned, 0:00 left"),
        (LoadStatus(1_000, 4_000, 0, 0), 1_000, "1,000 of 4,000 partitions, 0:03 left"),
        (LoadStatus(0, 0, 0, 0), 0, "0 of 0 partitions, 0:00 left"),
    ],
)
def test_text_shows_partitions_bytes_and_time_left(status: LoadStatus, elapsed_ms: int, text: str) -> None:
    assert progress_text(status, elapsed_ms) == text


@pytest.mark.parametrize(
    ("status", "share"),
    [
        (LoadStatus(9, 10, 1, 4), 0.25),  # the tenth is the large one
        (LoadStatus(10, 10, 5, 4), 1.0),  # a file that grew no more, counted twice after damage
        (LoadStatus(1, 4, 0, 0), 0.25),
        (LoadStatus(0, 0, 0, 0), 1.0),
    ],
)
def test_share_counts_bytes_if_logs_are_scanned_else_partitions(status: LoadStatus, share: float) -> None:
    assert share_done(status) == share


def test_no_remaining_time_is_shown_before_the_first_log_is_loaded() -> None:
    assert seconds_left(LoadStatus(0, 10, 0, 0), 1_000) is None
    assert seconds_left(LoadStatus(5, 10, 0, 0), 1_000) == 1.0


def test_lines_come_at_intervals_while_something_is_left() -> None:
    lines: list[str] = []
    display = LoadLines(lines.append, started_ms=1_000)
    for now_ms in range(1_000, 1_000 + 3 * LINE_INTERVAL_MS, 500):
        display.show(LoadStatus(1, 4, 0, 0), now_ms)
    assert lines == ["loading logs: 1 of 4 partitions, 0:15 left", "loading logs: 1 of 4 partitions, 0:30 left"]
    display.show(LoadStatus(4, 4, 0, 0), 1_000_000)
    assert len(lines) == 2
