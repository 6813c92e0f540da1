"""Topics through the whole broker: Metadata, CreateTopics, CreatePartitions, DeleteTopics and DescribeConfigs."""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.schema import ZERO_UUID
from tests.support.in_process import InProcessBroker, running_broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16


@pytest.fixture
def served(broker_of_file: InProcessBroker) -> InProcessBroker:
    return broker_of_file


async def metadata(
    broker: InProcessBroker, *names: str, version: int = 12, may_create: bool = False, topic_id: UUID = ZERO_UUID
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    if topic_id != ZERO_UUID:
        topics.append(MetadataRequestTopic(name=None, topic_id=topic_id))
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=may_create or version < 4)
    response = await broker.ask(request, version)
    assert isinstance(response, MetadataResponse)
    return response


def creatable(name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def exists(broker: InProcessBroker, name: str) -> bool:
    return (await metadata(broker, name)).topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(4))
async def test_missing_topics_are_created_before_version_4_could_say_no(
    served: InProcessBroker, name: str, version: int
) -> None:
    response = await metadata(served, name, version=version)
    assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert await exists(served, name)


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize("may_create", [True, False])
async def test_later_versions_decide(served: InProcessBroker, name: str, version: int, may_create: bool) -> None:
    (topic,) = (await metadata(served, name, version=version, may_create=may_create)).topics
    # A topic that did not exist is returned without partitions, also by the request that creates it.
    assert (topic.name, topic.topic_id, topic.partitions) == (name, ZERO_UUID, [])
    assert topic.error_code == (ErrorCode.LEADER_NOT_AVAILABLE if may_create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await exists(served, name) is may_create


async def test_concurrent_requests_for_a_missing_topic_get_a_retriable_error(
    served: InProcessBroker, name: str
) -> None:
    responses = await asyncio.gather(*(metadata(served, name, may_create=True) for _ in range(3)))
    assert [response.topics[0].error_code for response in responses] == [ErrorCode.LEADER_NOT_AVAILABLE] * 3
    assert await exists(served, name)


@pytest.mark.parametrize("name", ["", "bad name", "..", "x" * 250, "slash/ed"])
async def test_impossible_names_are_never_created(served: InProcessBroker, name: str) -> None:
    response = await metadata(served, name, may_create=True)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("name", "partitions", "policy"), [("__consumer_offsets", 3, "compact"), ("__transaction_state", 2, "compact")]
)
async def test_internal_topics_get_their_settings_whichever_request_names_them_first(
    tmp_path: Path, name: str, partitions: int, policy: str
) -> None:
    settings = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}
    async with running_broker(tmp_path, settings) as broker:
        (topic,) = (await metadata(broker, name, may_create=True)).topics
        assert (topic.error_code, topic.is_internal) == (ErrorCode.LEADER_NOT_AVAILABLE, True)
        (topic,) = (await metadata(broker, name)).topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (ErrorCode.NONE, True, partitions)
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["cleanup.policy"]
        )
        (result,) = (await broker.ask(DescribeConfigsRequest(resources=[resource]))).results
        assert [row.value for row in result.configs] == [policy]


@pytest.mark.asyncio(loop_scope="function")
async def test_all_topics_are_null_and_in_version_0_an_empty_list(own_broker: InProcessBroker, name: str) -> None:
    await own_broker.create_topic(name, 3)
    for version in range(13):
        everything = MetadataRequest(topics=[] if version == 0 else None)
        response = await own_broker.ask(everything, version)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [(name, 3)]
        if version > 0:
            assert (await own_broker.ask(MetadataRequest(topics=[]), version)).topics == []


