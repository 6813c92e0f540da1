"""Groups and transactions move with the leadership of their partitions, from one broker to another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.cluster.test_control_channels import create
from tests.broker.transactions.test_across_brokers import Producer, last_stable_offset, pause
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

REPLICATED = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "controlled.shutdown.enable": "true",
    "controlled.shutdown.max.retries": "1",
    "replica.fetch.wait.max.ms": "20",
}
MOVING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


async def coordinator_of(cluster: InProcessCluster, key: str, key_type: int) -> int:
    """Return the id of the coordinator, as any running broker names it."""
    while True:
        for broker in list(cluster.brokers.values()):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            found = (await broker.ask(request)).coordinators[0]
            if not found.error_code and found.node_id in cluster.brokers:
                return int(found.node_id)
        await asyncio.sleep(0.01)


async def ask_coordinator(cluster: InProcessCluster, key: str, key_type: int, request: Any, version: int) -> Any:
    """Return the first response that is not that the coordinator has moved."""
    while True:
        broker = cluster.brokers[await coordinator_of(cluster, key, key_type)]
        response = await broker.ask(request, version)
        if response_code(response) not in MOVING:
            return response
        await asyncio.sleep(0.01)


def response_code(response: Any) -> int:
    if hasattr(response, "topics"):
        codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
        return int(getattr(response, "error_code", 0) or (codes[0] if codes else 0))
    return int(response.error_code)


async def test_committed_offsets_are_served_by_the_next_coordinator(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2, 3), REPLICATED) as cluster:
        await create(cluster, "t", [1, 2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 1) for each in (1, 2, 3)))
        first = await coordinator_of(cluster, "g", 0)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="")
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
        response = await ask_coordinator(cluster, "g", 0, commit, 7)
        assert response_code(response) == ErrorCode.NONE
        await cluster.stop(first)
        fetch = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        response = await ask_coordinator(cluster, "g", 0, fetch, 5)
        assert response.topics[0].partitions[0].committed_offset == 42
        assert await coordinator_of(cluster, "g", 0) != first
        # It comes back, and one of the two leads: both never serve the group at the same time.
        await cluster.start(first)
        await cluster.see_each_other()
        led = [each for each, broker in cluster.brokers.items() if leads(broker.services.groups.partitions, "g")]
        assert led == [await coordinator_of(cluster, "g", 0)]


def leads(partitions: Any, key: str) -> bool:
    try:
        partitions.require(key)
    except KafkaError:
        return False
    return True


async def test_open_transaction_is_committed_through_the_next_coordinator(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (3, 1, 2), REPLICATED) as cluster:
        await create(cluster, "t", [1, 2], [2, 1])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2, 3)))
        names = [name for name in "abcdefgh" if await coordinator_of(cluster, name, 1) == 3]
        producer = Producer(cluster, names[0])
        await producer.begin()
        await producer.add(0, 1)
        for partition in (0, 1):
            assert await producer.produce(partition) == ErrorCode.NONE
        await cluster.stop(3)
        end = EndTxnRequest(
            transactional_id=producer.name, producer_id=producer.producer_id, producer_epoch=0, committed=True
        )
        response = await ask_coordinator(cluster, producer.name, 1, end, 3)
        assert response.error_code == ErrorCode.NONE
        for partition in (0, 1):
            while await last_stable_offset(cluster, partition) != 2:
                await pause()
