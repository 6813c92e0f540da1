"""Sessions: when they expire, and which ids and timeouts they get."""

from __future__ import annotations

import pytest

from controller.coordination.machine.sessions import Sessions, StoredSession, Timeouts

TIMEOUTS = Timeouts(tick_ms=500, min_ms=1000, max_ms=60_000)
PASSWORD = bytes(16)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions([], 0, TIMEOUTS, now_ms=0)


def expire_every_tick(sessions: Sessions, from_ms: int, until_ms: int) -> list[tuple[int, list[int]]]:
    """End sessions every tick, and return when which expired."""
    found = []
    for now_ms in range(from_ms, until_ms + 1, TIMEOUTS.tick_ms):
        if ids := sessions.expired(now_ms):
            found.append((now_ms, ids))
        for session_id in ids:
            sessions.end(session_id)
    return found


def test_session_expires_after_its_timeout_without_a_request(sessions: Sessions) -> None:
    silent = sessions.begin(2000, PASSWORD, 0, wall_ms=1)
    busy = sessions.begin(2000, PASSWORD, 0, wall_ms=1)
    assert expire_every_tick(sessions, 500, 1500) == []
    sessions.touch(busy, 1500)
    assert expire_every_tick(sessions, 2000, 3000) == [(2000, [silent.id])]
    assert expire_every_tick(sessions, 3500, 3500) == [(3500, [busy.id])]


@pytest.mark.parametrize(
    ("asked_ms", "given_ms"), [(-1, 1000), (1, 1000), (1000, 1000), (7000, 7000), (1 << 30, 60_000)]
)
def test_timeouts_are_between_two_bounds(sessions: Sessions, asked_ms: int, given_ms: int) -> None:
    session = sessions.begin(asked_ms, PASSWORD, 0, wall_ms=1)
    assert session.timeout_ms == given_ms
    assert sessions.resume(session.id, PASSWORD, asked_ms, 0) is session


def test_time_in_which_the_server_was_halted_counts_for_no_session(sessions: Sessions) -> None:
    session = sessions.begin(2000, PASSWORD, 0, wall_ms=1)
    assert sessions.expired(500) == []
    assert sessions.expired(100_000) == [], "the requests of its client wait in the socket"
    assert expire_every_tick(sessions, 100_500, 102_000) == [(101_000, [session.id])]


def test_ids_rise_when_the_clock_is_set_back_and_over_restarts(sessions: Sessions) -> None:
    ids = [sessions.begin(2000, PASSWORD, 0, wall_ms).id for wall_ms in (5, 5, 3)]
    again = Sessions([], sessions.last_id, TIMEOUTS, now_ms=0)
    ids.append(again.begin(2000, PASSWORD, 0, wall_ms=1).id)
    assert ids == sorted(set(ids))


def test_restart_counts_the_timeouts_anew() -> None:
    stored = StoredSession(7, PASSWORD, 2000)
    sessions = Sessions([stored], 7, TIMEOUTS, now_ms=1_000_000)
    assert sessions.resume(7, b"x" * 16, 2000, 1_000_000) is None
    assert sessions.resume(7, None, 2000, 1_000_000) is None
    assert expire_every_tick(sessions, 1_000_500, 1_002_000) == [(1_002_000, [7])]
    assert sessions.take_changed() == [(7, None)]
    assert sessions.take_changed() == []
