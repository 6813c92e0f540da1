"""ListOffsets through the whole broker: ends, times, special values by version, and errors."""

from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMES_MS = (1000, 3000, 2000, 3000)


@pytest.fixture
def served(broker_of_file: InProcessBroker) -> InProcessBroker:
    return broker_of_file


async def filled(broker: InProcessBroker, topic: str) -> None:
    """A topic of one partition with one batch a timestamp of `TIMES_MS`."""
    await broker.create_topic(topic)
    for time_ms in TIMES_MS:
        data = build_batch([RecordData(timestamp=time_ms, key=None, value=b"v")])
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])],
        )
        response = await broker.ask(request)
        assert not response.responses[0].partition_responses[0].error_code


async def ask(
    broker: InProcessBroker, topic: str, timestamp: int, version: int, *, partition: int = 0, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(
        partition_index=partition,
        timestamp=timestamp,
        current_leader_epoch=leader_epoch,
        max_num_offsets=10 if version == 0 else 1,
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    response = await broker.ask(request, version)
    partition = response.topics[0].partitions[0]
    assert isinstance(partition, ListOffsetsPartitionResponse)
    return partition


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (-1, 1, (-1, 4)),
        (-2, 1, (-1, 0)),
        (-3, 7, (3000, 1)),
        (-4, 8, (-1, 0)),
        (-5, 9, (-1, -1)),
        (0, 1, (1000, 0)),
        (1000, 9, (1000, 0)),
        (1001, 9, (3000, 1)),
        (2000, 9, (3000, 1)),
        (3000, 9, (3000, 1)),
        (3001, 9, (-1, -1)),
    ],
)
async def test_offsets_by_time(
    served: InProcessBroker, name: str, timestamp: int, version: int, expected: tuple[int, int]
) -> None:
    await filled(served, name)
    response = await ask(served, name, timestamp, version)
    assert (response.error_code, response.timestamp, response.offset) == (ErrorCode.NONE, *expected)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 9), (-3, 0)])
async def test_special_times_that_the_version_does_not_know(
    served: InProcessBroker, name: str, timestamp: int, version: int
) -> None:
    await filled(served, name)
    assert (await ask(served, name, timestamp, version)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("timestamp", "expected"), [(-1, [4, 0]), (-2, [0])])
async def test_version_0_lists_segments(
    served: InProcessBroker, name: str, timestamp: int, expected: list[int]
) -> None:
    await filled(served, name)
    response = await ask(served, name, timestamp, 0)
    assert (response.error_code, response.old_style_offsets) == (ErrorCode.NONE, expected)


async def test_the_ends_of_an_empty_topic_are_0(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    for timestamp in (-1, -2, -4):
        response = await ask(served, name, timestamp, 9)
        assert (response.offset, response.leader_epoch) == (0, 0), "of the epoch that the first record will have"
    assert (await ask(served, name, -3, 9)).offset == -1


@pytest.mark.parametrize("version", [0, 1, 5, 9])
@pytest.mark.parametrize(
    "asked",
    [
        [("a", [0]), ("a", [1]), ("b", [3, 1, 2]), ("a", [3])],
        [("a", []), ("b", [1])],
        [("a", [0, 0]), ("a", [1])],
        [("missing", [0]), ("a", [1]), ("missing", [2])],
        [],
    ],
    ids=["named again", "empty", "asked twice", "missing", "nothing"],
)
async def test_the_response_repeats_the_topics_one_by_one(
    served: InProcessBroker, name: str, asked: list[tuple[str, list[int]]], version: int
) -> None:
    """As Apache Kafka 3.9.1 responds to these requests."""
    asked = [(f"{name}-{topic}", indexes) for topic, indexes in asked]
    for topic in ("a", "b"):
        await served.create_topic(f"{name}-{topic}", 4)
    topics = [
        ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
        )
        for topic, indexes in asked
    ]
    response = await served.ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)
    assert [(each.name, [it.partition_index for it in each.partitions]) for each in response.topics] == asked


@pytest.mark.parametrize(
    ("partition", "leader_epoch", "code"),
    [
        (5, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 7, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, 0, ErrorCode.NONE),
    ],
)
async def test_unknown_partition_or_leader_epoch_fails(
    served: InProcessBroker, name: str, partition: int, leader_epoch: int, code: ErrorCode
) -> None:
    await filled(served, name)
    response = await ask(served, name, -1, 9, partition=partition, leader_epoch=leader_epoch)
    assert response.error_code == code


async def test_the_same_partition_twice_is_a_bad_request(served: InProcessBroker, name: str) -> None:
    await filled(served, name)
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=partitions)])
    response = await served.ask(request)
    assert [one.error_code for one in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


async def test_version_0_returns_a_partition_as_often_as_it_is_named(served: InProcessBroker, name: str) -> None:
    await filled(served, name)
    partitions = [
        ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=1) for timestamp in (-1, -2)
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=partitions)])
    response = await served.ask(request, 0)
    assert [(one.error_code, one.old_style_offsets) for one in response.topics[0].partitions] == [(0, [4]), (0, [0])]


