"""The checks of every API, derived from the table of permissions: denied, allowed, and topics that do not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from broker.handlers.guard import DENIED
from broker.requests.error_counts import error_counts
from broker.requests.routes import TABLE
from broker.security.acls import Acl, Operation, Pattern, PatternType, Permission, ResourceType
from broker.security.authorizer import Authorizer
from config.broker_properties import AUTHORIZERS
from controller.machine.topic_creation import NAME_LENGTH_MAX
from protocol.api import APIS
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, Malformed
from tests.fuzz.valid_requests import READ_TOPIC, TOPIC, Known, build, valid_requests
from tests.support.in_process import InProcessBroker, running_broker

ADMIN, EVE = "User:admin", "User:eve"
GROUP, TRANSACTIONAL_ID = "group", "transactional-id"
LISTS_ONLY_WHAT_IS_ALLOWED = {16, 66}
NOT_CHECKED = {17, 18, 36, 38, 39, 40, 41, 60, 68, 69, 71, 72}
"""APIs without a permission, or whose rule is not one of the table."""
FROM_BROKERS = (4, 5, 6, 7, 27, 56, 67, *range(83, 88))
"""Whether they are served depends on the listener as well, and their effects would outlive the test."""
WITHOUT_TRANSACTIONAL_ID = {0, 10}
"""The valid request of these names none."""
WITHOUT_CODE = {(35, 0)}
"""DescribeLogDirs v0 has no error code; nothing is listed."""
AUTHORIZATION_CODES = set(DENIED.values())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InProcessBroker]:
    settings = {"authorizer.class.name": AUTHORIZERS[0], "super.users": f"User:other;{ADMIN}"}
    async with running_broker(tmp_path_factory.mktemp("authorized"), settings) as running:
        running.channel.principal = ADMIN
        for topic in (TOPIC, READ_TOPIC):
            await running.create_topic(topic)
        yield running


def known(broker: InProcessBroker, *, topic: str = TOPIC) -> dict[str, dict[str, Any]]:
    found = broker.services.metadata_cache.topics.get(READ_TOPIC)
    return valid_requests(
        Known(
            topic_id=UUID(int=5) if found is None else found.topic_id,
            member_id="member",
            group=GROUP,
            transactional_id=TRANSACTIONAL_ID,
            producer_id=1,
            log_dir="/none",
            new_topic="new-topic",
            own_topic=topic,
            broker_epoch=1,
        )
    )


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Return values of a request with other names of topics."""
    match value:
        case dict():
            return {key: renamed(each, names) for key, each in value.items()}
        case list():
            return [renamed(each, names) for each in value]
        case str():
            return names.get(value, value)
        case _:
            return value


def expected_code(key: int) -> ErrorCode:
    """Return the code for a request without any permission: checks of the whole request come first."""
    permissions = TABLE[key].API.permissions
    if key == 27 or permissions.cluster is not None:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if permissions.transactional_id is not None and key not in WITHOUT_TRANSACTIONAL_ID:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if permissions.group is not None:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def codes_of(response: Any, version: int) -> set[int]:
    return set(error_counts(response, version))


def served_versions(*without: int) -> list[Any]:
    return [
        pytest.param(key, version, id=f"{APIS[key].name} v{version}")
        for key in sorted(TABLE)
        if key not in NOT_CHECKED and key not in without
        for version in {APIS[key].versions[0], APIS[key].versions[-1]}
    ]


async def ask(broker: InProcessBroker, principal: str, key: int, version: int, values: dict[str, Any]) -> Any:
    broker.channel.principal = principal
    return await broker.ask(build(APIS[key].request, values, version), version)


@pytest.mark.parametrize(("key", "version"), served_versions())
@pytest.mark.asyncio(loop_scope="module")
async def test_client_without_permissions_is_denied_whether_or_not_topics_exist(
    broker: InProcessBroker, key: int, version: int
) -> None:
    values = known(broker)[APIS[key].name]
    missing = renamed(values, {TOPIC: "missing-topic", READ_TOPIC: "missing-read"})
    responses = []
    for sent, names in ((values, {}), (missing, {"missing-topic": TOPIC, "missing-read": READ_TOPIC})):
        try:
            response = await ask(broker, EVE, key, version, sent)
        except Malformed as closed:
            responses.append(str(closed))
            continue
        if key in LISTS_ONLY_WHAT_IS_ALLOWED or (key, version) in WITHOUT_CODE:
            assert codes_of(response, version) <= {ErrorCode.NONE}
        else:
            codes = codes_of(response, version) - {ErrorCode.NONE}
            assert codes == {expected_code_in(key, version)}, response
        responses.append(str(vars_of(response, names)))
    assert responses[0] == responses[1]


def expected_code_in(key: int, version: int) -> ErrorCode:
    if key == 24 and version >= 4:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return expected_code(key)


