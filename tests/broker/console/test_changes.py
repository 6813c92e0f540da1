"""Changes that the console makes: each has a preview, and only what was previewed is made."""

from __future__ import annotations

from typing import Any

import pytest

from base.topic_partition import TopicPartition
from broker.console.changes.records import PRODUCE_TIMEOUT_MS
from broker.console.cluster_client import ClusterClient
from broker.network.outgoing import PeerUnavailable
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tests.broker.console.conftest import ConsoleUser
from tests.broker.console.test_resources import commit, numbers, records_of
from tests.broker.handlers.test_produce_and_fetch import produce

AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
WRITING = {"console.write.enable": "true"}
NEW = {"name": "t", "partitions": 2, "replication_factor": 1, "configs": {}}
RULE = {
    "resource_type": "Topic", "resource": "t", "pattern": "LITERAL", "principal": "User:alice", "host": "*",
    "operation": "Read", "permission": "Allow",
}  # fmt: skip
USER = {"action": "set", "user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096, "password": "wonderland"}

TOPIC, GROUP, CLUSTER, ALLOW = 2, 3, 4, 3
READ, CREATE, DESCRIBE, DESCRIBE_CONFIGS = 3, 5, 8, 10


@pytest.fixture
def overrides() -> dict[str, str]:
    return {**WRITING, **AUTHORIZER, "super.users": "User:ANONYMOUS", "password.encoder.secret": "s"}


async def change(console: ConsoleUser, path: str, body: dict[str, Any] | None = None) -> list[tuple[str, Any, Any]]:
    """Preview a change, make it, and return its rows, which must be those of the preview."""
    status, preview = await console.send("POST", path, {**(body or {}), "confirm": ""})
    assert (status, preview.get("is_done")) == (200, False), preview
    status, done = await console.send("POST", path, {**(body or {}), "confirm": preview["confirm"]})
    assert (status, done.get("is_done")) == (200, True), done
    assert done["rows"] == preview["rows"], done
    return [(each["subject"], each["before"], each["after"]) for each in done["rows"]]


async def warnings(console: ConsoleUser, path: str, body: dict[str, Any] | None = None) -> str:
    _, preview = await console.send("POST", path, {**(body or {}), "confirm": ""})
    return " ".join(preview["warnings"])


async def names(console: ConsoleUser) -> list[str]:
    return [each["name"] for each in (await console.get("/topics"))["topics"]]


async def test_topics_are_created_grown_emptied_and_deleted(console: ConsoleUser) -> None:
    assert await change(console, "/topics", {**NEW, "configs": {"retention.ms": "5000000"}}) == [
        ("topic t", None, "2 partitions, replication factor 1"),
        ("retention.ms", "604800000", "5000000"),
    ]
    assert await change(console, "/topics/t/partitions", {"count": 3}) == [("topic t", "2 partitions", "3 partitions")]
    assert "another partition" in await warnings(console, "/topics/t/partitions", {"count": 4})
    assert (await console.get("/topics/t"))["partition_count"] == 3
    assert (await console.get("/topics/t"))["overrides"] == {"retention.ms": "5000000"}

    await produce(console.broker, "t", {0: records_of(0, 3), 1: records_of(3, 2)})
    _, preview = await console.send("POST", "/topics/t/empty", {"partition": -1, "confirm": ""})
    await produce(console.broker, "t", {0: records_of(5, 1)})  # it was not previewed, so it stays
    status, done = await console.send("POST", "/topics/t/empty", {"partition": -1, "confirm": preview["confirm"]})
    assert status == 200
    assert [(each["before"], each["after"]) for each in done["rows"]] == [
        ("3 offsets from 0 on", "begins at offset 3"),
        ("2 offsets from 0 on", "begins at offset 2"),
        ("0 offsets from 0 on", "begins at offset 0"),
    ]
    assert numbers((await console.get("/topics/t/records"))["records"]) == [5]
    assert await change(console, "/topics/t/empty", {"partition": 0}) == [
        ("t-0", "1 offsets from 3 on", "begins at offset 4")
    ]
    assert await warnings(console, "/topics/t/empty", {"partition": 0}) == "There are no records."

    await commit(console, "g", "t", {0: 4})
    assert "Groups with offsets of the topic: g." in await warnings(console, "/topics/t/delete")
    assert await change(console, "/topics/t/delete") == [("topic t", "3 partitions, 0 offsets", None)]
    assert "t" not in await names(console)


async def test_settings_users_quotas_and_rules_are_changed(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    changes: dict[str, Any] = {"changes": {"retention.ms": "1234", "cleanup.policy": "compact"}}
    assert await change(console, "/configs/topic/t", changes) == [
        ("cleanup.policy", "delete (default)", "compact"),
        ("retention.ms", "604800000 (default)", "1234"),
    ]
    assert await change(console, "/configs/topic/t", {"changes": {"retention.ms": None}}) == [
        ("retention.ms", "1234 (topic)", "604800000 (default)")
    ]
    assert (await console.get("/topics/t"))["overrides"] == {"cleanup.policy": "compact"}
    secret = {"listener.name.plaintext.ssl.keystore.password": "wonderland"}
    assert await change(console, "/configs/broker/0", {"changes": secret}) == [(*secret, None, "a secret value")]

    assert await change(console, "/security/users", USER) == [
        ("user alice, SCRAM-SHA-256", None, "4096 iterations, new password")
    ]
    entity = {"entity": {"user": "alice", "client-id": None}}
    assert await change(console, "/security/quotas", {**entity, "quotas": {"producer_byte_rate": 1048576}}) == [
        ("client-id <default>, user alice: producer_byte_rate", None, "1,048,576")
    ]
    assert await change(console, "/security/acls", {"action": "create", "rules": [RULE]}) == [
        ("Allow User:alice from *: Read on Topic t (literal)", None, "Allow")
    ]
    assert "exists already" in await warnings(console, "/security/acls", {"action": "create", "rules": [RULE]})
    security = await console.get("/security")
    assert security["users"] == [{"user": "alice", "credentials": ["SCRAM-SHA-256, 4096 iterations"]}]
    assert security["quotas"] == [
        {"entity": {"user": "alice", "client-id": "<default>"}, "quotas": {"producer_byte_rate": 1048576.0}}
    ]
    assert security["acls"] == [RULE]

    await change(console, "/security/acls", {"action": "delete", "rules": security["acls"]})
    assert await change(console, "/security/quotas", {**entity, "quotas": {"producer_byte_rate": None}}) == [
        ("client-id <default>, user alice: producer_byte_rate", "1,048,576", None)
    ]
    await change(console, "/security/users", {**USER, "action": "delete", "password": ""})
    security = await console.get("/security")
    assert (security["users"], security["quotas"], security["acls"]) == ([], [], [])


async def test_offsets_and_groups_are_deleted(console: ConsoleUser) -> None:
    for topic in ("t", "u"):
        await console.broker.create_topic(topic)
        await commit(console, "g", topic, {0: 0})
    assert await change(console, "/groups/g/offsets/t/delete") == [("t-0", "offset 0", None)]
    assert [each["topic"] for each in (await console.get("/groups/g"))["partitions"]] == ["u"]
    assert await change(console, "/groups/g/delete") == [("group g", "offsets of 1 partitions of 1 topics", None)]
    assert (await console.error("/groups/g"))[0] == 404
    status, problem = await console.send("POST", "/groups/g/delete", {"confirm": ""})
    assert (status, problem) == (404, {"error": "group 'g' does not exist"})


async def test_a_reset_to_a_time_needs_an_answer_for_each_partition(
    console: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition of which the time is not known must not be set to its end, which would skip its records."""
    await console.broker.create_topic("t")
    await commit(console, "g", "t", {0: 0})
    offsets = ClusterClient.offsets

    async def without_times(self: ClusterClient, partitions: list[TopicPartition], timestamp: int) -> Any:
        return {} if timestamp >= 0 else await offsets(self, partitions, timestamp)

    monkeypatch.setattr(ClusterClient, "offsets", without_times)
    reset = {"topics": [], "strategy": "time", "value": 1, "confirm": []}
    status, problem = await console.send("POST", "/groups/g/offsets", reset)
    assert (status, problem) == (503, {"error": "the leader of t-0 did not respond"})


async def test_what_another_client_has_changed_since_the_preview_is_not_overwritten(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    first, second = ({"changes": {"retention.ms": value}} for value in ("1111", "2222"))
    _, preview = await console.send("POST", "/configs/topic/t", {**first, "confirm": ""})
    await change(console, "/configs/topic/t", second)
    status, problem = await console.send("POST", "/configs/topic/t", {**first, "confirm": preview["confirm"]})
    message = "nothing was changed: this is no longer what the preview showed, so show it again"
    assert (status, problem) == (409, {"error": message})
    assert (await console.get("/topics/t"))["overrides"] == {"retention.ms": "2222"}

    _, preview = await console.send("POST", "/topics/t/delete", {"confirm": ""})
    await change(console, "/topics/t/delete")
    await console.broker.create_topic("t")  # another topic of this name
    status, _ = await console.send("POST", "/topics/t/delete", {"confirm": preview["confirm"]})
    assert status == 409
    assert await names(console) == ["t"]


async def test_wrong_changes_get_one_sentence_and_change_nothing(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    rules = {"action": "create", "rules": [RULE]}
    quota = {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": 1}}
    before = await console.get("/security")
    for path, body, status, message in (
        ("/topics", {**NEW}, 409, "TOPIC_ALREADY_EXISTS"),
        ("/topics", {**NEW, "name": ""}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("/topics", {**NEW, "name": "../x"}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("/topics", {**NEW, "name": "<b>\u202e"}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("/topics", {**NEW, "name": "x" * 250}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("/topics", {**NEW, "name": "\ud800"}, 400, "the body has characters that are not Unicode"),
        ("/topics", {**NEW, "name": "n", "partitions": 0}, 400, "INVALID_PARTITIONS"),
        ("/topics", {**NEW, "name": "n", "partitions": 1 << 40}, 400, "partitions=1099511627776: expected a number"),
        ("/topics", {**NEW, "name": "n", "replication_factor": 40_000}, 400, "replication_factor=40000: expected"),
        ("/topics", {**NEW, "name": "n", "replication_factor": 3}, 400, "INVALID_REPLICATION_FACTOR"),
        ("/topics", {**NEW, "name": "n", "configs": {"retention.ms": "soon"}}, 400, "INVALID_CONFIG"),
        ("/topics", {**NEW, "name": "n", "configs": {"retentionms": "1"}}, 400, "INVALID_CONFIG"),
        ("/topics", {**NEW, "name": "n", "configs": {"retention.ms": None}}, 400, "the body.configs.retention.ms"),
        ("/topics/t/partitions", {"count": 1}, 400, "INVALID_PARTITIONS"),
        ("/topics/none/partitions", {"count": 2}, 404, "topic 'none' does not exist"),
        ("/topics/t/empty", {"partition": 7}, 400, "partition 7: topic 't' has 0 to 0"),
        ("/topics/none/delete", {}, 404, "topic 'none' does not exist"),
        ("/configs/topic/t", {"changes": {}}, 400, "changes is empty"),
        ("/configs/topic/t", {"changes": {"retention.ms": "\x00"}}, 400, "INVALID_CONFIG"),
        ("/configs/broker/0", {"changes": {"broker.id": "5"}}, 400, "INVALID_REQUEST"),
        ("/security/acls", {"action": "create", "rules": []}, 400, "0 rules, expected 1 to 100"),
        ("/security/acls", {"action": "make", "rules": [RULE]}, 400, "the body.action: expected one of create, delete"),
        ("/security/acls", {**rules, "rules": [{**RULE, "operation": "Any"}]}, 400, "operation='Any': expected one of"),
        ("/security/acls", {**rules, "rules": [{**RULE, "pattern": "match"}]}, 400, "pattern='match': expected one of"),
        ("/security/users", {**USER, "user": ""}, 400, "user is empty"),
        ("/security/users", {**USER, "iterations": 1}, 400, "iterations=1: expected a number from 4096 to 16384"),
        ("/security/users", {**USER, "password": ""}, 400, "the password has 0 characters"),
        ("/security/users", {**USER, "mechanism": "PLAIN"}, 400, "the body.mechanism: expected one of SCRAM-SHA-256"),
        ("/security/users", {**USER, "action": "delete"}, 400, "user 'alice' has no credential for SCRAM-SHA-256"),
        ("/security/quotas", {**quota, "entity": {}}, 400, "entity is empty"),
        ("/security/quotas", {**quota, "entity": {"group": "a"}}, 400, "INVALID_REQUEST"),
        ("/security/quotas", {**quota, "quotas": {}}, 400, "0 quotas, expected 1 to 20"),
        ("/security/quotas", {**quota, "quotas": {"producer_byte_rate": -1}}, 400, "INVALID_REQUEST"),
        ("/security/quotas", {**quota, "quotas": {"producer_byte_rate": True}}, 400, "expected a number or null"),
        ("/security/quotas", {**quota, "quotas": {"speed": 1}}, 400, "INVALID_REQUEST"),
    ):
        found_status, problem = await console.send("POST", path, {**body, "confirm": ""})
        assert found_status == status, (path, body, problem)
        assert message in problem["error"], (path, body, problem)
    assert await names(console) == ["t"]
    assert await console.get("/security") == before


async def allow(console: ConsoleUser, resource_type: int, name: str, *operations: int) -> None:
    """Allow the principal of the console some operations."""
    rules = [
        AclCreation(
            resource_type=resource_type,
            resource_name=name,
            principal="User:console",
            host="*",
            operation=operation,
            permission_type=ALLOW,
        )
        for operation in operations
    ]
    response = await console.broker.ask(CreateAclsRequest(creations=rules))
    assert not any(each.error_code for each in response.results), response


@pytest.mark.parametrize(
    "overrides",
    [{**WRITING, **AUTHORIZER, "super.users": "User:ANONYMOUS", "console.principal": "User:console"}],
)
async def test_the_handlers_decide_what_the_principal_of_the_console_may_change(console: ConsoleUser) -> None:
    """With DESCRIBE on everything it sees what it may not change, as any client."""
    await console.broker.create_topic("t")
    await produce(console.broker, "t", {0: records_of(0, 3)})
    await commit(console, "g", "t", {0: 0})
    await allow(console, TOPIC, "t", READ, DESCRIBE, DESCRIBE_CONFIGS)
    await allow(console, GROUP, "g", DESCRIBE)
    await allow(console, CLUSTER, "kafka-cluster", DESCRIBE, DESCRIBE_CONFIGS)
    quota = {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": 1}}
    for path, body, message in (
        ("/topics", {**NEW, "name": "n"}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/topics/t/partitions", {"count": 2}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/topics/t/empty", {"partition": -1}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/topics/t/delete", {}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/configs/topic/t", {"changes": {"retention.ms": "1"}}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/groups/g/delete", {}, "GROUP_AUTHORIZATION_FAILED"),
        ("/groups/g/offsets/t/delete", {}, "GROUP_AUTHORIZATION_FAILED"),
        ("/security/acls", {"action": "create", "rules": [RULE]}, "CLUSTER_AUTHORIZATION_FAILED"),
        ("/security/users", USER, "CLUSTER_AUTHORIZATION_FAILED"),
        ("/security/quotas", quota, "CLUSTER_AUTHORIZATION_FAILED"),
    ):
        status, response = await console.send("POST", path, {**body, "confirm": ""})
        if status == 200:
            status, response = await console.send("POST", path, {**body, "confirm": response["confirm"]})
        problems = [each["problem"] for each in response["rows"]] if status == 200 else [response["error"]]
        assert status in (200, 403), (path, response)
        assert all(message in each for each in problems), (path, response)
    topic = await console.get("/topics/t")
    assert (topic["partition_count"], topic["overrides"], topic["partitions"][0]["start_offset"]) == (1, {}, "0")
    assert (await console.get("/groups/g"))["topics"] == ["t"]
    await allow(console, TOPIC, "n", CREATE, DESCRIBE)
    await change(console, "/topics", {**NEW, "name": "n"})


@pytest.mark.parametrize(
    "overrides", [{**AUTHORIZER, "super.users": "User:ANONYMOUS", "console.principal": "User:console"}]
)
async def test_settings_of_topics_need_their_own_permission(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", retention_ms="1")
    await allow(console, TOPIC, "t", DESCRIBE)
    for operation, settings in ((READ, {}), (DESCRIBE_CONFIGS, {"retention.ms": "1"})):
        await allow(console, TOPIC, "t", operation)
        assert (await console.get("/topics/t"))["overrides"] == settings
        assert [each["overrides"] for each in (await console.get("/topics"))["topics"]] == [len(settings)]


async def test_change_that_another_broker_does_not_confirm_in_time_may_have_been_made(
    console: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may wait for its followers as long as the request says."""
    await console.broker.create_topic("t")
    timeouts_ms: list[int] = []

    async def ask(client: ClusterClient, broker: int, request: object, *, timeout_ms: int = 3_000) -> object:
        timeouts_ms.append(timeout_ms)
        raise PeerUnavailable("broker 2 is unavailable")

    monkeypatch.setattr(ClusterClient, "ask", ask)
    record = {"partition": 0, "key": None, "value": "v", "headers": [], "encoding": "text"}
    status, body = await console.send("POST", "/topics/t/records", record)
    assert status == 503, body
    assert body["error"].startswith("broker 2 is unavailable: the change, or a part of it, may have been made")
    assert min(timeouts_ms) > PRODUCE_TIMEOUT_MS
