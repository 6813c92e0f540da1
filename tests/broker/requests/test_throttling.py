"""Quotas on requests: throttle times in responses, muted connections, and what is not throttled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from broker.network.channel import Authentication
from broker.network.connection import Outcome
from broker.quotas.enforcement import EnforcedQuotas
from broker.requests.dispatch import RequestDispatcher
from broker.settings.component_settings import quota_defaults, quota_windows
from config.broker import BrokerConfig
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID, message_info
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock

SIZE = 20_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path) as running:
        await running.create_topic("t")
        yield running


async def set_quota(broker: InProcessBroker, key: str, value: float | None) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="limited")],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    response = await broker.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert not response.entries[0].error_code


def produce(acks: int = 1) -> ProduceRequest:
    records = memoryview(build_batch([RecordData(0, None, bytes(SIZE))]))
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[partition])],
    )


def fetch(max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[topic])


def join() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def mute_ms_of(broker: InProcessBroker, request: object, version: int) -> int:
    """Return for how long a request of the limited client mutes its connection."""
    api = APIS[message_info(type(request)).api_key]
    frame = request_header(api.key, version, 7, "limited") + b"".join(
        bytes(piece) for piece in encode(request, version)
    )
    response: Any = broker.dispatcher.dispatch(memoryview(bytearray(frame)), broker.channel)
    if not isinstance(response, list | Outcome | None):
        response = await response
    return response.mute_ms if isinstance(response, Outcome) else 0


async def test_producer_over_its_quota_is_told_and_muted(broker: InProcessBroker) -> None:
    await set_quota(broker, "producer_byte_rate", SIZE // 4.9)
    versions = (0, 1, 3, 9, 11)
    throttled = [await broker.ask(produce(), version, client_id="limited") for version in versions]
    assert [one.throttle_time_ms > 0 for one in throttled] == [False, False, True, True, True]
    codes = {one.responses[0].partition_responses[0].error_code for one in throttled}
    assert codes == {ErrorCode.NONE}, "what is produced over the quota is appended"
    assert await mute_ms_of(broker, produce(), 9) > 0
    assert await mute_ms_of(broker, produce(acks=0), 9) > 0
    assert (await broker.ask(produce(), 9)).throttle_time_ms == 0, "another client has no quota"


async def test_consumer_over_its_quota_gets_nothing_and_is_not_charged(broker: InProcessBroker) -> None:
    for _ in range(5):
        await broker.ask(produce(), 9)
    await set_quota(broker, "consumer_byte_rate", SIZE * 1.1)
    responses = [await broker.ask(fetch(), 4, client_id="limited") for _ in range(4)]
    sizes = [
        sum(len(one.records) for one in response.responses[0].partitions) if response.responses else 0
        for response in responses
    ]
    assert sizes[0] > SIZE
    assert sizes[1] > SIZE
    assert sizes[2:] == [0, 0]
    assert responses[2].throttle_time_ms > 0
    assert responses[3].throttle_time_ms <= responses[2].throttle_time_ms + 10, "the empty response costs nothing"


async def test_fetch_is_not_larger_than_the_windows_of_the_quota(broker: InProcessBroker) -> None:
    for _ in range(5):
        await broker.ask(produce(), 9)
    await set_quota(broker, "consumer_byte_rate", SIZE / 5)
    response = await broker.ask(fetch(), 4, client_id="limited")
    assert 0 < len(response.responses[0].partitions[0].records) <= 2 * SIZE


async def test_fetch_waits_for_records_even_if_the_quota_allows_none(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("t")
        await set_quota(broker, "consumer_byte_rate", 0)
        at_once = await broker.ask(fetch(max_wait_ms=60_000, min_bytes=0), 4, client_id="limited")
        assert at_once.throttle_time_ms == 0
        fetching = asyncio.ensure_future(broker.ask(fetch(max_wait_ms=60_000), 4, client_id="limited"))
        await asyncio.sleep(0)
        assert not fetching.done()
        await broker.ask(produce(), 9)
        response = await fetching
        assert response.responses == []
        assert response.throttle_time_ms > 0


async def test_request_time_over_the_quota_mutes_for_a_window_at_most(broker: InProcessBroker) -> None:
    await set_quota(broker, "request_percentage", 0.00001)
    response = await broker.ask(MetadataRequest(topics=None), 9, client_id="limited")
    assert 0 < response.throttle_time_ms <= 1000


async def test_responses_in_rows_state_the_throttle_of_request_time(broker: InProcessBroker) -> None:
    await broker.ask(produce(), 9)
    await set_quota(broker, "request_percentage", 0.00001)
    produced = [await broker.ask(produce(), version, client_id="limited") for version in (1, 9, 11)]
    fetched = [await broker.ask(fetch(), version, client_id="limited") for version in (1, 4, 12)]
    assert [one.responses[0].partition_responses[0].error_code for one in produced] == 3 * [ErrorCode.NONE]
    assert [len(one.responses[0].partitions[0].records) > SIZE for one in fetched] == 3 * [True]
    assert [0 < one.throttle_time_ms <= 1000 for one in produced + fetched] == 6 * [True]


async def test_waits_for_others_do_not_use_the_quota(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("t")
        await set_quota(broker, "request_percentage", 50)
        fetching = asyncio.ensure_future(broker.ask(fetch(max_wait_ms=60_000), 4, client_id="limited"))
        await broker.ask(FindCoordinatorRequest(key="g"), 2)
        first = await broker.ask(join(), 3)
        joining = asyncio.ensure_future(broker.ask(join(), 3, client_id="limited"))
        await asyncio.sleep(0)
        assert not fetching.done()
        assert not joining.done()
        clock.advance(20_000)
        await broker.ask(produce(), 9)
        await broker.ask(LeaveGroupRequest(group_id="g", member_id=first.member_id), 2)
        responses = await fetching, await joining
        assert responses[1].generation_id == 2
        assert [one.throttle_time_ms for one in responses] == [0, 0]


async def test_followers_and_other_brokers_have_no_quotas(broker: InProcessBroker) -> None:
    await set_quota(broker, "request_percentage", 0.00001)
    follower = fetch()
    follower.replica_id = 2
    update = UpdateMetadataRequest(controller_id=0, controller_epoch=0, live_brokers=[])
    markers = WriteTxnMarkersRequest(markers=[])
    quotas = broker.services.enforced_quotas
    for request, version in ((follower, 4), (update, 8), (markers, 1)):
        before = quotas.exempt_request_time()
        assert [await mute_ms_of(broker, request, version) for _ in range(3)] == [0, 0, 0]
        assert quotas.exempt_request_time() > before
    before = quotas.exempt_request_time()
    assert await mute_ms_of(broker, fetch(), 4) > 0
    assert quotas.exempt_request_time() <= before


async def test_client_that_only_claims_to_be_a_broker_has_quotas(tmp_path: Path) -> None:
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    async with running_broker(tmp_path, acls) as broker:
        broker.channel.principal = "User:admin"
        await set_quota(broker, "request_percentage", 0.00001)
        broker.channel.principal = "User:nobody"
        follower = fetch()
        follower.replica_id = 2
        update = UpdateMetadataRequest(controller_id=0, controller_epoch=0, live_brokers=[])
        for request, version in ((follower, 4), (update, 8)):
            assert await mute_ms_of(broker, request, version) > 0


async def test_api_versions_count_after_the_login_alone(broker: InProcessBroker) -> None:
    await set_quota(broker, "request_percentage", 0.00001)
    assert await mute_ms_of(broker, ApiVersionsRequest(), 3) > 0
    broker.channel.authentication = Authentication.PENDING
    assert await mute_ms_of(broker, ApiVersionsRequest(), 3) == 0


async def test_changes_that_are_denied_or_fail_do_not_use_the_quota(tmp_path: Path) -> None:
    """Otherwise a client without permissions could find out which topics exist, and how many partitions they have."""
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    async with running_broker(tmp_path, acls) as broker:
        broker.channel.principal = "User:admin"
        await broker.create_topic("secret", 60)
        await set_quota(broker, "controller_mutation_rate", 1)
        same = CreateTopicsRequest(topics=[_sixty("secret")])
        wrong = CreateTopicsRequest(topics=[_sixty("no/name")])
        for request, code in ((same, ErrorCode.TOPIC_ALREADY_EXISTS), (wrong, ErrorCode.INVALID_TOPIC_EXCEPTION)):
            responses = [await broker.ask(request, 6, client_id="limited") for _ in range(2)]
            assert [one.topics[0].error_code for one in responses] == [code, code]
        broker.channel.principal = "User:nobody"
        for name in ("secret", "missing", "secret", "missing"):
            response = await broker.ask(
                DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5, client_id="limited"
            )
            assert response.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert response.throttle_time_ms == 0


@pytest.mark.parametrize("version", [5, 7])
async def test_topics_that_are_not_created_do_not_use_the_quota(broker: InProcessBroker, version: int) -> None:
    await set_quota(broker, "controller_mutation_rate", 10)
    wide = creation("wide", partitions=1000)
    wide.topics[0].replication_factor = 99
    for request, code in (
        (wide, ErrorCode.INVALID_REPLICATION_FACTOR),
        (creation("twice", "twice", partitions=60), ErrorCode.INVALID_REQUEST),
        (creation("narrow"), ErrorCode.NONE),
    ):
        response = await broker.ask(request, version, client_id="limited")
        assert {topic.error_code for topic in response.topics} == {code}
        assert response.throttle_time_ms == 0


@pytest.mark.parametrize("version", [2, 3])
async def test_topics_that_are_not_extended_do_not_use_the_quota(broker: InProcessBroker, version: int) -> None:
    await set_quota(broker, "controller_mutation_rate", 10)
    wide = extension(t=1001)
    wide.topics[0].assignments = [CreatePartitionsAssignment(broker_ids=[0])]
    twice = extension(t=60)
    twice.topics *= 2
    for request, code in (
        (wide, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (twice, ErrorCode.INVALID_REQUEST),
        (extension(t=2), ErrorCode.NONE),
    ):
        response = await broker.ask(request, version, client_id="limited")
        assert {topic.error_code for topic in response.results} == {code}
        assert response.throttle_time_ms == 0


@pytest.mark.parametrize("names", ["by name", "by id"])
async def test_topics_that_are_not_deleted_do_not_use_the_quota(tmp_path: Path, names: str) -> None:
    async with running_broker(tmp_path, {"delete.topic.enable": "false"}) as broker:
        await broker.create_topic("wide", 60)
        topic_id = broker.services.metadata_cache.topics["wide"].topic_id
        await set_quota(broker, "controller_mutation_rate", 1)
        wide = DeleteTopicState(name="wide", topic_id=ZERO_UUID)
        if names == "by id":
            wide = DeleteTopicState(name=None, topic_id=topic_id)
        for _ in range(2):
            request = DeleteTopicsRequest(topics=[wide], timeout_ms=1000)
            (result,) = (await broker.ask(request, 6, client_id="limited")).responses
            assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        request = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000)
        old = await broker.ask(request, 4, client_id="limited")
        assert (old.responses[0].error_code, old.throttle_time_ms) == (ErrorCode.TOPIC_DELETION_DISABLED, 0)


async def test_failed_deletion_returns_no_tokens_of_another_topic(broker: InProcessBroker) -> None:
    await broker.create_topic("wide", 60)
    topic_ids = [broker.services.metadata_cache.topics[name].topic_id for name in ("wide", "t")]
    await set_quota(broker, "controller_mutation_rate", 1)
    codes = []
    for ids in ([topic_ids[0], uuid4()], topic_ids[1:]):
        states = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
        response = await broker.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6, client_id="limited")
        codes += [result.error_code for result in response.responses]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


async def test_request_that_fails_as_a_whole_does_not_use_the_quota(broker: InProcessBroker) -> None:
    await broker.create_topic("wide", 60)
    topic_id = broker.services.metadata_cache.topics["wide"].topic_id
    await set_quota(broker, "controller_mutation_rate", 1)
    codes = []
    for wrong_id in (topic_id, ZERO_UUID):
        state = DeleteTopicState(name="wide", topic_id=wrong_id)
        response = await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6, client_id="limited")
        codes.append(response.responses[0].error_code)
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


async def test_change_that_continues_after_its_timeout_uses_the_quota(broker: InProcessBroker) -> None:
    await broker.create_topic("wide", 60)
    await set_quota(broker, "controller_mutation_rate", 1)
    codes = []
    for name in ("wide", "t"):
        state = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        response = await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=0), 6, client_id="limited")
        codes.append(response.responses[0].error_code)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


async def test_validation_does_not_use_the_quota(broker: InProcessBroker) -> None:
    await set_quota(broker, "controller_mutation_rate", 1)
    wide, more = creation("wide", partitions=60), extension(t=60)
    wide.validate_only = more.validate_only = True
    for _ in range(2):
        (created,) = (await broker.ask(wide, 7, client_id="limited")).topics
        (extended,) = (await broker.ask(more, 3, client_id="limited")).results
        assert (created.error_code, extended.error_code) == (ErrorCode.NONE, ErrorCode.NONE)


async def test_more_partitions_than_a_request_can_have_do_not_use_the_quota(broker: InProcessBroker) -> None:
    """Otherwise the first topic would use the tokens of the second one, and of all who share the quota."""
    await set_quota(broker, "controller_mutation_rate", 1)
    request = creation("huge", "small")
    request.topics[0].num_partitions = 2**31 - 1
    created = await broker.ask(request, 7, client_id="limited")
    assert [topic.error_code for topic in created.topics] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    extended = await broker.ask(extension(t=2**31 - 1, small=6), 3, client_id="limited")
    assert [topic.error_code for topic in extended.results] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


def _sixty(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=60, replication_factor=1, assignments=[], configs=[])


async def test_quota_that_is_removed_has_no_effect(broker: InProcessBroker) -> None:
    await set_quota(broker, "producer_byte_rate", 1)
    assert (await broker.ask(produce(), 9, client_id="limited")).throttle_time_ms > 0
    await set_quota(broker, "producer_byte_rate", None)
    assert (await broker.ask(produce(), 9, client_id="limited")).throttle_time_ms == 0
    assert "_framed" not in vars(broker.dispatcher), "without quotas nothing stands between handler and response"
    assert broker.dispatcher._framed.__func__ is RequestDispatcher._framed  # type: ignore[attr-defined]


def creation(*names: str, partitions: int = 5) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
    )


def extension(**counts: int) -> CreatePartitionsRequest:
    """Ask for partitions, by topic."""
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=1000,
        validate_only=False,
    )


async def test_changes_over_the_quota_are_refused_topic_by_topic(broker: InProcessBroker) -> None:
    await set_quota(broker, "controller_mutation_rate", 1)
    response = await broker.ask(creation("a", "b", "c", "d"), 7, client_id="limited")
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {"a": 0, "b": 0, "c": 0, "d": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert response.throttle_time_ms > 0
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=1000)
    refused = await broker.ask(deletion, 6, client_id="limited")
    assert refused.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("names", ["by name", "by id"])
async def test_a_deletion_counts_the_partitions_of_its_topic(broker: InProcessBroker, names: str) -> None:
    await broker.create_topic("wide", 60)
    await set_quota(broker, "controller_mutation_rate", 1)
    wide = DeleteTopicState(name="wide", topic_id=ZERO_UUID)
    if names == "by id":
        wide = DeleteTopicState(name=None, topic_id=broker.services.metadata_cache.topics["wide"].topic_id)
    codes = []
    for state in (wide, DeleteTopicState(name="t", topic_id=ZERO_UUID)):
        deleted = await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6, client_id="limited")
        codes.append(deleted.responses[0].error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


async def test_old_clients_are_muted_instead(broker: InProcessBroker) -> None:
    await set_quota(broker, "controller_mutation_rate", 1)
    response = await broker.ask(creation("a", "b", "c", "d"), 5, client_id="limited")
    assert {topic.error_code for topic in response.topics} == {ErrorCode.NONE}
    assert response.throttle_time_ms > 0


async def test_old_clients_are_not_muted_for_changes_that_fail(broker: InProcessBroker) -> None:
    await set_quota(broker, "controller_mutation_rate", 1)
    await broker.ask(creation("a", "b", "c", "d"), 5, client_id="limited")
    for request, code in (
        (creation("a"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creation("twice", "twice"), ErrorCode.INVALID_REQUEST),
    ):
        response = await broker.ask(request, 5, client_id="limited")
        assert (response.topics[0].error_code, response.throttle_time_ms) == (code, 0)


def test_windows_and_defaults_come_from_the_settings() -> None:
    config = BrokerConfig.from_properties({"quota.window.num": "5", "quota.producer.default": "7"})
    assert quota_windows(config).count == 5
    assert {key.name: value for key, value in quota_defaults(config).items()} == {"PRODUCE": 7.0}


async def test_quotas_are_counted_on_the_event_loop_whatever_thread_encodes_the_response(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_quota(broker, "request_percentage", 1000)
    threads = []
    record = EnforcedQuotas.record_request

    def recorded(*values: Any) -> float:
        threads.append(threading.current_thread())
        return record(*values)

    monkeypatch.setattr(EnforcedQuotas, "record_request", recorded)
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(10_000)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    assert len((await broker.ask(request, 1)).topics[0].partitions) == len(partitions)
    assert threads == [threading.main_thread()]
