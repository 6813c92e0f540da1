"""acks=all through the whole broker: a request waits without a task, and gets its outcome within the deciding event."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.loop.promise import Promise
from broker.metrics.subjects.replicas import waiting_metrics
from broker.replica.partition import Partition
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker, running_broker

FOLLOWER = 1
VERSION = 9


class Leader:
    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.partition = self.lead_with_follower("t")

    def lead_with_follower(self, topic: str) -> Partition:
        partition = self.broker.services.replica_manager.find(topic, 0)
        assert partition is not None
        both = (0, FOLLOWER)
        partition.lead(replace(partition.leadership, leader_epoch=1, isr=both, replicas=both), 0)
        return partition

    def request(self, *topics: str, timeout_ms: int = 60_000) -> bytes:
        batch = build_batch([RecordData(timestamp=1, key=None, value=b"v")])
        data = [
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            for topic in topics
        ]
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=data)
        return request_header(0, VERSION, 7, "test") + b"".join(encode(request, VERSION))

    async def produce(self, timeout_ms: int = 60_000) -> ErrorCode:
        batch = build_batch([RecordData(timestamp=1, key=None, value=b"v")])
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        response = await self.broker.ask(ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data]), VERSION)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t")
        yield Leader(broker)


async def parked(leader: Leader, timeout_ms: int = 60_000) -> asyncio.Task[ErrorCode]:
    producing = asyncio.ensure_future(leader.produce(timeout_ms))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not producing.done()
    return producing


async def test_waiting_requests_cost_no_task(leader: Leader) -> None:
    before = len(asyncio.all_tasks())
    frame = leader.request("t")
    for _ in range(50):
        leader.broker.dispatcher.dispatch(memoryview(bytearray(frame)), leader.broker.channel)
    assert leader.broker.services.replica_manager.produce_purgatory.delayed_count == 50
    assert len(asyncio.all_tasks()) == before


async def test_commit_ends_the_wait(leader: Leader) -> None:
    producing = await parked(leader)
    leader.broker.services.replica_manager.follower_fetched(leader.partition, FOLLOWER, 1, 0)
    assert await producing is ErrorCode.NONE


async def test_wait_of_a_lost_client_ends_and_its_record_stays(leader: Leader) -> None:
    producing = await parked(leader)
    purgatory = leader.broker.services.replica_manager.produce_purgatory
    assert purgatory.delayed_count == 1
    producing.cancel()
    await asyncio.wait({producing})
    assert purgatory.delayed_count == 0
    leader.broker.services.replica_manager.follower_fetched(leader.partition, FOLLOWER, 1, 0)
    assert (purgatory.watched_count, leader.partition.log.high_watermark) == (0, 1)


async def test_lost_leadership_ends_the_wait_with_an_error(leader: Leader) -> None:
    producing = await parked(leader)
    leader.partition.follow(replace(leader.partition.leadership, leader_id=FOLLOWER, leader_epoch=2))
    leader.broker.services.replica_manager.produce_purgatory.check_and_complete(("t", 0))
    assert await producing is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_wait_ends_at_the_deadline_of_the_request(leader: Leader) -> None:
    assert await leader.produce(timeout_ms=1) is ErrorCode.REQUEST_TIMED_OUT
    assert leader.partition.log.log_end_offset == 1, "the record stays"


class Frame(bytearray):
    """The bytes of a request, whose end can be observed."""


@pytest.mark.parametrize("end", ["event", "deadline"])
async def test_completed_request_leaves_memory_although_its_other_partition_is_quiet(leader: Leader, end: str) -> None:
    await leader.broker.create_topic("quiet")
    quiet = leader.lead_with_follower("quiet")
    frame = Frame(leader.request("t", "quiet", timeout_ms=60_000 if end == "event" else 0))
    kept = weakref.ref(frame)
    response = leader.broker.dispatcher.dispatch(memoryview(frame), leader.broker.channel)
    del frame
    manager = leader.broker.services.replica_manager
    assert isinstance(response, Promise)
    if end == "event":
        for partition in (quiet, leader.partition):
            manager.follower_fetched(partition, FOLLOWER, 1, 0)
    else:
        await response
    leader.broker.channel.completed.clear()
    assert response.done()
    assert manager.produce_purgatory.watched_count > 0
    del response
    assert kept() is None


async def test_partition_that_is_late_is_counted_and_others_of_its_request_are_not(leader: Leader) -> None:
    await leader.broker.create_topic("other")
    batch = build_batch([RecordData(timestamp=1, key=None, value=b"v")])
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
        for name in ("t", "other")
    ]
    await leader.broker.ask(ProduceRequest(acks=-1, timeout_ms=1, topic_data=data), VERSION)
    services = leader.broker.services
    metrics = waiting_metrics(
        services.replica_manager, services.fetch_sessions, services.topics.purgatory, services.groups
    )
    expired = next(it for it in metrics if it.bean == "kafka.server:type=DelayedProduceMetrics,name=ExpiresPerSec")
    assert expired.tags == ("topic", "partition")
    assert list(expired.read()) == [((), 1), (("t", "0"), 1)]
    services.replica_manager.produce_purgatory.expired_counts["gone", 0] += 1
    assert list(expired.read()) == [((), 2), (("t", "0"), 1)], "deleted partitions stay in the sum"