async def test_topics_are_found_by_id(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    known = (await metadata(served, name)).topics[0]
    found = (await metadata(served, topic_id=known.topic_id)).topics[0]
    assert (found.name, found.error_code) == (name, ErrorCode.NONE)
    assert (await metadata(served, topic_id=uuid4())).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    early = (await metadata(served, topic_id=known.topic_id, version=11)).topics[0]
    assert early.error_code == ErrorCode.INVALID_REQUEST


async def test_the_broker_names_itself_on_the_listener_that_was_used(served: InProcessBroker) -> None:
    described = await served.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    reported = await metadata(served)
    assert described.cluster_id == reported.cluster_id
    assert described.controller_id == reported.controller_id == 0
    assert [(broker.broker_id, broker.host, broker.port) for broker in described.brokers] == [
        (broker.node_id, broker.host, broker.port) for broker in reported.brokers
    ]
    assert described.cluster_authorized_operations == 8096
    served.channel.listener = "ANOTHER"
    assert (await metadata(served)).brokers == []


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_the_endpoints_of_brokers_are_all_that_is_known(
    served: InProcessBroker, endpoint_type: int, code: ErrorCode
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    assert (await served.ask(request, 1)).error_code == code


async def test_topic_is_returned_once_however_often_it_is_named(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    response = await metadata(served, name, "no-such", name, "no-such")
    assert [topic.name for topic in response.topics] == [name, "no-such"]


async def test_topic_id_takes_precedence_over_the_name(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    (known,) = (await metadata(served, name)).topics
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(name="another", topic_id=known.topic_id),
            MetadataRequestTopic(name=name, topic_id=uuid4()),
        ]
    )
    by_id, unknown = (await served.ask(request, 12)).topics
    assert (by_id.error_code, by_id.name) == (ErrorCode.NONE, name)
    assert (unknown.error_code, unknown.name, unknown.partitions) == (ErrorCode.UNKNOWN_TOPIC_ID, None, [])
    request.topics[1] = MetadataRequestTopic(name=name)
    assert [topic.topic_id for topic in (await served.ask(request, 12)).topics] == [known.topic_id], (
        "names do not count"
    )


async def test_missing_topic_has_authorized_operations(served: InProcessBroker, name: str) -> None:
    topics = [MetadataRequestTopic(name=each) for each in (name, "bad name")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    reported = (await served.ask(request)).topics
    assert [topic.topic_authorized_operations for topic in reported] == [0b110111111000] * 2


@pytest.mark.asyncio(loop_scope="function")
async def test_good_and_bad_topics_of_one_request(own_broker: InProcessBroker, name: str) -> None:
    await own_broker.create_topic(f"{name}-old")
    topics = [
        creatable(f"{name}-good", 2, retention_ms="1000"),
        creatable(f"{name}-old"),
        creatable("bad name"),
        creatable(f"{name}-a", partitions=0),
        creatable(f"{name}-b", replication_factor=2),
        creatable(f"{name}-c", no_such_key="1"),
        creatable(f"{name}-lag", min_compaction_lag_ms="2", max_compaction_lag_ms="1"),
        creatable(f"{name}-twice"),
        creatable(f"{name}-twice"),
        creatable(f"{name}-d"),
    ]
    topics[-1].assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[0])]
    response = await own_broker.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    codes = [(topic.name.removeprefix(name), topic.error_code) for topic in response.topics]
    assert dict(codes) == {
        "-good": ErrorCode.NONE,
        "-old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "-a": ErrorCode.INVALID_PARTITIONS,
        "-b": ErrorCode.INVALID_REPLICATION_FACTOR,
        "-c": ErrorCode.INVALID_CONFIG,
        "-lag": ErrorCode.INVALID_CONFIG,
        "-twice": ErrorCode.INVALID_REQUEST,
        "-d": ErrorCode.INVALID_REQUEST,
    }
    assert all(topic.configs == [] for topic in response.topics if topic.error_code), "null would say: not allowed"
    good = response.topics[0]
    assert (good.num_partitions, good.replication_factor) == (2, 1)
    assert {config.name: config.value for config in good.configs}["retention.ms"] == "1000"
    reported = (await metadata(own_broker, f"{name}-good")).topics[0]
    assert reported.topic_id == good.topic_id
    assert [partition.leader_id for partition in reported.partitions] == [0, 0], "responds when the topic can be used"


def assigned(name: str, *replicas: tuple[int, list[int]], timeout_ms: int = 10) -> CreateTopicsRequest:
    topic = creatable(name, partitions=-1, replication_factor=-1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=it, broker_ids=ids) for it, ids in replicas]
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ([(0, [0]), (1, [0, 1])], "All partitions should have the same number of replicas"),
        ([(0, [0]), (2, [0])], "partitions should be a consecutive 0-based integer sequence"),
        ([(0, [0, 0])], "Duplicate replica assignment found: HashMap(0 -> ArrayBuffer(0, 0))"),
        ([(0, [])], "Cannot have replication factor of 0 for partition id 0."),
    ],
)
async def test_assignments_that_cannot_be(
    served: InProcessBroker, name: str, replicas: list[tuple[int, list[int]]], message: str
) -> None:
    (response,) = (await served.ask(assigned(name, *replicas))).topics
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


