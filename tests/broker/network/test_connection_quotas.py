"""Limits of connections, counted without sockets."""

import random

import pytest

from broker.network.connection_quotas import (
    UNLIMITED,
    ConnectionLimits,
    ConnectionQuotas,
    CreationRate,
    ListenerLimits,
    ThrottleTimes,
)

HOST = "10.0.0.1"


def unlimited(host: str) -> None:
    """The rate of an address."""


def test_the_broker_limit_counts_all_listeners_together() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(connections_max=2), unlimited)
    assert quotas.open("A", HOST)
    assert quotas.open("B", HOST)
    assert not quotas.has_room("A")
    assert not quotas.has_room("B")
    quotas.close("B", HOST)
    assert quotas.has_room("A")
    assert quotas.count == 1


def test_listener_has_its_own_limit() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(by_listener={"A": ListenerLimits(connections_max=1)}), unlimited)
    assert quotas.open("A", HOST)
    assert not quotas.has_room("A")
    assert quotas.has_room("B")


def test_protected_listener_may_exceed_the_broker_limit_but_not_its_own() -> None:
    limits = ConnectionLimits(
        connections_max=1, by_listener={"INTERNAL": ListenerLimits(connections_max=2)}, protected_listener="INTERNAL"
    )
    quotas = ConnectionQuotas(limits, unlimited)
    assert quotas.open("CLIENT", HOST)
    assert quotas.has_room("INTERNAL")
    assert not quotas.is_exceeded
    assert quotas.open("INTERNAL", HOST)
    assert quotas.is_exceeded
    assert quotas.open("INTERNAL", HOST)
    assert not quotas.has_room("INTERNAL")


def test_each_address_is_limited_with_overrides() -> None:
    quotas = ConnectionQuotas(
        ConnectionLimits(per_ip_max=1, per_ip_overrides={"10.0.0.2": 2, "10.0.0.3": 0}), unlimited
    )
    assert [quotas.open("A", HOST) for _ in range(2)] == [True, False]
    assert [quotas.open("A", "10.0.0.2") for _ in range(3)] == [True, True, False]
    assert not quotas.open("B", "10.0.0.3")
    assert quotas.count == 3, "what is refused is not counted"
    quotas.close("A", HOST)
    assert quotas.open("B", HOST)


def test_waiting_connection_is_notified_once_by_a_close_or_a_change() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(connections_max=1), unlimited)
    quotas.open("A", HOST)
    called: list[str] = []
    quotas.when_room(lambda: called.append("closed"))
    quotas.close("A", HOST)
    quotas.open("A", HOST)
    quotas.when_room(lambda: called.append("changed"))
    quotas.reconfigure(ConnectionLimits(connections_max=2))
    assert called == ["closed", "changed"]
    assert quotas.has_room("A")


def test_rates_of_the_broker_and_of_a_listener_both_delay() -> None:
    limits = ConnectionLimits(
        creation_rate_max=10,
        by_listener={"SLOW": ListenerLimits(creation_rate_max=1)},
        protected_listener="INTERNAL",
        window_count=2,
    )
    quotas = ConnectionQuotas(limits, unlimited)
    assert quotas.record_creation("SLOW", 0) == 0
    assert quotas.record_creation("SLOW", 1) == 1000, "a second one in a second"
    assert [quotas.record_creation("FAST", 2) for _ in range(8)] == [0] * 8
    assert quotas.record_creation("FAST", 3) == 100, "the eleventh of the broker"
    assert quotas.record_creation("INTERNAL", 4) == 0, "the broker's rate does not delay brokers"


def test_rate_is_taken_over_the_windows_before_the_present_one() -> None:
    rate = CreationRate(window_count=11, window_ms=1000)
    assert [rate.record(1, 0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert rate.record(1, 11_000) == 0, "the first window is over"


@pytest.mark.parametrize("rate_max", [0, 1, 7, 1000])
def test_many_connections_are_accepted_at_the_rate(rate_max: int) -> None:
    """Clients that wait as long as they are delayed reach the rate in the long run; with a rate of 0, one a window."""
    rate = CreationRate(window_count=11, window_ms=1000)
    now_ms, accepted = 5_000, 0
    end_ms = now_ms + 60_000
    while now_ms < end_ms:
        accepted += 1
        now_ms += rate.record(rate_max, now_ms)
        if accepted > 200_000:
            break
    expected = 60 * (rate_max or 1)
    assert expected * 0.8 <= accepted <= expected * 1.4 + 10


def test_no_connection_is_delayed_without_a_limit() -> None:
    rate = CreationRate(window_count=11, window_ms=1000)
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    now_ms = 0
    for _ in range(1000):
        now_ms += rng.choice([0, 0, 1, 30_000])
        assert rate.record(UNLIMITED, now_ms) == 0, seed


def test_mean_delay_covers_the_last_windows() -> None:
    throttles = ThrottleTimes(window_count=11, window_ms=1000)
    assert throttles.mean_ms(0) == 0
    throttles.record(100, 0)
    throttles.record(300, 5000)
    assert throttles.mean_ms(10_999) == 200
    assert throttles.mean_ms(11_000) == 300
    assert throttles.mean_ms(16_000) == 0