def vars_of(response: Any, names: dict[str, str]) -> Any:
    """Return the fields of a response, at every depth."""
    if hasattr(response, "__fields__"):
        return {field.name: vars_of(getattr(response, field.name), names) for field in response.__fields__}
    if isinstance(response, list | tuple):
        return [vars_of(each, names) for each in response]
    if isinstance(response, memoryview):
        return bytes(response)
    return names.get(response, response) if isinstance(response, str) else response


@pytest.mark.parametrize(("key", "version"), served_versions(*FROM_BROKERS))
@pytest.mark.asyncio(loop_scope="module")
async def test_client_with_the_permissions_of_the_table_is_not_denied(
    broker: InProcessBroker, key: int, version: int
) -> None:
    permissions = TABLE[key].API.permissions
    grants = [
        (ResourceType.TOPIC, permissions.topic),
        (ResourceType.GROUP, permissions.group),
        (ResourceType.TRANSACTIONAL_ID, permissions.transactional_id),
    ]
    cluster = permissions.cluster
    if key == 24 and version >= 4:
        cluster = Operation.CLUSTER_ACTION
    if key in (32, 33, 44):
        cluster = permissions.topic
    if key in (20, 76):
        grants.append((ResourceType.TOPIC, Operation.DESCRIBE))
    authorizer = broker.services.authorizer
    patterns = {}
    for resource_type, operation in grants:
        if operation is not None:
            pattern = Pattern(resource_type, "*")
            patterns.setdefault(pattern, set()).add(Acl(EVE, "*", operation, Permission.ALLOW))
    if cluster is not None:
        patterns[Pattern(ResourceType.CLUSTER, "kafka-cluster")] = {Acl(EVE, "*", cluster, Permission.ALLOW)}
    for pattern, acls in patterns.items():
        authorizer.put(pattern, acls)
    names = {TOPIC: "missing-topic", READ_TOPIC: "missing-read"} if key in (20, 21) else {}
    try:
        values = renamed(known(broker)[APIS[key].name], names)
        response = await ask(broker, EVE, key, version, values)
        if response is not None:
            codes = codes_of(response, version)
            assert codes.isdisjoint(AUTHORIZATION_CODES), response
    except Malformed:
        pass  # the request is not valid in this state, which is found out behind the check
    finally:
        for pattern in patterns:
            authorizer.put(pattern, ())


# Single rules


