"""DeleteRecords through the whole broker."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker, running_broker

EARLIEST = -2
RECORD_COUNT = 10
FOLLOWER = 1


async def fill(broker: InProcessBroker, topic: str) -> None:
    """Ten records in partition 0."""
    data = build_batch([RecordData(timestamp=1, key=b"k", value=b"v") for _ in range(RECORD_COUNT)])
    partition = PartitionProduceData(index=0, records=data)
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    await broker.ask(request)


async def delete(
    broker: InProcessBroker, topic: str, offset: int, *, partition: int = 0, version: int | None = None
) -> tuple[ErrorCode, int]:
    """(error code, low watermark)."""
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
    )
    response = await broker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), version)
    result = response.topics[0].partitions[0]
    assert (response.topics[0].name, result.partition_index) == (topic, partition)
    return ErrorCode(result.error_code), result.low_watermark


async def start_of(broker: InProcessBroker, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return int((await broker.ask(request)).topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("offset", "response", "start"),
    [
        (4, (ErrorCode.NONE, 4), 4),
        (RECORD_COUNT, (ErrorCode.NONE, RECORD_COUNT), RECORD_COUNT),
        (-1, (ErrorCode.NONE, RECORD_COUNT), RECORD_COUNT),
        (0, (ErrorCode.NONE, 0), 0),
        (RECORD_COUNT + 1, (ErrorCode.OFFSET_OUT_OF_RANGE, -1), 0),
        (-2, (ErrorCode.OFFSET_OUT_OF_RANGE, -1), 0),
    ],
)
async def test_log_start_rises_to_the_requested_offset(
    served: InProcessBroker, name: str, offset: int, response: tuple[ErrorCode, int], start: int, version: int
) -> None:
    await served.create_topic(name)
    await fill(served, name)
    assert await delete(served, name, offset, version=version) == response
    assert await start_of(served, name) == start


async def test_offset_below_the_log_start_changes_nothing(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    await fill(served, name)
    await delete(served, name, 6)
    assert await delete(served, name, 3) == (ErrorCode.NONE, 6)


async def test_compacted_internal_and_unknown_topics_are_rejected(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, cleanup_policy="compact")
    await served.create_topic(f"{name}-both", cleanup_policy="compact,delete")
    await served.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert (await delete(served, name, 0))[0] == ErrorCode.POLICY_VIOLATION
    assert (await delete(served, f"{name}-both", 0))[0] == ErrorCode.NONE
    assert (await delete(served, name, 0, partition=7))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await delete(served, "absent", 0))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await delete(served, "__consumer_offsets", 0))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await fill(broker, "t")
        await delete(broker, "t", 4)
    async with running_broker(tmp_path) as broker:
        assert await start_of(broker, "t") == 4


async def test_wait_of_a_lost_client_ends_and_its_records_stay_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await fill(broker, "t")
        manager, metadata = broker.services.replica_manager, broker.services.metadata_cache
        partition = manager.find("t", 0)
        assert partition is not None
        metadata.brokers = {**metadata.brokers, FOLLOWER: metadata.brokers[0]}
        partition.lead(replace(partition.leadership, leader_epoch=1, replicas=(0, FOLLOWER)), 0)
        deleting = asyncio.ensure_future(delete(broker, "t", 4))
        await asyncio.sleep(0)
        assert manager.delete_records_purgatory.delayed_count == 1
        deleting.cancel()
        await asyncio.wait({deleting})
        assert manager.delete_records_purgatory.delayed_count == 0
        assert await start_of(broker, "t") == 4