async def test_of_two_assignments_of_a_partition_the_last_counts(served: InProcessBroker, name: str) -> None:
    request = assigned(name, (0, [7]), (1, [0]), (0, [0]), timeout_ms=30_000)
    (response,) = (await served.ask(request)).topics
    assert (response.error_code, response.num_partitions) == (ErrorCode.NONE, 2)


async def test_a_topic_on_brokers_that_are_not_there(tmp_path: Path, name: str) -> None:
    async with running_broker(tmp_path) as broker:
        (late,) = (await broker.ask(assigned(name, (0, [9]), (1, [0])))).topics
        assert (late.error_code, late.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None), (
            "the metadata has no leader"
        )
        (unseen,) = (await broker.ask(assigned(f"{name}-unseen", (0, [9])))).topics
        assert unseen.error_code == ErrorCode.REQUEST_TIMED_OUT
        (again,) = (await broker.ask(assigned(name, (0, [0])))).topics
        assert (again.error_code, again.error_message) == (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{name}' already exists.",
        )
    async with running_broker(tmp_path) as broker:
        partly, unknown = (await metadata(broker, name, f"{name}-unseen")).topics
        assert (partly.error_code, partly.topic_id) == (ErrorCode.NONE, late.topic_id)
        assert [(it.partition_index, it.leader_id) for it in partly.partitions] == [(1, 0)]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = (await metadata(broker, f"{name}-unseen", may_create=True)).topics[0]
        assert asked.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        wanted = CreatePartitionsTopic(name=name, count=3, assignments=[CreatePartitionsAssignment(broker_ids=[9])])
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
        (refused,) = (await broker.ask(request)).results
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9.",
        )
        doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1000)
        (deleted,) = (await broker.ask(doomed)).responses
        assert deleted.error_code == ErrorCode.NONE
        assert not await exists(broker, name)
        (marked,) = (await broker.ask(assigned(name, (0, [0])))).topics
        assert marked.error_message == f"Topic '{name}' is marked for deletion.", "until broker 9 has deleted its part"


async def test_request_without_a_timeout_times_out_and_takes_effect(served: InProcessBroker, name: str) -> None:
    request = CreateTopicsRequest(topics=[creatable(name)], timeout_ms=0)
    (created,) = (await served.ask(request)).topics
    assert created.error_code == ErrorCode.REQUEST_TIMED_OUT
    await served.create_topic(f"{name}-later")
    assert created.topic_id == (await metadata(served, name)).topics[0].topic_id, "it was made nevertheless"
    doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=-1)
    assert (await served.ask(doomed)).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not await exists(served, name)


async def test_wait_of_a_lost_client_ends_and_its_topic_stays(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.services.metadata_cache, "has_leaders", lambda topic, partition_count: False)
    purgatory = served.services.topics.purgatory
    creating = asyncio.ensure_future(
        served.ask(CreateTopicsRequest(topics=[creatable(name)], timeout_ms=60_000, validate_only=False))
    )
    async with asyncio.timeout(10):
        while not (purgatory.delayed_count and await exists(served, name)):  # noqa: ASYNC110
            await asyncio.sleep(0)
    creating.cancel()
    await asyncio.wait({creating})
    assert purgatory.delayed_count == 0
    assert await exists(served, name)


async def test_validation_alone_creates_nothing(served: InProcessBroker, name: str) -> None:
    request = CreateTopicsRequest(topics=[creatable(name)], timeout_ms=10_000, validate_only=True)
    assert (await served.ask(request)).topics[0].error_code == ErrorCode.NONE
    assert not await exists(served, name)


@pytest.mark.parametrize(
    ("count", "code"), [(3, ErrorCode.NONE), (2, ErrorCode.INVALID_PARTITIONS), (1, ErrorCode.INVALID_PARTITIONS)]
)
async def test_partitions_only_grow(served: InProcessBroker, name: str, count: int, code: ErrorCode) -> None:
    await served.create_topic(name, 2)
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)
    assert (await served.ask(request)).results[0].error_code == code
    assert len((await metadata(served, name)).topics[0].partitions) == max(count, 2)


async def test_a_topic_that_is_to_grow_twice_is_refused_once(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    twice = [CreatePartitionsTopic(name=name, count=count, assignments=None) for count in (2, 3)]
    (refused,) = (await served.ask(CreatePartitionsRequest(topics=twice, timeout_ms=1000, validate_only=False))).results
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")


@pytest.mark.parametrize("version", range(13))
async def test_cached_response_is_built_again_after_a_change(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name, 2)
    first = await metadata(served, name, version=version)
    assert await metadata(served, name, version=version) == first
    wanted = CreatePartitionsTopic(name=name, count=3, assignments=None)
    await served.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False))
    (grown,) = (await metadata(served, name, version=version)).topics
    assert grown.partitions[:2] == first.topics[0].partitions
    assert [partition.partition_index for partition in grown.partitions] == [0, 1, 2]


