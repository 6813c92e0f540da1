"""Mute times end in their order, with one timer for all connections."""

from collections.abc import Callable

import pytest

from broker.network.channel import Hold
from broker.network.muted_connections import MutedConnections
from tests.support.manual_clock import ManualClock


class Timers:
    """Calls that a test lets come."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.pending.append((delay_s, callback))

    def fire(self) -> None:
        pending, self.pending = self.pending, []
        for _, callback in pending:
            callback()


class Client:
    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self, reason: int) -> None:
        self.released.append(reason)


def test_each_connection_is_released_when_its_time_has_passed() -> None:
    clock, timers = ManualClock(), Timers()
    muted = MutedConnections(clock.monotonic_ms, timers.call_later)
    first, second, third = Client(), Client(), Client()
    for client, duration_ms in ((second, 200), (third, 300), (first, 100)):
        muted.mute(client, duration_ms)
    assert [delay_s for delay_s, _ in timers.pending] == [0.2, 0.1], "only an earlier end needs another call"
    for due in (1, 2, 3):
        clock.advance(100)
        timers.fire()
        assert [bool(client.released) for client in (first, second, third)] == [True] * due + [False] * (3 - due)
    assert first.released == [Hold.THROTTLED]
    assert muted.count == 0
    assert timers.pending == []


def test_early_call_is_repeated() -> None:
    clock, timers = ManualClock(), Timers()
    muted = MutedConnections(clock.monotonic_ms, timers.call_later)
    client = Client()
    muted.mute(client, 100)
    timers.fire()
    assert client.released == []
    assert [delay_s for delay_s, _ in timers.pending] == [0.1]


def test_a_release_that_fails_leaves_no_other_connection_muted() -> None:
    class Broken(Client):
        def release(self, reason: int) -> None:
            raise ZeroDivisionError

    clock, timers = ManualClock(), Timers()
    muted = MutedConnections(clock.monotonic_ms, timers.call_later)
    other, later = Client(), Client()
    for client, duration_ms in ((Broken(), 100), (other, 100), (later, 200)):
        muted.mute(client, duration_ms)
    clock.advance(100)
    with pytest.raises(ZeroDivisionError):
        timers.fire()
    timers.fire()
    assert (bool(other.released), bool(later.released)) == (True, False)
    clock.advance(100)
    timers.fire()
    assert later.released
