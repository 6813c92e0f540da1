"""Control requests between two brokers, and the channels of the controller."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until


async def create(cluster: InProcessCluster, name: str, *replicas: list[int]) -> None:
    """Create a topic with these replicas of each partition, through the controller."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
        ],
        configs=[],
    )
    response = await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert not response.topics[0].error_code, response.topics[0]


async def produce(broker: InProcessBroker, name: str, partition: int, acks: int = 1) -> ErrorCode:
    records = build_batch([RecordData(timestamp=1, key=None, value=b"v")])
    data = PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
    )
    response = await broker.ask(request, 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def test_partitions_are_led_by_the_brokers_that_the_controller_names(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2)))
        for partition, leader in enumerate((1, 2)):
            codes = [await produce(cluster.brokers[each], "t", partition) for each in (1, 2)]
            expected = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
            expected[leader - 1] = ErrorCode.NONE
            assert codes == expected


async def test_deleted_topic_is_gone_on_every_broker(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: cluster.services(2).replica_manager.find("t", 1) is not None)
        await cluster.controller.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await until(lambda: cluster.services(2).replica_manager.find("t", 1) is None)
        assert "t" not in cluster.services(2).metadata_cache.topics
        await until(lambda: "/brokers/topics/t" not in cluster.tree.entries)


async def test_restarted_broker_gets_its_partitions_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: cluster.services(2).metadata_cache.has_leaders("t", 2))
        await cluster.stop(2)
        await until(lambda: 2 not in cluster.services(1).metadata_cache.brokers)
        await cluster.start(2)
        await until(lambda: cluster.services(2).metadata_cache.has_leaders("t", 2))
        assert await produce(cluster.brokers[2], "t", 1) == ErrorCode.NONE


async def test_other_broker_takes_over_when_the_controller_stops(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [2])
        await cluster.stop(1)
        await until(lambda: cluster.services(2).controller.is_active)
        await until(lambda: cluster.services(2).metadata_cache.brokers.keys() == {2})
        await create(cluster, "u", [2])
        assert await produce(cluster.brokers[2], "u", 0) == ErrorCode.NONE


async def test_control_requests_use_the_control_plane_listener(tmp_path: Path) -> None:
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }
    async with running_cluster(tmp_path, (1, 2), overrides) as cluster:
        await create(cluster, "t", [2])
        await until(lambda: cluster.services(2).metadata_cache.has_leaders("t", 1))
        assert await produce(cluster.brokers[2], "t", 0) == ErrorCode.NONE
