"""The status of consumers from their commits, and the age of what they have not read."""

from __future__ import annotations

import pytest

from tools.monitoring.lag_windows import ENDS_MAX, ONE_COMMIT_AGE_MAX_MS, Commit, Ends, Status, Window, group_status

STEP_MS = 10_000


def window(*commits: tuple[int, int]) -> Window:
    """Commits of (offset, lag), ten seconds apart."""
    made = Window()
    for number, (offset, lag) in enumerate(commits):
        made.add(Commit(offset, number * STEP_MS, lag))
    return made


@pytest.mark.parametrize(
    ("commits", "lag", "status"),
    [
        ([], 5, Status.OK),
        ([(1, 5)], 5, Status.OK),
        ([(1, 5), (2, 6), (3, 7)], 7, Status.WARN),
        ([(1, 5), (2, 6), (3, 6)], 6, Status.OK),
        ([(1, 5), (2, 0), (3, 7)], 7, Status.OK),
        ([(1, 5), (1, 6), (1, 7)], 7, Status.STALL),
        ([(1, 5), (3, 6), (2, 7)], 7, Status.REWIND),
        ([(1, 5), (1, 6), (1, 7)], 0, Status.OK),
    ],
)
def test_status_right_after_the_last_commit(commits: list[tuple[int, int]], lag: int, status: Status) -> None:
    assert window(*commits).status(max(len(commits) - 1, 0) * STEP_MS, lag) is status


def test_no_commit_for_longer_than_the_window_is_a_stop() -> None:
    made = window((1, 5), (2, 5), (3, 5))
    assert made.status(4 * STEP_MS, 5) is Status.OK
    assert made.status(4 * STEP_MS + 1, 5) is Status.STOP


def test_one_commit_alone_is_a_stop_when_it_is_old() -> None:
    """After a restart of kafka-lag, a group whose consumers are gone has one commit: its present offset."""
    made = window((1, 5))
    assert made.status(ONE_COMMIT_AGE_MAX_MS, 5) is Status.OK
    assert made.status(ONE_COMMIT_AGE_MAX_MS + 1, 5) is Status.STOP
    assert made.status(ONE_COMMIT_AGE_MAX_MS + 1, 0) is Status.OK


def test_only_the_last_commits_count() -> None:
    made = window((9, 0), *((offset, 20 + offset) for offset in range(10, 20)))
    assert made.status(10 * STEP_MS, 40) is Status.WARN
    assert made.completeness == 1.0
    made.add(Commit(3, 0, 1))  # older than the last one
    assert made.status(10 * STEP_MS, 40) is Status.WARN


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    assert group_status([]) is Status.OK
    assert group_status([Status.OK, Status.WARN]) is Status.WARN
    assert group_status([Status.REWIND, Status.OK]) is Status.ERR


def test_the_age_of_the_first_unread_record() -> None:
    ends = Ends()
    for offset, now_ms in ((10, 1000), (20, 2000), (20, 3000), (20, 4000), (30, 5000)):
        ends.add(offset, now_ms)
    assert [ends.lag_ms(committed, 6000) for committed in (5, 10, 19, 20, 29, 30, 31)] == [
        5000,
        4000,
        4000,
        1000,
        1000,
        0,
        0,
    ]
    ends.add(2, 7000)  # a topic of the same name was created
    assert ends.lag_ms(0, 8000) == 1000
    for number in range(5 * ENDS_MAX):
        ends.add(number + 3, 8000 + number)
    assert len(ends._offsets) <= ENDS_MAX
    assert ends.lag_ms(5 * ENDS_MAX + 1, 20_000) == 20_000 - (8000 + 5 * ENDS_MAX - 1)


def test_the_end_at_a_time_lies_between_two_observations() -> None:
    ends = Ends()
    for offset, now_ms in ((100, 1000), (300, 2000), (300, 5000)):
        ends.add(offset, now_ms)
    assert [ends.at(time_ms) for time_ms in (0, 1000, 1250, 2000, 3000, 9000)] == [100, 100, 150, 300, 300, 300]


def test_a_lag_that_grows_between_two_readings_is_a_warning() -> None:
    """Ten commits within one interval, of a consumer that is half as fast as the producer."""
    ends = Ends()
    ends.add(1000, 0)
    ends.add(2000, STEP_MS)
    made = Window()
    for number in range(1, 11):
        time_ms = number * STEP_MS // 10
        made.add(Commit(500 + 50 * number, time_ms, ends.at(time_ms) - (500 + 50 * number)))
    assert made.status(STEP_MS, 1000) is Status.WARN
