"""Failures during production: what was acknowledged exists once, in order, and production continues."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.cluster.conftest import PARTITIONS, create_topic
from tests.cluster.load import (
    NumberedLoad,
    assert_exactly_once,
    assert_gap_at_most,
    assert_nothing_is_lost,
    read_topic,
)
from tests.support.cluster import LAG_TIME_S, SESSION_TIMEOUT_S, Cluster, log_bytes

MARGIN_S = 3.0
"""The longest pause of production beyond the time after which a failure is noticed (RV-1)."""

Failure = Callable[[Cluster, str, NumberedLoad], None]


def kill_the_leader(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    leader = cluster.leader(topic)
    cluster.kill(leader)
    load.wait_for(100)
    assert cluster.leader(topic) != leader
    cluster.start(leader)


def kill_a_follower(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    follower = cluster.follower(topic)
    cluster.kill(follower)
    load.wait_for(300)
    cluster.start(follower)


def kill_the_controller(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    controller = cluster.controller()
    cluster.kill(controller)
    load.wait_for(100)
    assert cluster.controller() != controller
    assert create_topic(cluster, 1, replicas=2)
    cluster.start(controller)


def halt_the_leader(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    leader = cluster.leader(topic)
    with cluster.halted(leader):
        assert cluster.leader(topic) != leader
        load.wait_for(100)


def halt_the_controller(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    controller = cluster.controller()
    with cluster.halted(controller):
        assert cluster.controller() != controller
        load.wait_for(100)


def roll(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    for broker_id in cluster.brokers:
        cluster.restart(broker_id)
        cluster.wait_until_in_sync(topic)
        load.wait_for(20)


def kill_all_at_once(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    cluster.kill(*cluster.brokers)
    cluster.start(*cluster.brokers)
    load.wait_for(100)


def wipe_a_broker(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    leader = cluster.leader(topic)
    cluster.kill(leader)
    cluster.wipe(leader)
    load.wait_for(50)
    cluster.start(leader)
    load.wait_for(50)


def kill_zookeeper(cluster: Cluster, topic: str, load: NumberedLoad) -> None:
    cluster.zookeeper.kill()
    load.wait_for(200)
    cluster.zookeeper.start()
    load.wait_for(50)


@pytest.mark.parametrize(
    ("failure", "noticed_s"),
    [
        pytest.param(kill_the_leader, SESSION_TIMEOUT_S, id="leader-killed"),
        pytest.param(kill_a_follower, SESSION_TIMEOUT_S, id="follower-killed"),
        pytest.param(halt_the_leader, SESSION_TIMEOUT_S + LAG_TIME_S, id="leader-halted"),
        pytest.param(roll, 0, id="brokers-rolled"),
        pytest.param(kill_zookeeper, 0, id="zookeeper-killed"),
        pytest.param(wipe_a_broker, SESSION_TIMEOUT_S, id="broker-replaced"),
        pytest.param(kill_all_at_once, SESSION_TIMEOUT_S + 10, id="all-killed"),
    ],
)
def test_nothing_acknowledged_is_lost(cluster: Cluster, topic: str, failure: Failure, noticed_s: float) -> None:
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
        failure(cluster, topic, load)
        cluster.heal(topic)
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    assert_gap_at_most(load, noticed_s + MARGIN_S)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(kill_the_controller, id="controller-killed"),
        pytest.param(halt_the_controller, id="controller-halted"),
    ],
)
def test_another_broker_becomes_controller(cluster: Cluster, topic: str, failure: Failure) -> None:
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
        failure(cluster, topic, load)
        cluster.heal(topic)
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    assert cluster.leader(create_topic(cluster, 1)) in cluster.running


def test_producer_without_idempotence_loses_nothing(cluster: Cluster, topic: str) -> None:
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, idempotent=False) as load:
        kill_the_leader(cluster, topic, load)
        cluster.heal(topic)
    assert_nothing_is_lost(load.acknowledged, read_topic(cluster.bootstrap, topic, PARTITIONS))


def test_replicas_are_equal_byte_for_byte_after_a_clean_stop(cluster: Cluster) -> None:
    topic = create_topic(cluster, segment_bytes="16384")
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, rate=2000) as load:
        kill_the_leader(cluster, topic, load)
        cluster.heal(topic)
        load.wait_for(500)
    cluster.wait_until_in_sync(topic)
    for broker in cluster.brokers.values():
        broker.stop()
    for partition in range(PARTITIONS):
        one, *others = log_bytes(cluster.brokers.values(), topic, partition)
        assert len(one) > 16384
        assert all(other == one for other in others)


@pytest.mark.soak
@pytest.mark.parametrize("round_number", range(20))
def test_leader_killed_again_and_again(cluster: Cluster, topic: str, round_number: int) -> None:
    deadline = time.monotonic() + 60
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
        while time.monotonic() < deadline:
            kill_the_leader(cluster, topic, load)
            cluster.heal(topic)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    assert_gap_at_most(load, SESSION_TIMEOUT_S + MARGIN_S)
