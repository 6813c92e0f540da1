"""Replication throttles: the rate holds, what is in sync or not listed goes on, and any rate makes progress."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.loop.rates import THROTTLE_MS_MAX
from broker.replica.throttles import UNLIMITED, Direction, FollowerBudget, Throttle, Windows
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until
from tests.support.manual_clock import ManualClock

BROKER, LEADERS, FOLLOWERS = 4, "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
SECOND_MS = 1_000


def throttle(clock: ManualClock, rate: int, direction: Direction = Direction.LEADER) -> Throttle:
    return Throttle(direction, 1, lambda: rate, Windows(11, SECOND_MS), clock.monotonic_ms)


def partition(number: int = 0, isr: tuple[int, ...] = (1,), **settings: str) -> Any:
    config = LogConfig.from_overrides(BrokerConfig.from_properties({}), {})
    named = {key: frozenset(value.split(",")) for key, value in settings.items()}
    return SimpleNamespace(
        partition=number, log=SimpleNamespace(config=replace(config, **named)), leadership=SimpleNamespace(isr=isr)
    )


@pytest.mark.parametrize(
    ("replicas", "concerned"),
    [("*", True), ("0:1", True), ("3:2,0:1", True), ("0:2", False), ("1:1", False), ("00:1", False)],
)
@pytest.mark.parametrize("direction", list(Direction))
def test_list_of_the_topic_names_partition_and_broker(replicas: str, concerned: bool, direction: Direction) -> None:
    own = throttle(ManualClock(), 1, direction)
    named: dict[str, str] = {f"{direction.value}_throttled_replicas": replicas}
    assert own.concerns(partition(**named)) == concerned
    other = "leader" if direction is Direction.FOLLOWER else "follower"
    assert not own.concerns(partition(**{f"{other}_throttled_replicas": replicas}))
    assert not own.concerns(partition())


@pytest.mark.parametrize(("rate", "batch"), [(1_000_000, 16_000), (1_000_000, 3_000_000), (1_000, 16_000), (1, 100)])
def test_rate_holds_whatever_the_size_of_a_batch(rate: int, batch: int) -> None:
    """A batch is sent whenever a byte is left, for ten windows or until ten batches are sent."""
    clock = ManualClock()
    own = throttle(clock, rate)
    sent = 0
    seconds = max(10, 10 * batch // rate)
    for _ in range(seconds * 10):
        while own.left() >= 1:
            own.record(batch)
            sent += batch
        assert own.wait_ms() > 0
        clock.advance(100)
    assert 0.8 * rate * seconds <= sent <= 1.2 * rate * seconds + batch
    assert own.byte_rate <= 1.2 * rate + batch / 10


@pytest.mark.parametrize(("rate", "wait_ms"), [(0, THROTTLE_MS_MAX), (1, 600), (3, 1), (UNLIMITED - 1, 1)])
def test_wait_ends_when_a_whole_byte_is_left(rate: int, wait_ms: int) -> None:
    """A fetcher that waited for less would ask its leader in vain, a thousand times a second."""
    clock = ManualClock()
    own = throttle(clock, rate)
    own.record(rate)  # all that is left at first
    clock.advance(400)
    assert own.wait_ms() == wait_ms
    clock.advance(wait_ms)
    assert own.left() >= 1 or not rate


def test_rate_that_is_raised_or_removed_holds_at_once() -> None:
    clock, rates = ManualClock(), [1_000]
    own = Throttle(Direction.FOLLOWER, 1, lambda: rates[0], Windows(11, SECOND_MS), clock.monotonic_ms)
    own.record(100_000)
    assert own.left() < 1
    clock.advance(SECOND_MS)
    assert own.left() < 1
    rates[0] = 1_000_000
    clock.advance(SECOND_MS)
    assert own.left() >= 1
    rates[0] = UNLIMITED
    own.record(1 << 40)
    assert own.left() == UNLIMITED
    assert not own.is_limited


def test_budget_of_a_response_is_for_throttled_replicas_outside_of_the_isr() -> None:
    own = throttle(ManualClock(), 1_000)
    budget = FollowerBudget(own, BROKER)
    throttled = partition(leader_throttled_replicas="*")
    in_sync = partition(isr=(1, BROKER), leader_throttled_replicas="*")
    assert (budget.of(throttled), budget.of(in_sync), budget.of(partition())) == (1_000, UNLIMITED, UNLIMITED)
    for each in (throttled, in_sync, partition()):
        budget.spend(each, 600)
    assert budget.of(throttled) == 400
    own.record(1_000)
    assert [budget.withholds(each) for each in (throttled, in_sync, partition())] == [True, False, False]


async def produce(cluster: InProcessCluster, topic: str, size: int, count: int) -> None:
    for _ in range(count):
        batch = build_batch([RecordData(1, None, bytes(size))])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        response = await cluster.brokers[1].ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def create(cluster: InProcessCluster, name: str, replicas: list[int], **settings: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    response = await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert not response.topics[0].error_code, response
    await until(lambda: all(each.services.metadata_cache.has_leaders(name, 1) for each in cluster.brokers.values()))


async def reassign(cluster: InProcessCluster, name: str, replicas: list[int]) -> None:
    topic = ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    response = await cluster.controller.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000))
    assert not response.error_code, response


async def set_rate(cluster: InProcessCluster, broker_id: int, name: str, rate: int | None) -> None:
    config = AlterableConfig(name=name, config_operation=int(rate is None), value=None if rate is None else str(rate))
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(broker_id), configs=[config])
    response = await cluster.brokers[broker_id].ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )
    assert not response.responses[0].error_code, response


def end_of(cluster: InProcessCluster, broker_id: int, topic: str) -> int:
    found = cluster.services(broker_id).replica_manager.find(topic, 0)
    return -1 if found is None else found.log.log_end_offset


@pytest.mark.parametrize(
    ("limited", "setting", "listed"),
    [
        (1, "leader.replication.throttled.rate", {LEADERS: "0:1"}),
        (2, "follower.replication.throttled.rate", {FOLLOWERS: "0:2"}),
    ],
    ids=["leader", "follower"],
)
async def test_a_throttled_copy_waits_while_the_others_go_on(
    tmp_path: Path, limited: int, setting: str, listed: dict[str, str]
) -> None:
    """At one byte a second, a copy of 20 batches stops after the first ones; without the throttle it is complete."""
    settings = {"replica.fetch.wait.max.ms": "20", "replica.fetch.max.bytes": "3000"}
    async with running_cluster(tmp_path, (1, 2), settings) as cluster:
        await create(cluster, "slow", [1], **listed)
        await create(cluster, "free", [1])
        await create(cluster, "whole", [1, 2], **listed)
        await set_rate(cluster, limited, setting, 1)
        for topic in ("slow", "free", "whole"):
            await produce(cluster, topic, 1_000, 20)
        assert end_of(cluster, 2, "whole") == 20, "it is in sync, so it is not throttled"
        for topic in ("slow", "free"):
            await reassign(cluster, topic, [1, 2])
        await until(lambda: end_of(cluster, 2, "free") == 20)
        await until(lambda: end_of(cluster, 2, "slow") >= 1)
        for _ in range(10):
            await asyncio.sleep(0.02)
            assert end_of(cluster, 2, "slow") < 20
        throttles = cluster.services(limited).replica_manager.throttles
        assert (throttles.leader if limited == 1 else throttles.follower).byte_rate > 0
        await set_rate(cluster, limited, setting, None)
        await until(lambda: end_of(cluster, 2, "slow") == 20)


async def test_a_copy_into_a_slow_directory_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its appends are planned first. What a follower fetches before it knows that it lags is free."""
    monkeypatch.setattr("storage.disk.directory_writer.FAST_SECONDS_MIN", 1e9)
    async with running_cluster(tmp_path, (1, 2), {"replica.fetch.max.bytes": "1000"}) as cluster:
        for writer in cluster.services(2).log_manager.writers.values():
            writer.is_slow = True
        await create(cluster, "slow", [1], **{FOLLOWERS: "0:2"})
        await set_rate(cluster, 2, "follower.replication.throttled.rate", 1)
        await produce(cluster, "slow", 1_000, 3)
        await reassign(cluster, "slow", [1, 2])
        await until(lambda: end_of(cluster, 2, "slow") >= 2)
        assert cluster.services(2).replica_manager.throttles.follower.byte_rate > 0
