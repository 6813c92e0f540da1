"""Decisions about in-sync replicas: every state of three replicas with a few offsets, against plain definitions."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from broker.replica.machine.isr import (
    NEVER_MS,
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    FollowerProgress,
    IsrChange,
    committed_offset,
    may_join,
    out_of_sync,
)

ME, A, B = 1, 2, 3
LAG_MS = 30
NOW_MS = 1_000
OFFSETS = (UNKNOWN_OFFSET, 0, 1, 2, 3)
CAUGHT_UP = (NEVER_MS, NOW_MS - LAG_MS - 1, NOW_MS - LAG_MS, NOW_MS)


def progress(log_end_offset: int, caught_up_ms: int) -> FollowerProgress:
    return FollowerProgress(log_end_offset=log_end_offset, caught_up_ms=caught_up_ms)


def isrs() -> list[tuple[int, ...]]:
    return [(ME, *others) for count in range(3) for others in combinations((A, B), count)]


def test_committed_is_what_the_maximal_isr_and_those_about_to_join_have() -> None:
    leader_end = 3
    for end_a, end_b, time_a, time_b, isr, alive in product(
        OFFSETS, OFFSETS, CAUGHT_UP, CAUGHT_UP, isrs(), [(), (A,), (B,), (A, B)]
    ):
        ends, times = {A: end_a, B: end_b}, {A: time_a, B: time_b}
        required = {ME: leader_end}
        for replica in (A, B):
            is_caught_up = ends[replica] == leader_end or NOW_MS - times[replica] <= LAG_MS
            if replica in isr or (is_caught_up and replica in alive):
                required[replica] = ends[replica]
        followers = {replica: progress(ends[replica], times[replica]) for replica in (A, B)}
        found = committed_offset(
            leader_end, followers, isr, is_alive=alive.__contains__, now_ms=NOW_MS, lag_ms_max=LAG_MS
        )
        assert found == min(required.values()), (ends, times, isr, alive)


def test_follower_joins_with_all_that_is_committed_and_all_of_earlier_epochs() -> None:
    for end, high_watermark, epoch_start in product(OFFSETS, (0, 1, 2, 3), (None, 0, 1, 2, 3)):
        has_committed = end >= high_watermark
        has_earlier_epochs = epoch_start is not None and end >= epoch_start
        joins = may_join(progress(end, NEVER_MS), high_watermark=high_watermark, epoch_start_offset=epoch_start)
        assert joins == (has_committed and has_earlier_epochs)


def test_follower_leaves_if_it_is_behind_and_was_so_for_too_long() -> None:
    for end_a, end_b, time_a, time_b, isr in product(OFFSETS, OFFSETS, CAUGHT_UP, CAUGHT_UP, isrs()):
        followers = {A: progress(end_a, time_a), B: progress(end_b, time_b)}
        lagging = out_of_sync(isr, followers, leader_end_offset=3, now_ms=NOW_MS, lag_ms_max=LAG_MS)
        expected = {
            replica
            for replica, end, time in ((A, end_a, time_a), (B, end_b, time_b))
            if replica in isr and end != 3 and time < NOW_MS - LAG_MS
        }
        assert lagging.keys() == expected


def test_lag_is_reported_in_words() -> None:
    followers = {A: progress(5, 940), B: FollowerProgress()}
    lagging = out_of_sync((ME, A, B), followers, leader_end_offset=8, now_ms=NOW_MS, lag_ms_max=LAG_MS)
    assert lagging == {
        A: "end offset 5, leader 8; last caught up 60 ms ago",
        B: "end offset unknown, leader 8; last caught up never",
    }


@pytest.mark.parametrize(
    ("fetches", "expected"),
    [
        ([(0, 0, 10)], 10),
        ([(0, 5, 10)], NEVER_MS),
        ([(0, 5, 10), (5, 8, 20)], 10),
        ([(0, 5, 10), (4, 8, 20)], NEVER_MS),
        ([(0, 5, 10), (5, 8, 20), (8, 12, 30)], 20),
        ([(5, 5, 10), (5, 8, 20), (8, 12, 30)], 20),
        ([(5, 5, 10), (5, 8, 20), (6, 12, 30)], 10),
    ],
    ids=[
        "at the end",
        "behind",
        "at the end of the fetch before",
        "not even there",
        "always one fetch behind",
        "was at the end, then one fetch behind",
        "falls behind",
    ],
)
def test_caught_up_time_is_that_of_the_last_end_that_was_reached(
    fetches: list[tuple[int, int, int]], expected: int
) -> None:
    follower = FollowerProgress()
    for offset, leader_end, now_ms in fetches:
        follower.fetched(offset, 0, leader_end, -1, now_ms)
    assert follower.caught_up_ms == expected


def test_fetch_of_a_session_confirms_only_a_follower_at_the_end() -> None:
    at_the_end, behind = FollowerProgress(), FollowerProgress()
    at_the_end.fetched(5, 0, 5, -1, 10)
    behind.fetched(4, 0, 5, -1, 10)
    for follower in (at_the_end, behind):
        follower.confirm(500)
    assert (at_the_end.caught_up_ms, behind.caught_up_ms) == (500, NEVER_MS)


def test_fetch_of_a_session_confirms_nothing_in_a_new_leader_epoch_before_the_follower_fetches_in_it() -> None:
    """The session may be that of a follower which knows only the old epoch, as one that is being stopped."""
    follower = FollowerProgress()
    follower.fetched(5, 0, 5, -1, 10)
    follower.leader_elected_again(5, 20, is_in_sync=False)
    follower.confirm(30)
    assert follower.caught_up_ms == NEVER_MS
    follower.fetched(5, 0, 5, -1, 40)
    follower.confirm(50)
    assert follower.caught_up_ms == 50


def test_larger_set_counts_while_a_change_is_in_flight() -> None:
    assert IsrChange((ME,), (ME, A), 0, 0, {}, {}).maximal == (ME, A)
    assert IsrChange((ME, A, B), (ME,), 0, 0, {}, {}).maximal == (ME, A, B)


def test_follower_that_restarts_with_an_older_protocol_names_no_epoch_any_more() -> None:
    follower = FollowerProgress()
    for broker_epoch, known in ((7, 7), (5, 7), (UNKNOWN_BROKER_EPOCH, UNKNOWN_BROKER_EPOCH), (9, 9)):
        follower.fetched(0, 0, 0, broker_epoch, 1)
        assert follower.broker_epoch == known
