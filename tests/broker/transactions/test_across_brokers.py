"""Transactions whose coordinator and partitions are on different brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.broker.cluster.test_control_channels import create
from tests.support.in_process import InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until


class Producer:
    """A transactional producer of topic t, whose partitions 0 and 1 are led by brokers 1 and 2."""

    def __init__(self, cluster: InProcessCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.coordinator: InProcessBroker
        self.producer_id = -1
        self.sequence = [0, 0]

    async def begin(self) -> int:
        """Find the coordinator and get a producer id; return the coordinator's id."""
        found: Any = None

        async def coordinator() -> bool:
            nonlocal found
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
            found = (await self.cluster.brokers[1].ask(request)).coordinators[0]
            return not found.error_code

        while not await coordinator():
            await until(lambda: "__transaction_state" in self.cluster.services(1).metadata_cache.topics)
        self.coordinator = self.cluster.brokers[found.node_id]
        partitions = self.coordinator.services.transactions.partitions
        await until(lambda: not partitions.are_loading() and any(partitions.active()))
        for services in map(self.cluster.services, self.cluster.brokers):
            await until(lambda: services.metadata_cache.has_leaders("__transaction_state", 4))  # noqa: B023 - in turn
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        response = await self.coordinator.ask(request)
        assert not response.error_code, response
        self.producer_id = response.producer_id
        return int(found.node_id)

    async def add(self, *partitions: int) -> None:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(partitions))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        response = await self.coordinator.ask(request, 3)
        results = response.results_by_topic_v3_and_below[0].results_by_partition
        assert not any(result.partition_error_code for result in results)

    async def produce(self, partition: int) -> ErrorCode:
        batch = build_batch(
            [RecordData(timestamp=1, key=None, value=b"v")],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence[partition],
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        response = await self.cluster.brokers[partition + 1].ask(request, 9)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequence[partition] += 1
        return code

    async def end(self, *, is_committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=0, committed=is_committed
        )
        assert not (await self.coordinator.ask(request)).error_code


async def commit_four(cluster: InProcessCluster) -> None:
    """Commit a record to both partitions of topic t, in transactions of four producers."""
    for name in ("a", "b", "c", "d"):
        producer = Producer(cluster, name)
        await producer.begin()
        await producer.add(0, 1)
        for partition in (0, 1):
            assert await producer.produce(partition) == ErrorCode.NONE
        await producer.end(is_committed=True)


async def last_stable_offset(cluster: InProcessCluster, partition: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])],
    )
    response = await cluster.brokers[partition + 1].ask(request)
    return int(response.topics[0].partitions[0].offset)


async def pause() -> None:
    """Let the loop turn: a marker of another broker is on its way."""
    await asyncio.sleep(0.002)


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
async def test_markers_reach_the_partitions_of_all_brokers(tmp_path: Path, *, is_committed: bool) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2)))
        coordinators = set()
        for name in ("a", "b", "c", "d"):
            producer = Producer(cluster, name)
            coordinators.add(await producer.begin())
            await producer.add(0, 1)
            for partition in (0, 1):
                before = await last_stable_offset(cluster, partition)
                assert await producer.produce(partition) == ErrorCode.NONE
                assert await last_stable_offset(cluster, partition) == before, "the transaction is open"
            ends = [cluster.services(each + 1).replica_manager.find("t", each) for each in (0, 1)]
            before_markers = [end.log.log_end_offset for end in ends if end is not None]
            await producer.end(is_committed=is_committed)
            for partition in (0, 1):
                while await last_stable_offset(cluster, partition) != before_markers[partition] + 1:
                    await pause()
        assert coordinators == {1, 2}


async def test_record_outside_a_transaction_is_refused_by_the_coordinator_of_another_broker(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2)))
        for name in ("a", "b", "c", "d"):
            producer = Producer(cluster, name)
            await producer.begin()
            await producer.add(0)
            assert await producer.produce(0) == ErrorCode.NONE
            assert await producer.produce(1) == ErrorCode.INVALID_TXN_STATE
            await producer.end(is_committed=True)


async def test_verification_fails_as_retriable_while_the_coordinator_is_gone(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2)))
        producers = [Producer(cluster, name) for name in ("a", "b", "c", "d")]
        coordinators = [await producer.begin() for producer in producers]
        remote = producers[coordinators.index(2)]
        await remote.add(0)
        await cluster.stop(2)
        assert await remote.produce(0) == ErrorCode.NOT_ENOUGH_REPLICAS
