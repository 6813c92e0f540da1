"""Share groups by their requests: sessions, limits, isolation, and Kafka's codes for what makes no sense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from broker.loop.promise import Promise
from broker.replica.partition import Partition
from broker.security.acls import Acl, Operation, Pattern, Permission, ResourceType
from broker.share import shared_partition
from broker.share.machine.deliveries import RecordState, StateBatch
from broker.share.machine.records import ShareKey
from broker.share.machine.state_calls import Delete, Read, Write
from broker.share.machine.stored_states import ShareState
from broker.share.share_fetch import AcquiredRecords
from config.broker_properties import AUTHORIZERS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
)
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestedGroup,
    RequestedTopic,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.share_group_describe import ShareGroupDescribeRequest
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from tests.broker.handlers.test_commits_in_a_row import begin_to_coordinate, until_it_coordinates
from tests.broker.handlers.test_read_committed import TransactionalProducer
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import SteppingClock

ACCEPT, RELEASE, REJECT = 1, 2, 3
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.partition.max.record.locks": "100",
    "group.share.delivery.count.limit": "2",
    "group.share.max.share.sessions": "3",
}


class Member:
    """One member of a group, and its share session."""

    def __init__(self, broker: InProcessBroker, group: str, member_id: str, topic_id: UUID) -> None:
        self.broker, self.group, self.member_id, self.topic_id = broker, group, member_id, topic_id
        self.epoch = 0

    async def fetch(self, *said: tuple[int, int, int], **changes: Any) -> ShareFetchResponse:
        """Fetch partition 0; `said` are first offset, last offset and type of acknowledgements."""
        request = ShareFetchRequest(
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": [FetchTopic(topic_id=self.topic_id, partitions=[_fetched(said)])],
                "forgotten_topics_data": [],
                **changes,
            }
        )
        response: ShareFetchResponse = await self.broker.ask(request, 1)
        self.epoch += 1
        return response

    async def acknowledge(self, *said: tuple[int, int, int], epoch: int | None = None) -> ErrorCode:
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(said))
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        response = await self.broker.ask(request, 1)
        self.epoch += 1
        if response.error_code:
            return ErrorCode(response.error_code)
        return ErrorCode(response.responses[0].partitions[0].error_code)


def _batches(said: Sequence[tuple[int, int, int]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in said
    ]


def _fetched(said: Sequence[tuple[int, int, int]]) -> FetchPartition:
    return FetchPartition(partition_index=0, acknowledgement_batches=_batches(said))


def acquired(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """Return first offset, last offset and delivery count of what was acquired."""
    assert response.error_code == 0, response
    found = []
    for topic in response.responses:
        for partition in topic.partitions:
            assert partition.error_code == 0, response
            found += [(each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records]
            ends = [header.last_offset for _, header in batches(bytes(partition.records or b""))]
            assert not found or ends[-1] >= found[-1][1], "the records that were acquired are sent"
    return found


class Shared:
    """A broker with share groups, and a topic for each test."""

    def __init__(self, broker: InProcessBroker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.group = f"{topic}-group"

    @property
    def topic_id(self) -> UUID:
        return self.broker.services.metadata_cache.topics[self.topic].topic_id

    def member(self, member_id: str) -> Member:
        return Member(self.broker, self.group, member_id, self.topic_id)

    async def heartbeat(self, member_id: str, epoch: int = 0, **changes: Any) -> Any:
        values = {"subscribed_topic_names": [self.topic] if epoch == 0 else None, **changes}
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=member_id, member_epoch=epoch, **values)
        return await self.broker.ask(request, 1)

    async def begin(self, **settings: str) -> None:
        """Let the group begin with the first record, with other settings too."""
        settings = {"share.auto.offset.reset": "earliest", **{key.replace("_", "."): v for key, v in settings.items()}}
        configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
        resource = AlterConfigsResource(resource_type=32, resource_name=self.group, configs=configs)
        (result,) = (
            await self.broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        ).responses
        assert result.error_code == 0, result
        joined = await self.heartbeat("first")
        assert [each.partitions for each in joined.assignment.topic_partitions] == [[0]], joined

    async def produce(self, count: int, batch_size: int = 5, padding: bytes = b"") -> None:
        for first in range(0, count, batch_size):
            values = [b"%d" % (first + each) + padding for each in range(batch_size)]
            records = [RecordData(timestamp=1, key=None, value=value) for value in values]
            data = TopicProduceData(
                name=self.topic, partition_data=[PartitionProduceData(index=0, records=build_batch(records))]
            )
            response = await self.broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]))
            assert response.responses[0].partition_responses[0].error_code == 0

    async def start_offset(self) -> int:
        response = await self.broker.ask(
            DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=self.group, topics=None)]), 0
        )
        assert response.groups[0].error_code == 0, response
        return int(response.groups[0].topics[0].partitions[0].start_offset)


@pytest_asyncio.fixture
async def shared(tmp_path: Path, name: str) -> AsyncIterator[Shared]:
    async with running_broker(tmp_path / "broker", SETTINGS) as broker:
        await broker.create_topic(name)
        await begin_to_coordinate(broker)
        yield Shared(broker, name)


async def test_offsets_of_a_group_are_described_once_however_often_it_is_named(shared: Shared) -> None:
    await shared.begin()
    named = [RequestedTopic(topic_name=shared.topic, partitions=[index, index]) for index in (0, 7)]
    for topics, indexes in ((None, [0]), (named, [0, 7])):
        wanted = RequestedGroup(group_id=shared.group, topics=topics)
        response = await shared.broker.ask(DescribeShareGroupOffsetsRequest(groups=[wanted] * 3), 0)
        (group,) = response.groups
        (topic,) = group.topics
        assert [partition.partition_index for partition in topic.partitions] == indexes


async def test_members_get_different_records_and_acknowledge_them(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(10)
    ann, bob = shared.member("ann"), shared.member("bob")
    assert acquired(await ann.fetch(max_records=5)) == [(0, 4, 1)]
    assert not acquired(await bob.fetch(max_bytes=0)), "wants none"
    assert acquired(await bob.fetch()) == [(5, 9, 1)]
    assert await bob.acknowledge((5, 9, ACCEPT)) is ErrorCode.NONE
    assert await shared.start_offset() == 0
    again = await ann.fetch((0, 1, ACCEPT), (2, 3, RELEASE), (4, 4, REJECT))
    assert again.responses[0].partitions[0].acknowledge_error_code == 0
    assert acquired(again) == [(2, 3, 2)]
    assert await ann.acknowledge((2, 3, RELEASE)) is ErrorCode.NONE
    assert await shared.start_offset() == 10  # delivered twice: archived


async def test_a_fetch_waits_for_records(shared: Shared) -> None:
    await shared.begin()
    ann = shared.member("ann")
    waiting = asyncio.ensure_future(ann.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0)
    await shared.produce(5)
    assert acquired(await waiting) == [(0, 4, 1)]


async def test_a_fetch_waits_for_what_another_member_releases(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    waiting = asyncio.ensure_future(bob.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0)
    assert await ann.acknowledge((0, 4, RELEASE)) is ErrorCode.NONE
    assert acquired(await waiting) == [(0, 4, 2)]


async def test_the_end_of_a_session_releases_records(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    assert acquired(await bob.fetch()) == []
    assert await ann.acknowledge((0, 1, ACCEPT), epoch=-1) is ErrorCode.NONE
    assert acquired(await bob.fetch()) == [(2, 4, 1)]


async def test_the_end_of_a_connection_releases_records(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    await shared.member("ann").fetch()
    shared.broker.channel.closed(0.0)
    shared.broker.channel.is_closed = False
    assert acquired(await shared.member("bob").fetch()) == [(0, 4, 1)]


async def test_a_new_session_replaces_the_one_before(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    await shared.member("ann").fetch()
    assert acquired(await shared.member("ann").fetch()) == [(0, 4, 1)]


async def test_fetch_that_ends_within_the_first_bytes_of_a_batch_returns_the_ones_before(shared: Shared) -> None:
    """From 13 to 16 bytes of a batch have its length, but not its magic."""
    await shared.begin()
    await shared.produce(10)
    first = await shared.member("ann").fetch(max_bytes=1)
    size = len(first.responses[0].partitions[0].records)
    for more in range(12, 19):
        assert acquired(await shared.member("ann").fetch(max_bytes=size + more)) == [(0, 4, 1)]


async def test_no_more_records_are_locked_than_allowed(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(150, batch_size=50)
    ann = shared.member("ann")
    assert acquired(await ann.fetch()) == [(0, 99, 1)]
    assert acquired(await ann.fetch()) == []
    assert acquired(await ann.fetch((0, 49, ACCEPT))) == [(100, 149, 1)]


async def test_only_committed_records_are_delivered_if_the_group_says_so(shared: Shared) -> None:
    await shared.begin(share_isolation_level="read_committed")
    first = await TransactionalProducer(shared.broker, shared.topic, f"{shared.topic}-a").start()
    second = await TransactionalProducer(shared.broker, shared.topic, f"{shared.topic}-b").start()
    await first.write(b"aborted")
    await second.write(b"committed")
    ann = shared.member("ann")
    assert acquired(await ann.fetch()) == []
    await first.end(committed=False)
    await second.end(committed=True)
    assert acquired(await ann.fetch()) == [(1, 1, 1)]
    assert await ann.acknowledge((1, 1, ACCEPT)) is ErrorCode.NONE
    assert acquired(await ann.fetch()) == []
    assert await shared.start_offset() == 4  # after the markers


async def test_progress_survives_a_restart(shared: Shared, tmp_path: Path) -> None:
    await shared.begin()
    await shared.produce(6, batch_size=6)
    ann = shared.member("ann")
    await ann.fetch()
    assert await ann.acknowledge((0, 1, ACCEPT), (3, 3, REJECT), (4, 4, RELEASE)) is ErrorCode.NONE
    shared.broker.services.share().partitions.stop()  # forgets all that is only in memory
    assert acquired(await shared.member("bob").fetch()) == [(2, 2, 1), (4, 4, 2), (5, 5, 1)]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"share_session_epoch": 7}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ({"share_session_epoch": 1, "member_id": "carol"}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ({"share_session_epoch": 1, "group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"share_session_epoch": 1, "member_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_fetch_outside_of_its_session_is_refused(
    shared: Shared, values: dict[str, Any], code: ErrorCode
) -> None:
    await shared.begin()
    ann = shared.member("ann")
    await ann.fetch()
    assert (await ann.fetch(**values)).error_code == code
    ann.epoch = 1
    assert acquired(await ann.fetch()) == []


async def test_sessions_are_limited(shared: Shared) -> None:
    await shared.begin()
    members = [shared.member(name) for name in "abc"]
    for member in members:
        assert acquired(await member.fetch()) == []
    assert (await shared.member("d").fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    await members[0].acknowledge(epoch=-1)
    assert acquired(await shared.member("d").fetch()) == []


async def test_a_member_acknowledges_its_own_records_alone(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    await bob.fetch()
    assert await bob.acknowledge((0, 4, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert await bob.acknowledge((0, 5, ACCEPT)) is ErrorCode.INVALID_REQUEST
    assert await ann.acknowledge((0, 4, 9)) is ErrorCode.INVALID_REQUEST
    assert await ann.acknowledge((0, 4, ACCEPT)) is ErrorCode.NONE


async def test_a_fetch_of_many_partitions_gets_an_answer_for_each(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    partitions = [FetchPartition(partition_index=index, acknowledgement_batches=[]) for index in range(10_000)]
    topics = [FetchTopic(topic_id=shared.topic_id, partitions=partitions)]
    response = await shared.member("ann").fetch(topics=topics)
    found = [each.error_code for each in response.responses[0].partitions]
    assert sorted(found) == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 9_999
    too_many = [FetchPartition(partition_index=index, acknowledgement_batches=[]) for index in range(20_001)]
    topics = [FetchTopic(topic_id=shared.topic_id, partitions=too_many)]
    assert (await shared.member("bob").fetch(topics=topics)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_partition_without_a_state_is_refused(shared: Shared) -> None:
    await shared.begin()
    stranger = Member(shared.broker, "other", "ann", shared.topic_id)
    response = await stranger.fetch()
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_are_moved_while_the_group_is_empty(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(10)
    request = AlterShareGroupOffsetsRequest(
        group_id=shared.group,
        topics=[
            AlteredTopic(topic_name=shared.topic, partitions=[AlteredPartition(partition_index=0, start_offset=7)])
        ],
    )
    ann = shared.member("ann")
    assert acquired(await ann.fetch(max_records=5)) == [(0, 4, 1)]
    assert (await shared.broker.ask(request, 0)).error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await shared.heartbeat("first", epoch=-1)).error_code == 0
    response = await shared.broker.ask(request, 0)
    assert [each.error_code for each in response.responses[0].partitions] == [0]
    # What was acquired before does not move the start back.
    assert await ann.acknowledge((0, 4, ACCEPT)) in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.NONE)
    assert await shared.start_offset() == 7
    assert acquired(await ann.fetch()) == [(7, 9, 1)]


async def test_a_group_that_does_not_exist_begins_where_it_is_told(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(10)
    shared.group = "another"
    partition = AlteredPartition(partition_index=0, start_offset=6)
    request = AlterShareGroupOffsetsRequest(
        group_id="another", topics=[AlteredTopic(topic_name=shared.topic, partitions=[partition])]
    )
    response = await shared.broker.ask(request, 0)
    assert [each.error_code for each in response.responses[0].partitions] == [0]
    assert acquired(await shared.member("ann").fetch()) == [(6, 9, 1)]


async def test_groups_of_different_kinds_do_not_mix(shared: Shared) -> None:
    await shared.begin()
    request = ConsumerGroupHeartbeatRequest(
        group_id=shared.group,
        member_id="carol",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[shared.topic],
        topic_partitions=[],
    )
    refused = await shared.broker.ask(request, 1)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {shared.group} is not a consumer group.",
    )
    await shared.heartbeat("first", -1)
    classic = JoinGroupRequest(
        group_id=shared.group,
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert (await shared.broker.ask(classic, 3)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request.group_id = f"{shared.group}-2"
    assert (await shared.broker.ask(request, 1)).error_code == 0
    shared.group = request.group_id
    refused = await shared.heartbeat("ann")
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {shared.group} is not a share group.",
    )


async def test_a_deleted_group_is_forgotten_with_its_progress(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    deleted = DeleteGroupsRequest(groups_names=[shared.group])
    assert (await shared.broker.ask(deleted)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    ann = shared.member("ann")
    await ann.fetch()
    assert await ann.acknowledge((0, 4, ACCEPT)) is ErrorCode.NONE
    await shared.heartbeat("first", epoch=-1)
    assert (await shared.broker.ask(deleted)).results[0].error_code == 0
    await shared.begin()
    assert acquired(await shared.member("bob").fetch()) == [(0, 4, 1)]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"member_epoch": 5}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "nobody", "member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": 0, "subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_heartbeat_that_makes_no_sense_is_refused(
    shared: Shared, values: dict[str, Any], code: ErrorCode
) -> None:
    await shared.begin()
    request = ShareGroupHeartbeatRequest(
        **{"group_id": shared.group, "member_id": "first", "member_epoch": 1, **values}
    )
    assert (await shared.broker.ask(request, 1)).error_code == code


async def test_the_end_of_a_session_with_a_waiting_fetch_leaves_nothing_locked(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    waiting = asyncio.ensure_future(ann.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0)
    assert await Member.acknowledge(ann, epoch=-1) is ErrorCode.NONE
    assert acquired(await waiting) == [], "its session has ended"
    assert acquired(await bob.fetch()) == [(0, 4, 1)]


async def test_a_connection_that_reopens_sessions_keeps_one(shared: Shared) -> None:
    await shared.begin()
    for _ in range(20):
        await shared.member("ann").fetch()
    sessions = shared.broker.services.share().sessions
    assert len(sessions) == len(sessions.of_connection(shared.broker.channel)) == 1
    assert len(shared.broker.channel._on_closed) == 1
    shared.broker.channel.closed(0.0)
    shared.broker.channel.is_closed = False
    assert len(sessions) == 0


def refuse(*_: object) -> None:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


async def test_records_whose_acknowledgement_was_not_stored_are_delivered_again(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann = shared.member("ann")
    await ann.fetch()
    with monkeypatch.context() as broken:
        broken.setattr(shared_partition, "WRITE_PATIENCE_MS", 0)
        broken.setattr(shared.broker.services.share().states._log, "append", refuse)
        assert await ann.acknowledge((0, 4, ACCEPT)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await ann.acknowledge((0, 4, RELEASE)) is ErrorCode.INVALID_REQUEST  # as of records that nobody got
    assert acquired(await shared.member("bob").fetch()) == [(0, 4, 1)]


async def test_acknowledgements_wait_while_they_cannot_be_stored_and_are_stored_together(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    assert acquired(await ann.fetch(max_records=1)) == [(0, 4, 1)]
    await shared.produce(5)
    assert acquired(await bob.fetch()) == [(5, 9, 1)]
    states = shared.broker.services.share().states
    with monkeypatch.context() as broken:
        broken.setattr(states._log, "append", refuse)
        waiting = asyncio.gather(ann.acknowledge((0, 4, ACCEPT)), bob.acknowledge((5, 9, ACCEPT)))
        await asyncio.sleep(0)
    assert await waiting == [ErrorCode.NONE, ErrorCode.NONE]
    assert await shared.start_offset() == 10


async def test_partitions_of_a_group_without_sessions_are_forgotten(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    await bob.fetch()
    partitions = shared.broker.services.share().partitions
    await ann.acknowledge(epoch=-1)
    assert len(partitions) == 1
    await bob.acknowledge(epoch=-1)
    assert len(partitions) == 0
    assert acquired(await shared.member("cleo").fetch()) == [(0, 4, 1)]


async def test_release_that_is_being_stored_when_the_last_session_ends_counts(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann = shared.member("ann")
    await ann.fetch()
    links, written = shared.broker.services.share().links, Promise[ShareState]()
    with monkeypatch.context() as patched:
        patched.setattr(links, "call", lambda call, patience_ms: written)
        releasing = asyncio.ensure_future(ann.acknowledge((0, 4, RELEASE)))
        await asyncio.sleep(0)
    shared.broker.channel.closed(0.0)
    shared.broker.channel.is_closed = False
    for _ in range(20):
        await asyncio.sleep(0)
    assert acquired(await shared.member("bob").fetch()) == [(0, 4, 2)]
    written.set_result(ShareState(0))
    await releasing


async def test_a_member_that_joins_while_the_group_is_deleted_waits_and_begins_a_new_one(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann = shared.member("ann")
    await ann.fetch()
    await ann.acknowledge((0, 2, ACCEPT))
    await ann.acknowledge(epoch=-1)
    await shared.heartbeat("first", epoch=-1)
    with monkeypatch.context() as slow:
        slow.setattr(shared.broker.services.share().states._log, "append", refuse)
        deleting = asyncio.ensure_future(shared.broker.ask(DeleteGroupsRequest(groups_names=[shared.group])))
        joining = asyncio.ensure_future(shared.heartbeat("second"))
        await asyncio.sleep(0)
    assert (await deleting).results[0].error_code == ErrorCode.NONE
    assert [each.partitions for each in (await joining).assignment.topic_partitions] == [[0]]
    assert acquired(await shared.member("second").fetch()) == [(0, 4, 1)]


def elect_again(shared: Shared) -> Partition:
    """Let the leader of the partition stay in a new leader epoch, as after the death of a follower."""
    partition = shared.broker.services.replica_manager.find(shared.topic, 0)
    assert partition is not None
    partition.lead(replace(partition.leadership, leader_epoch=partition.leader_epoch + 1), 0)
    return partition


async def test_a_partition_that_is_being_loaded_does_not_delay_the_others(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await shared.begin()
    grown = CreatePartitionsTopic(name=shared.topic, count=2, assignments=None)
    await shared.broker.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False))
    await shared.produce(5)
    links = shared.broker.services.share().links
    call, slow = links.call, Promise[ShareState]()
    monkeypatch.setattr(links, "call", lambda asked, ms: slow if asked.key.partition == 1 else call(asked, ms))
    ann = shared.member("ann")
    both = [FetchPartition(partition_index=each, acknowledgement_batches=[]) for each in (1, 0)]
    topics = [FetchTopic(topic_id=shared.topic_id, partitions=both)]
    assert acquired(await ann.fetch(topics=topics, max_wait_ms=60_000)) == [(0, 4, 1)]
    waiting = asyncio.create_task(ann.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0.01)
    slow.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    (failed,) = (await waiting).responses[0].partitions
    assert (failed.partition_index, failed.error_code) == (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert "was not loaded: COORDINATOR_NOT_AVAILABLE" in caplog.text


async def test_a_leader_that_stays_in_a_new_epoch_keeps_its_deliveries(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(10)
    ann, bob = shared.member("ann"), shared.member("bob")
    assert acquired(await ann.fetch(max_records=5)) == [(0, 4, 1)]
    await ann.acknowledge((0, 1, ACCEPT))
    elect_again(shared)
    assert acquired(await bob.fetch()) == [(5, 9, 1)]
    elect_again(shared)
    assert await ann.acknowledge((2, 4, ACCEPT)) is ErrorCode.NONE
    assert await shared.start_offset() == 5


async def test_a_new_session_reads_a_state_that_was_moved_while_an_old_session_was_open(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    await ann.acknowledge((0, 4, ACCEPT))
    await shared.heartbeat("first", epoch=-1)
    # The group coordinator is another broker, so it does not reset the partitions of this one.
    monkeypatch.setattr(shared.broker.services.share().partitions, "reset", lambda keys: None)
    topic = AlteredTopic(topic_name=shared.topic, partitions=[AlteredPartition(partition_index=0, start_offset=2)])
    response = await shared.broker.ask(AlterShareGroupOffsetsRequest(group_id=shared.group, topics=[topic]), 0)
    assert response.responses[0].partitions[0].error_code == 0, response
    assert acquired(await bob.fetch()) == [(2, 4, 1)]


async def test_a_fetch_waits_for_the_write_of_a_leader_in_a_new_epoch(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann, bob = shared.member("ann"), shared.member("bob")
    await ann.fetch()
    links, written = shared.broker.services.share().links, Promise[ShareState]()
    with monkeypatch.context() as patched:
        patched.setattr(links, "call", lambda call, patience_ms: written)
        acknowledging = asyncio.ensure_future(ann.acknowledge((0, 1, ACCEPT)))
        await asyncio.sleep(0)
        elect_again(shared)
        waiting = asyncio.ensure_future(bob.fetch(max_wait_ms=60_000))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
    written.set_result(ShareState(0))
    assert await acknowledging is ErrorCode.NONE
    assert acquired(await waiting) == []  # the next fetch reads the state


async def test_a_leader_that_has_missed_another_one_reads_what_that_has_done(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(10)
    ann = shared.member("ann")
    assert acquired(await ann.fetch(max_records=5)) == [(0, 4, 1)]
    epoch = elect_again(shared).leader_epoch
    links, key = shared.broker.services.share().links, ShareKey(shared.group, shared.topic_id, 0)
    state = await links.call(Read(key, epoch), 0)
    await links.call(Write(key, state.state_epoch, epoch, 3, [StateBatch(3, 3, RecordState.ACKNOWLEDGED, 1)]), 0)
    elect_again(shared)
    assert acquired(await shared.member("bob").fetch()) == [(4, 9, 1)]
    assert await ann.acknowledge((4, 4, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE


async def test_states_that_an_unfinished_deletion_has_ended_begin_again(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    await shared.heartbeat("first", epoch=-1)
    await shared.broker.services.share().links.call(Delete(ShareKey(shared.group, shared.topic_id, 0)), 0)
    (partition,) = shared.broker.services.groups.partitions
    shared.broker.services.groups.partitions.resign(partition.number)
    shared.broker.services.groups.partitions.become_leader(partition.number, partition.leader_epoch)
    await until_it_coordinates(shared.broker)
    assert [each.partitions for each in (await shared.heartbeat("ann")).assignment.topic_partitions] == [[0]]
    assert acquired(await shared.member("ann").fetch()) == [(0, 4, 1)]


async def test_topics_that_grow_after_offsets_were_moved_are_assigned(shared: Shared) -> None:
    await shared.begin()
    await shared.heartbeat("first", epoch=-1)
    partition = AlteredPartition(partition_index=0, start_offset=2)
    moved = AlterShareGroupOffsetsRequest(
        group_id=shared.group, topics=[AlteredTopic(topic_name=shared.topic, partitions=[partition])]
    )
    assert (await shared.broker.ask(moved, 0)).error_code == 0
    grown = CreatePartitionsTopic(name=shared.topic, count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
    assert (await shared.broker.ask(request)).results[0].error_code == 0
    async with asyncio.timeout(10):
        while True:
            joined = await shared.heartbeat("first")
            if [each.partitions for each in joined.assignment.topic_partitions] == [[0, 1, 2]]:
                break
            await asyncio.sleep(0.001)
    assert (await shared.heartbeat("first", epoch=-1)).error_code == 0
    assert (await shared.broker.ask(moved, 0)).error_code == 0


async def test_a_partition_that_was_moved_meanwhile_refuses_what_is_said_of_the_one_before(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    partitions = shared.broker.services.share().partitions
    before = await partitions.find(shared.group, shared.topic, shared.topic_id, 0)
    partitions.reset([before.key])
    now = await partitions.find(shared.group, shared.topic, shared.topic_id, 0)
    with pytest.raises(KafkaError, match="leader"):
        partitions.acknowledge(before, "ann", [])
    assert await partitions.find(shared.group, shared.topic, shared.topic_id, 0) is now


async def test_records_that_are_deleted_do_not_stop_the_group(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    await shared.member("ann").fetch()
    await shared.produce(10)
    partition = DeleteRecordsPartition(partition_index=0, offset=8)
    topic = DeleteRecordsTopic(name=shared.topic, partitions=[partition])
    await shared.broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
    assert acquired(await shared.member("bob").fetch()) == [(8, 14, 1)]


async def test_a_fetch_of_more_bytes_than_there_are_gets_what_there_is(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5)
    assert acquired(await shared.member("ann").fetch(min_bytes=1 << 30, max_wait_ms=60_000)) == [(0, 4, 1)]


async def test_a_huge_batch_is_delivered_in_parts(shared: Shared) -> None:
    await shared.begin()
    await shared.produce(5_000, batch_size=5_000)
    ann = shared.member("ann")
    assert acquired(await ann.fetch()) == [(0, 1_999, 1)]
    assert await ann.acknowledge((0, 1_999, ACCEPT)) is ErrorCode.NONE
    assert acquired(await ann.fetch()) == [(2_000, 3_999, 1)]


async def test_fetches_that_arrive_together_share_the_memory(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them pauses while it reads."""
    await shared.begin()
    await shared.produce(60, batch_size=1, padding=bytes(10_000))
    services, sizes, found = shared.broker.services, [0], list[AcquiredRecords]()
    unsent, fetches = services.unsent_responses, services.share().fetches
    change, release = unsent._change, fetches.release
    monkeypatch.setattr(services.sliced_work, "_steps_min", 1)
    monkeypatch.setattr(services.sliced_work, "_monotonic_ms", SteppingClock(10).monotonic_ms)
    monkeypatch.setattr(unsent, "_change", lambda by: (change(by), sizes.append(unsent.size)))
    monkeypatch.setattr(unsent, "_size_max", 400_000)
    monkeypatch.setattr(fetches, "release", lambda given: (found.extend(given), release(given)))
    unsent._change(0)
    members = [shared.member(name) for name in ("ann", "bob", "eve")]
    responses = await asyncio.gather(*(member.fetch(max_records=3) for member in members))
    assert sorted(it for response in responses for it in acquired(response)) == [(0, 2, 1), (3, 5, 1), (6, 8, 1)]
    assert 300_000 < max(sizes) <= 400_000
    assert unsent.size == 0
    assert len(found) == 3
    assert all(len(one.records.obj) < 2 * len(one.records) for one in found), "what was not acquired is not kept"