async def allow(broker: InProcessBroker, resource_type: ResourceType, name: str, *operations: Operation) -> None:
    broker.services.authorizer.put(
        Pattern(resource_type, name, PatternType.LITERAL),
        {Acl(EVE, "*", operation, Permission.ALLOW) for operation in operations},
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_all_topics_lists_only_those_the_client_may_describe(broker: InProcessBroker) -> None:
    await allow(broker, ResourceType.TOPIC, TOPIC, Operation.READ)
    for version in (0, 1, 8, 12):
        response = await ask(broker, EVE, 3, version, {"topics": None if version else []})
        assert [topic.name for topic in response.topics] == [TOPIC]
    await allow(broker, ResourceType.TOPIC, TOPIC)
    assert (await ask(broker, EVE, 3, 0, {"topics": []})).topics == []


@pytest.mark.asyncio(loop_scope="module")
async def test_operations_of_a_topic_are_those_of_the_client(broker: InProcessBroker) -> None:
    await allow(broker, ResourceType.TOPIC, TOPIC, Operation.READ)
    asked = {"topics": None, "include_topic_authorized_operations": True}
    for principal, operations in ((EVE, 1 << 3 | 1 << 8), (ADMIN, 0b110111111000)):
        response = await ask(broker, principal, 3, 12, asked)
        (topic,) = [topic for topic in response.topics if topic.name == TOPIC]
        assert topic.topic_authorized_operations == operations
    await allow(broker, ResourceType.TOPIC, TOPIC)


@pytest.mark.asyncio(loop_scope="module")
async def test_allowed_part_of_a_request_is_served(broker: InProcessBroker) -> None:
    await allow(broker, ResourceType.TOPIC, TOPIC, Operation.WRITE)
    values = known(broker)["Produce"]
    (sent,) = [topic for topic in values["topic_data"] if topic["name"] == TOPIC]
    both = {**values, "transactional_id": None, "topic_data": [sent, {**sent, "name": "secret"}]}
    response = await ask(broker, EVE, 0, 9, both)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {TOPIC: ErrorCode.NONE, "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(Malformed):
        await ask(broker, EVE, 0, 9, {**both, "acks": 0})
    await allow(broker, ResourceType.TOPIC, TOPIC)


@pytest.mark.asyncio(loop_scope="module")
async def test_settings_of_a_group_need_permission_on_the_group(broker: InProcessBroker) -> None:
    """Not on the cluster, as those of brokers do (KIP-848)."""
    settings = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}]
    resource = {"resource_type": 32, "resource_name": GROUP}
    requests = (
        (ApiKey.DESCRIBE_CONFIGS, Operation.DESCRIBE_CONFIGS, {**resource, "configuration_keys": None}),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, Operation.ALTER_CONFIGS, {**resource, "configs": settings}),
    )
    for key, operation, named in requests:
        for allowed, code in (
            ((ResourceType.CLUSTER, "kafka-cluster"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ((ResourceType.GROUP, GROUP), ErrorCode.NONE),
        ):
            await allow(broker, *allowed, operation)
            response = await ask(broker, EVE, key, 1, {"resources": [named], "validate_only": False})
            (result,) = response.results if key is ApiKey.DESCRIBE_CONFIGS else response.responses
            assert result.error_code == code, (key, allowed)
            await allow(broker, *allowed)


@pytest.mark.asyncio(loop_scope="module")
async def test_topic_id_that_the_metadata_does_not_have_needs_permission_too(broker: InProcessBroker) -> None:
    """The replicas of a topic exist before its metadata, and after it."""
    metadata = broker.services.metadata_cache
    topic_id = metadata.topics[READ_TOPIC].topic_id
    del metadata._names_by_id[topic_id]
    try:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        values = {"replica_id": -1, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
        response = await ask(broker, EVE, 1, 13, {**known(broker)["Fetch"], **values})
    finally:
        metadata._names_by_id[topic_id] = READ_TOPIC
    assert response.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.asyncio(loop_scope="module")
async def test_client_without_create_does_not_create_topics_by_asking_for_them(broker: InProcessBroker) -> None:
    await allow(broker, ResourceType.TOPIC, "fresh", Operation.DESCRIBE)
    asked = {"topics": [{"name": "fresh", "topic_id": UUID(int=0)}], "allow_auto_topic_creation": True}
    response = await ask(broker, EVE, 3, 12, asked)
    assert response.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "fresh" not in broker.services.metadata_cache.topics
    await allow(broker, ResourceType.TOPIC, "fresh", Operation.DESCRIBE, Operation.CREATE)
    await ask(broker, EVE, 3, 12, asked)
    assert "fresh" in broker.services.metadata_cache.topics
    await allow(broker, ResourceType.TOPIC, "fresh")


@pytest.mark.asyncio(loop_scope="module")
async def test_idempotent_producer_needs_write_on_some_topic(broker: InProcessBroker) -> None:
    values = {"transactional_id": None, "transaction_timeout_ms": 1, "producer_id": -1, "producer_epoch": -1}
    denied = await ask(broker, EVE, 22, 4, values)
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await allow(broker, ResourceType.TOPIC, "any", Operation.WRITE)
    assert (await ask(broker, EVE, 22, 4, values)).error_code == ErrorCode.NONE
    await allow(broker, ResourceType.TOPIC, "any")


@pytest.mark.asyncio(loop_scope="module")
async def test_denials_are_logged_and_questions_are_not(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafka.authorizer.logger")
    await ask(broker, EVE, 3, 12, {"topics": None})
    assert not caplog.records
    await ask(broker, EVE, 3, 12, {"topics": [{"name": "secret", "topic_id": UUID(int=0)}]})
    assert caplog.messages == [
        (
            "Principal = User:eve is Denied Operation = Describe from host = 127.0.0.1 on resource = "
            "Topic:LITERAL:secret for request = Metadata with resourceRefCount = 1"
        )
    ]


class Asked:
    principal, client_host, api_key = EVE, "::1", 22


@pytest.mark.parametrize("denied", [True, False])
def test_deny_of_all_topics_counts_before_the_setting_for_resources_without_acls(denied: bool) -> None:
    authorizer = Authorizer(is_active=True, allow_everyone_if_no_acl_found=True)
    if denied:
        authorizer.put(Pattern(ResourceType.TOPIC, "*"), {Acl(EVE, "*", Operation.ALL, Permission.DENY)})
    assert authorizer.allows_on_any(Asked(), Operation.WRITE, ResourceType.TOPIC) is not denied


def test_setting_decides_about_resources_without_acls() -> None:
    for allows in (True, False):
        authorizer = Authorizer(is_active=True, allow_everyone_if_no_acl_found=allows)
        authorizer.put(Pattern(ResourceType.TOPIC, "t"), {Acl("User:bob", "*", Operation.READ, Permission.ALLOW)})
        assert authorizer.allows(Asked(), Operation.READ, ResourceType.TOPIC, "other") is allows
        assert not authorizer.allows(Asked(), Operation.READ, ResourceType.TOPIC, "t")


def test_decisions_about_names_longer_than_those_of_topics_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer, decided = Authorizer(is_active=True), list[int]()
    decide = authorizer.index.decide

    def counted(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool | None:
        decided.append(len(name))
        return decide(principal, host, operation, kind, name)

    monkeypatch.setattr(authorizer.index, "decide", counted)
    for length in (NAME_LENGTH_MAX, NAME_LENGTH_MAX + 1):
        for _ in range(2):
            assert not authorizer.allows(Asked(), Operation.READ, ResourceType.TOPIC, "t" * length)
    assert decided == [NAME_LENGTH_MAX, NAME_LENGTH_MAX + 1, NAME_LENGTH_MAX + 1]