@pytest.mark.parametrize(("replica_id", "code"), [(-1, ErrorCode.INVALID_REQUEST), (-2, ErrorCode.NONE)])
async def test_consumers_have_a_known_isolation_level(
    served: InProcessBroker, name: str, replica_id: int, code: ErrorCode
) -> None:
    await filled(served, name)
    wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=replica_id, isolation_level=7, topics=[wanted])
    assert (await served.ask(request)).topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("replica_id", "leads", "expected"),
    [
        (-1, True, (ErrorCode.NONE, 2)),
        (-1, False, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)),
        (-2, True, (ErrorCode.NONE, 4)),
        (-2, False, (ErrorCode.NONE, 4)),
        (1, True, (ErrorCode.NONE, 4)),
        (1, False, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)),
    ],
    ids=str,
)
async def test_consumers_get_the_high_watermark_and_tools_the_log_end_of_any_replica(
    served: InProcessBroker, name: str, replica_id: int, leads: bool, expected: tuple[ErrorCode, int]
) -> None:
    await filled(served, name)
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    if not leads:
        partition.follow(replace(partition.leadership, leader_id=1, replicas=(0, 1), isr=(0, 1), leader_epoch=1))
    partition.log.high_watermark = 2
    wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=replica_id, topics=[wanted])
    (response,) = (await served.ask(request)).topics[0].partitions
    assert (response.error_code, response.offset) == expected


@pytest.mark.parametrize("epoch", [0, 2])
async def test_tools_name_the_leader_epoch_of_the_replica(served: InProcessBroker, name: str, epoch: int) -> None:
    await filled(served, name)
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    partition.follow(replace(partition.leadership, leader_id=1, replicas=(0, 1), isr=(0, 1), leader_epoch=1))
    wanted = ListOffsetsTopic(
        name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)]
    )
    response = await served.ask(ListOffsetsRequest(replica_id=-2, topics=[wanted]))
    expected = ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > 1 else ErrorCode.FENCED_LEADER_EPOCH
    assert response.topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 4)), (1, (-1, -1)), (-1, (-1, -1))])
async def test_end_offset_of_a_leader_epoch_is_returned(
    served: InProcessBroker, name: str, epoch: int, expected: tuple[int, int]
) -> None:
    await filled(served, name)
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    response = await served.ask(
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])])
    )
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_epoch, partition.end_offset) == (ErrorCode.NONE, *expected)


async def test_epoch_returned_with_the_end_of_an_empty_log_is_known_to_its_leader(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name)
    returned_epoch = (await ask(served, name, -1, 9)).leader_epoch
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=returned_epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])])
    response = (await served.ask(request)).topics[0].partitions[0]
    assert (response.error_code, response.leader_epoch, response.end_offset) == (ErrorCode.NONE, returned_epoch, 0)


@pytest.mark.parametrize(("epoch", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.OFFSET_OUT_OF_RANGE)])
async def test_a_fetch_from_an_empty_log_may_name_that_epoch_as_its_last(
    served: InProcessBroker, name: str, epoch: int, code: ErrorCode
) -> None:
    await served.create_topic(name)
    wanted = FetchPartition(partition=0, fetch_offset=0, last_fetched_epoch=epoch, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=name, partitions=[wanted])]
    )
    (response,) = (await served.ask(request, 12)).responses[0].partitions
    assert response.error_code == code


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (-1, 4, ErrorCode.LEADER_NOT_AVAILABLE),
        (-1, 5, ErrorCode.OFFSET_NOT_AVAILABLE),
        (2_999, 9, ErrorCode.OFFSET_NOT_AVAILABLE),
        (900, 9, ErrorCode.NONE),
        (-2, 9, ErrorCode.NONE),
    ],
    ids=["end, old client", "end", "a time above the high watermark", "a time below it", "start"],
)
async def test_new_leader_names_no_end_before_its_high_watermark_has_reached_its_epoch(
    served: InProcessBroker, name: str, timestamp: int, version: int, expected: ErrorCode
) -> None:
    await filled(served, name)
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    follower = 1
    leadership = replace(partition.leadership, isr=(0, follower), replicas=(0, follower))
    partition.follow(replace(leadership, leader_id=follower, leader_epoch=1))
    partition.log.high_watermark = 1  # as after a restart
    partition.lead(replace(leadership, leader_epoch=2), 0)
    assert (await ask(served, name, timestamp, version)).error_code == expected
    served.services.replica_manager.follower_fetched(partition, follower, 4, 0)
    assert (await ask(served, name, timestamp, version)).error_code == ErrorCode.NONE
