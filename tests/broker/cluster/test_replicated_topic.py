"""A replicated topic on three whole brokers: election, acks=all, a stopped leader, and its return."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.replica.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

OVERRIDES = {"replica.fetch.backoff.ms": "20", "min.insync.replicas": "2", "replica.fetch.wait.max.ms": "100"}
PARTITIONS = 4


async def create(cluster: InProcessCluster) -> None:
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
    response = await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert not response.topics[0].error_code, response


def leader_of(cluster: InProcessCluster, index: int) -> InProcessBroker | None:
    """Return the broker that leads the partition in the newest epoch, if one does."""
    found = {
        partition.leader_epoch: broker
        for broker in cluster.brokers.values()
        if (partition := hosted(broker, index)) is not None and partition.is_leader
    }
    return found[max(found)] if found else None


def hosted(broker: InProcessBroker, index: int) -> Partition | None:
    return broker.services.replica_manager.find("t", index)


async def produce(cluster: InProcessCluster, index: int, value: bytes) -> None:
    """Append with acks=all at the current leader, until it is acknowledged."""
    batch = build_batch([RecordData(timestamp=1, key=None, value=value)])
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=index, records=batch)])
    async with asyncio.timeout(20):
        while True:
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
            leader = leader_of(cluster, index)
            if leader is not None:
                response = await leader.ask(request, 9)
                if response.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                    return
            await asyncio.sleep(0.01)


def are_equal(cluster: InProcessCluster, index: int) -> bool:
    partitions = [hosted(broker, index) for broker in cluster.brokers.values()]
    if any(one is None for one in partitions):
        return False
    ends = {(one.log.log_end_offset, one.log.high_watermark) for one in partitions if one is not None}
    contents = {
        b"".join(path.read_bytes() for path in sorted(one.log.directory.glob("*.log")))
        for one in partitions
        if one is not None
    }
    return len(ends) == 1 and len(contents) == 1 and all(end == high_watermark for end, high_watermark in ends)


async def test_acknowledged_records_are_on_all_replicas_after_a_leader_was_stopped(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2, 3), OVERRIDES) as cluster:
        await create(cluster)
        for number in range(20):
            await produce(cluster, number % PARTITIONS, b"before %d" % number)
        for index in range(PARTITIONS):
            await until(lambda index=index: are_equal(cluster, index))  # type: ignore[misc]
        await cluster.stop(3)
        for number in range(20):
            await produce(cluster, number % PARTITIONS, b"without %d" % number)
        await cluster.start(3)
        await cluster.see_each_other()
        for number in range(20):
            await produce(cluster, number % PARTITIONS, b"after %d" % number)
        for index in range(PARTITIONS):
            await until(lambda index=index: are_equal(cluster, index))  # type: ignore[misc]
        contents = b"".join(
            path.read_bytes()
            for index in range(PARTITIONS)
            for path in sorted((tmp_path / "1" / f"t-{index}").glob("*.log"))
        )
        for name in (b"before", b"without", b"after"):
            assert all(contents.count(b"%s %d" % (name, number)) >= 1 for number in range(20))