async def test_acknowledgements_that_change_nothing_are_not_stored(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.begin()
    await shared.produce(5)
    ann = shared.member("ann")
    await ann.fetch()
    assert await ann.acknowledge((0, 4, ACCEPT)) is ErrorCode.NONE
    monkeypatch.delattr(shared.broker.services.share().states, "_log")
    assert await ann.acknowledge(*((each, each, ACCEPT) for each in range(5))) is ErrorCode.NONE


async def test_states_of_deleted_topics_are_deleted_in_groups_without_members(shared: Shared) -> None:
    await shared.begin()
    await shared.heartbeat("first", epoch=-1)
    states = shared.broker.services.share().states
    (partition,) = states.partitions
    assert len(partition.states) == 1
    await shared.broker.ask(DeleteTopicsRequest(topic_names=[shared.topic], timeout_ms=1000), 3)
    async with asyncio.timeout(10):
        while partition.states:  # noqa: ASYNC110 - no event says when a state is deleted
            await asyncio.sleep(0.001)


async def test_a_group_is_hidden_from_clients_that_may_not_describe_its_topics(tmp_path: Path, name: str) -> None:
    settings = {**SETTINGS, "authorizer.class.name": AUTHORIZERS[0], "super.users": "User:admin"}
    async with running_broker(tmp_path, settings) as broker:
        stranger, broker.channel.principal = broker.channel.principal, "User:admin"
        await broker.create_topic(name)
        await begin_to_coordinate(broker)
        shared = Shared(broker, name)
        await shared.begin()
        describe = Acl(stranger, "*", Operation.DESCRIBE, Permission.ALLOW)
        sent = ShareGroupDescribeRequest(group_ids=[shared.group], include_authorized_operations=False)
        for pattern, code, member_count in (
            (Pattern(ResourceType.GROUP, shared.group), ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0),
            (Pattern(ResourceType.TOPIC, name), ErrorCode.NONE, 1),
        ):
            await broker.services.acls.create([(pattern, describe)])
            broker.channel.principal = stranger
            (group,) = (await broker.ask(sent, 1)).groups
            assert (group.error_code, len(group.members)) == (code, member_count)
