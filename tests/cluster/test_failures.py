"""Failures during production: what was acknowledged exists once, in order, and production continues."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from tests.cluster.conftest import PARTITIONS, create_topic
from tests.cluster.load import (
    GapLimit,
    NumberedLoad,
    assert_exactly_once,
    assert_nothing_is_lost,
    read_topic,
)
from tests.support.cluster import LAG_TIME_S, SESSION_TIMEOUT_S, Cluster, log_bytes

PAYMENTS, LATENCY_MAX_S = 100_000, 0.5
MARGIN_S = 3.0
"""The longest pause of production beyond the time after which a failure is noticed (RV-1)."""

Failure = Callable[[Cluster, str, NumberedLoad], None]


def kill_the_leader(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    leader = cluster.leader(topic)
    with load.burst():
        cluster.kill(leader)
    load.wait_for(100)
    assert cluster.leader(topic) != leader
    cluster.start(leader)


def kill_a_follower(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    follower = cluster.follower(topic)
    with load.burst():
        cluster.kill(follower)
    load.wait_for(150)
    cluster.start(follower)


def kill_the_controller(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    controller = cluster.controller()
    led = partition_led_by(cluster, topic, controller)
    with load.burst():
        cluster.kill(controller)
    load.wait_for(100)
    assert cluster.controller() != controller
    assert cluster.leader(topic, led) != controller
    assert create_topic(cluster, 1, replicas=2)
    cluster.start(controller)


def halt_the_leader(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    leader = cluster.leader(topic)
    with cluster.halted(leader):
        assert cluster.leader(topic) != leader
        load.wait_for(100)


def halt_the_controller(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    controller = cluster.controller()
    led = partition_led_by(cluster, topic, controller)
    with cluster.halted(controller):
        assert cluster.controller() != controller
        assert cluster.leader(topic, led) != controller
        load.wait_for(100)


def partition_led_by(cluster: Cluster, topic: str, broker_id: int) -> int:
    """Return the partition that a broker leads: each broker leads one of a new topic."""
    (led,) = (index for index, (leader, *_) in cluster.partitions(topic).items() if leader == broker_id)
    return led


def roll(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    for broker_id in cluster.brokers:
        cluster.restart(broker_id)
        cluster.wait_until_in_sync(topic)
        load.wait_for(20)


def wipe_a_broker(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    leader = cluster.leader(topic)
    with load.burst():
        cluster.kill(leader)
    cluster.wipe(leader)
    load.wait_for(50)
    cluster.start(leader)
    load.wait_for(50)


def kill_zookeeper(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    cluster.zookeeper.kill()
    load.wait_for(100)
    cluster.zookeeper.start()
    load.wait_for(50)


@pytest.mark.parametrize(
    ("failure", "noticed_s"),
    [
        pytest.param(kill_a_follower, SESSION_TIMEOUT_S, id="follower-killed"),
        pytest.param(halt_the_leader, SESSION_TIMEOUT_S + LAG_TIME_S, id="leader-halted", marks=pytest.mark.soak),
        pytest.param(roll, 0, id="brokers-rolled"),
        pytest.param(kill_zookeeper, 0, id="zookeeper-killed"),
        pytest.param(wipe_a_broker, SESSION_TIMEOUT_S, id="broker-replaced"),
    ],
)
def test_nothing_acknowledged_is_lost(cluster: Cluster, topic: str, failure: Failure, noticed_s: float) -> None:
    with (
        GapLimit(cluster, noticed_s + MARGIN_S) as limit,
        NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load,
    ):
        failure(cluster, topic, load)
        cluster.heal(topic)
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    limit.check(load)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(kill_the_controller, id="controller-killed"),
        pytest.param(halt_the_controller, id="controller-halted"),
    ],
)
def test_another_broker_becomes_controller(cluster: Cluster, topic: str, failure: Failure) -> None:
    """The controller leads one of the partitions, so this partition gets another leader as well."""
    with (
        GapLimit(cluster, SESSION_TIMEOUT_S + LAG_TIME_S + MARGIN_S) as limit,
        NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load,
    ):
        failure(cluster, topic, load)
        cluster.heal(topic)
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    limit.check(load)
    assert cluster.leader(create_topic(cluster, 1)) in cluster.running


def test_killed_leader_loses_nothing_and_all_replicas_are_equal_after_a_clean_stop(cluster: Cluster) -> None:
    """With and without an idempotent producer."""
    topic, other = create_topic(cluster, segment_bytes="4096"), create_topic(cluster)
    with (
        GapLimit(cluster, SESSION_TIMEOUT_S + MARGIN_S) as limit,
        NumberedLoad(cluster.bootstrap, topic, PARTITIONS, rate=200) as load,
        NumberedLoad(cluster.bootstrap, other, PARTITIONS, idempotent=False) as unsafe,
    ):
        kill_the_leader(cluster, topic, load)
        cluster.heal(topic, other)
        load.wait_for(100)
        unsafe.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    assert_nothing_is_lost(unsafe.acknowledged, read_topic(cluster.bootstrap, other, PARTITIONS))
    limit.check(load)
    cluster.wait_until_in_sync(topic, other)
    for broker in cluster.brokers.values():
        broker.stop()
    for name in (topic, other):
        for partition in range(PARTITIONS):
            one, *others = log_bytes(cluster.brokers.values(), name, partition)
            assert len(one) > (4096 if name == topic else 0)
            assert all(it == one for it in others)


@pytest.mark.soak
@pytest.mark.parametrize("round_number", range(20))
def test_leader_killed_again_and_again(cluster: Cluster, topic: str, round_number: int) -> None:
    deadline = time.monotonic() + 60
    with (
        GapLimit(cluster, SESSION_TIMEOUT_S + MARGIN_S) as limit,
        NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load,
    ):
        while time.monotonic() < deadline:
            kill_the_leader(cluster, topic, load)
            cluster.heal(topic)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    limit.check(load)


@pytest.mark.soak
def test_payments_are_stored_once_through_failures_and_fast_outside_of_them(cluster: Cluster, topic: str) -> None:
    """Card payments: none is lost or stored twice, and 99 of 100 are acknowledged within half a second."""
    failures = (kill_a_follower, kill_the_leader, kill_zookeeper, roll, halt_the_leader)
    windows: list[tuple[float, float]] = []
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, rate=1_000) as load:
        windows.append((0, time.monotonic()))  # until the producer has its id
        while len(load.acknowledged) < PAYMENTS:
            for failure in failures:
                load.wait_for(PAYMENTS // 20)
                start_s = time.monotonic()
                failure(cluster, topic, load)
                cluster.heal(topic)
                load.wait_for(100)
                windows.append((start_s, time.monotonic()))
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    calm = [
        latency_s
        for sent_s, latency_s in load.latencies_s
        if not any(start_s - LATENCY_MAX_S <= sent_s <= end_s for start_s, end_s in windows)
    ]
    slowest_s = statistics.quantiles(calm, n=100)[-1]
    print(
        f"{len(load.acknowledged)} payments, {len(windows) - 1} failures; 99 % of {len(calm)} within {slowest_s:.3f} s"
    )
    assert slowest_s <= LATENCY_MAX_S
