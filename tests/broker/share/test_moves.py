"""A share group in a cluster of three brokers, whose leaders and coordinators move."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker.share.machine.records import ShareKey, text_of
from protocol.errors import ErrorCode
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC
from protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, RequestedGroup
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.records.builder import RecordData, build_batch
from tests.broker.cluster.test_control_channels import create
from tests.broker.coordination.test_moved_coordinators import coordinator_of
from tests.support.in_process import InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

TOPIC, GROUP, PARTITIONS = "shared", "workers", 3
BROKERS = (1, 2, 3)
DELIVERIES_MAX = 3
ACCEPT, RELEASE, REJECT = 1, 2, 3
SETTINGS = {
    "group.coordinator.rebalance.protocols": "classic,share",
    "group.share.delivery.count.limit": str(DELIVERIES_MAX),
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "3",
    "replica.fetch.wait.max.ms": "20",
    "replica.lag.time.max.ms": "2000",
}
MOVING = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
Place = tuple[int, int]
"""A partition and an offset."""


class Workers:
    """The members of a group, what was written, and what they are done with."""

    def __init__(self, cluster: InProcessCluster, chance: Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.written = [0] * PARTITIONS
        self.done: set[Place] = set()
        self.epochs: dict[tuple[str, InProcessBroker], int] = {}
        self.held: dict[str, dict[Place, int]] = {}
        """What each member was given, with the delivery counts."""

    @property
    def topic_id(self) -> UUID:
        return self.any_broker.services.metadata_cache.topics[TOPIC].topic_id

    @property
    def any_broker(self) -> InProcessBroker:
        return next(iter(self.cluster.brokers.values()))

    def leader_of(self, partition: int, topic: str = TOPIC) -> InProcessBroker | None:
        return self.cluster.brokers.get(self.any_broker.services.metadata_cache.leader_of(topic, partition))

    async def ask_group_coordinator(self, request: Any, version: int) -> Any:
        while True:
            broker = self.cluster.brokers[await coordinator_of(self.cluster, GROUP, 0)]
            response = await broker.ask(request, version)
            groups = getattr(response, "groups", None)
            if (groups[0] if groups else response).error_code not in MOVING:
                return response
            await asyncio.sleep(0.01)

    async def begin(self) -> None:
        """Create the topic and the group, which begins with the first record."""
        await create(self.cluster, TOPIC, *([*BROKERS[number:], *BROKERS[:number]] for number in range(PARTITIONS)))
        await until(
            lambda: all(self.cluster.services(each).metadata_cache.has_leaders(TOPIC, PARTITIONS) for each in BROKERS)
        )
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[config])
        await self.any_broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        await until(lambda: all(GROUP in self.cluster.services(each).group_configs.settings for each in BROKERS))
        async with asyncio.timeout(20):
            while sum(map(len, await self.heartbeat("ann"))) < PARTITIONS:
                pass

    async def heartbeat(self, member_id: str, epoch: int = 0) -> list[list[int]]:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=[TOPIC]
        )
        response = await self.ask_group_coordinator(request, 1)
        assert response.error_code == 0, response
        return [each.partitions for each in response.assignment.topic_partitions]

    async def start_offsets(self) -> list[int]:
        request = DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=GROUP, topics=None)])
        while True:
            response = await self.ask_group_coordinator(request, 0)
            partitions = response.groups[0].topics[0].partitions
            if not any(each.error_code for each in partitions):
                return [each.start_offset for each in sorted(partitions, key=lambda each: each.partition_index)]

    async def produce(self, partition: int, count: int) -> None:
        broker = self.leader_of(partition)
        if broker is None:
            return
        records = build_batch([RecordData(timestamp=1, key=None, value=b"v") for _ in range(count)])
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=records)])
        response = await broker.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]))
        result = response.responses[0].partition_responses[0]
        if not result.error_code:
            self.written[partition] = result.base_offset + count

    async def ask_for(self, broker: InProcessBroker, member_id: str, partition: int, epoch: int, count: int) -> Any:
        """Return the response to a ShareFetch."""
        wanted = FetchPartition(partition_index=partition, acknowledgement_batches=[])
        return await broker.ask(
            ShareFetchRequest(
                group_id=GROUP,
                member_id=member_id,
                share_session_epoch=epoch,
                max_wait_ms=0,
                min_bytes=1,
                max_records=count,
                batch_size=count,
                topics=[FetchTopic(topic_id=self.topic_id, partitions=[wanted])],
                forgotten_topics_data=[],
            ),
            1,
        )

    async def leader_named_by(self, broker: InProcessBroker, partition: int) -> int:
        """Return the leader that a broker names which does not lead the partition."""
        async with asyncio.timeout(20):
            while True:
                response = await self.ask_for(broker, "lost", partition, 0, 1)
                ((found,),) = (topic.partitions for topic in response.responses)
                if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    return int(found.current_leader.leader_id)

    async def fetch(self, member_id: str, partition: int, count: int) -> None:
        """Fetch a partition from its leader, if it has one."""
        broker = self.leader_of(partition)
        if broker is None:
            return
        epoch = self.epochs.get((member_id, broker), 0)
        response = await self.ask_for(broker, member_id, partition, epoch, count)
        if epoch == 0:  # it has lost what it got in the session before
            led = {place for place in self.held.get(member_id, ()) if self.leader_of(place[0]) is broker}
            self.held[member_id] = {k: v for k, v in self.held.get(member_id, {}).items() if k not in led}
        if response.error_code:
            assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND, response
            self.epochs.pop((member_id, broker), None)
            return
        self.epochs[member_id, broker] = epoch + 1
        for topic in response.responses:
            for found in topic.partitions:
                for batch in found.acquired_records:
                    for offset in range(batch.first_offset, batch.last_offset + 1):
                        place = found.partition_index, offset
                        assert place not in self.done, f"{place} was acknowledged"
                        assert 1 <= batch.delivery_count <= DELIVERIES_MAX, batch
                        for others in self.held.values():
                            others.pop(place, None)  # they have lost it, if a leader has moved
                        self.held.setdefault(member_id, {})[place] = batch.delivery_count

    async def acknowledge(self, member_id: str, places: Sequence[Place], kind: int) -> None:
        """Acknowledge records of one partition."""
        partition = places[0][0]
        broker = self.leader_of(partition)
        if broker is None or (member_id, broker) not in self.epochs:
            return
        batches = [
            AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            for _, offset in sorted(places)
        ]
        acknowledged = AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)
        response = await broker.ask(
            ShareAcknowledgeRequest(
                group_id=GROUP,
                member_id=member_id,
                share_session_epoch=self.epochs[member_id, broker],
                topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[acknowledged])],
            ),
            1,
        )
        counts = {place: self.held[member_id].pop(place) for place in places}
        if response.error_code:
            self.epochs.pop((member_id, broker), None)
            return
        self.epochs[member_id, broker] += 1
        if not response.responses[0].partitions[0].error_code:
            self.done |= {place for place in places if kind != RELEASE or counts[place] == DELIVERIES_MAX}

    async def step(self) -> None:
        chance = self.chance
        member_id, partition = chance.choice(("ann", "bob", "cleo")), chance.randrange(PARTITIONS)
        held = [place for place in self.held.get(member_id, ()) if place[0] == partition]
        match chance.randrange(4):
            case 0:
                await self.produce(partition, chance.randrange(1, 9))
            case 1 | 2 if held:
                some = chance.sample(held, chance.randrange(1, len(held) + 1))
                await self.acknowledge(member_id, some, chance.choice((ACCEPT, ACCEPT, RELEASE, REJECT)))
            case _:
                await self.fetch(member_id, partition, chance.randrange(1, 12))

    async def finish(self) -> None:
        """Let one member do all that is left, and compare what is stored with what was written."""
        for key, broker in list(self.epochs):
            if broker in self.cluster.brokers.values():
                closing = ShareAcknowledgeRequest(group_id=GROUP, member_id=key, share_session_epoch=-1, topics=[])
                await broker.ask(closing, 1)
        self.epochs.clear()
        async with asyncio.timeout(20):
            while await self.start_offsets() != self.written:
                for partition in range(PARTITIONS):
                    await self.fetch("last", partition, 100)
                    if held := [place for place in self.held.get("last", ()) if place[0] == partition]:
                        await self.acknowledge("last", held, ACCEPT)

    async def share_coordinator(self, partition: int) -> int:
        return await coordinator_of(self.cluster, text_of(ShareKey(GROUP, self.topic_id, partition)), 2)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_acknowledged_is_delivered_again_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    async with running_cluster(tmp_path, BROKERS, SETTINGS) as cluster:
        workers = Workers(cluster, Random(seed))
        await workers.begin()
        for role in ("leader", "share coordinator", "group coordinator"):
            for _ in range(40):
                await workers.step()
            match role:
                case "leader":
                    moved = workers.any_broker.services.metadata_cache.leader_of(TOPIC, 0)
                case "share coordinator":
                    moved = await workers.share_coordinator(0)
                case _:
                    moved = await coordinator_of(cluster, GROUP, 0)
            await cluster.stop(moved)
            for _ in range(40):
                await workers.step()
            await cluster.start(moved)
            await cluster.see_each_other()
            if role == "leader":
                leader = workers.any_broker.services.metadata_cache.leader_of(TOPIC, 0)
                assert await workers.leader_named_by(cluster.brokers[moved], 0) == leader != moved
        await workers.finish()
        assert cluster.services(1).metadata_cache.partition_count(SHARE_GROUP_STATE_TOPIC) == 4