async def test_each_form_of_the_request_gets_its_own_response(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    for version in (*range(13), *reversed(range(13))):
        for wants_operations in (False, True) if version >= 8 else (False,):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], include_topic_authorized_operations=wants_operations
            )
            (topic,) = (await served.ask(request, version)).topics
            assert (topic.name, topic.error_code, len(topic.partitions)) == (name, ErrorCode.NONE, 1)
            assert (topic.topic_authorized_operations > 0) is wants_operations
            assert (topic.topic_id != ZERO_UUID) is (version >= 10)


@pytest.mark.parametrize("version", range(7))
async def test_topics_are_deleted_and_made_anew(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name)
    first_id = (await metadata(served, name)).topics[0].topic_id
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)] if version >= 6 else [],
        topic_names=[] if version >= 6 else [name],
        timeout_ms=10_000,
    )
    assert (await served.ask(request, version)).responses[0].error_code == ErrorCode.NONE
    assert not await exists(served, name)
    again = (await served.ask(request, version)).responses[0]
    assert (again.error_code, again.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    await served.create_topic(name)
    assert (await metadata(served, name)).topics[0].topic_id != first_id


async def test_topics_are_deleted_by_id(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    topic_id = (await metadata(served, name)).topics[0].topic_id
    states = [DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=uuid4())]
    response = await served.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000))
    assert [(one.name, one.error_code) for one in response.responses] == [
        (name, ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", [5, 6])
async def test_a_topic_named_twice_is_deleted_once(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name)
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[name] * 2, timeout_ms=10_000)
    else:
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID)] * 2
        request = DeleteTopicsRequest(topics=states, timeout_ms=10_000)
    response = await served.ask(request, version)
    assert [(one.name, one.error_code) for one in response.responses] == [(name, ErrorCode.NONE)] * 2
    assert not await exists(served, name)


async def test_nothing_is_deleted_of_a_request_with_a_name_and_an_id_for_one_topic(
    served: InProcessBroker, name: str
) -> None:
    others = [f"{name}-1", f"{name}-2"]
    for each in others:
        await served.create_topic(each)
    states = [DeleteTopicState(name=others[0], topic_id=ZERO_UUID), DeleteTopicState(name=others[1], topic_id=uuid4())]
    response = await served.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000))
    assert [one.error_code for one in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert [await exists(served, each) for each in others] == [True, True]


@pytest.mark.parametrize("version", range(5))
async def test_configs_are_described_with_their_sources(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name, retention_ms="1000")
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)],
        include_synonyms=version >= 1,
        include_documentation=version >= 3,
    )
    (result,) = (await served.ask(request, version)).results
    assert result.error_message == "", "as Kafka says that nothing is wrong"
    rows = {row.name: row for row in result.configs}
    assert (rows["retention.ms"].value, rows["cleanup.policy"].value) == ("1000", "delete")
    if version == 0:
        assert (rows["retention.ms"].is_default, rows["cleanup.policy"].is_default) == (False, True)
    else:
        assert (rows["retention.ms"].config_source, rows["cleanup.policy"].config_source) == (1, 5)
    if version >= 3:
        assert rows["retention.ms"].documentation


@pytest.mark.parametrize(
    ("resource_type", "resource_name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "0", ErrorCode.NONE),
        (BROKER, "", ErrorCode.NONE),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "0", ErrorCode.NONE),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_only_existing_resources_have_configs(
    served: InProcessBroker, resource_type: int, resource_name: str, code: ErrorCode
) -> None:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=resource_name, configuration_keys=None
    )
    (result,) = (await served.ask(DescribeConfigsRequest(resources=[resource]))).results
    assert result.error_code == code
    assert bool(result.configs) == (code == ErrorCode.NONE and resource_name != "")


async def test_a_resource_of_unknown_type_spoils_the_whole_request(served: InProcessBroker) -> None:
    resources = [
        DescribeConfigsResource(resource_type=resource_type, resource_name="0", configuration_keys=None)
        for resource_type in (BROKER, 3)
    ]
    results = (await served.ask(DescribeConfigsRequest(resources=resources))).results
    assert [(result.error_code, result.configs) for result in results] == [(ErrorCode.INVALID_REQUEST, [])] * 2
