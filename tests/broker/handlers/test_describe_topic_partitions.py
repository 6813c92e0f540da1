"""DescribeTopicPartitions: topics by name, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.security.acls import Acl, Operation, Pattern, Permission, ResourceType
from config.broker_properties import AUTHORIZERS
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tests.support.in_process import InProcessBroker, running_broker

EVE = "User:eve"
OVERRIDES = {"max.request.partition.size.limit": "4", "auto.create.topics.enable": "false"}
TOPICS = {"a": 2, "b": 3, "c": 1}


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path / "data", OVERRIDES) as broker:
        for name, partitions in TOPICS.items():
            await broker.create_topic(name, partitions)
        yield broker


async def described(broker: InProcessBroker, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return await broker.ask(request)


def found(response: Any) -> dict[str, list[int]]:
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in response.topics}


def code(response: Any) -> dict[str, str]:
    return {topic.name: ErrorCode(topic.error_code).name for topic in response.topics}


async def test_a_topic_has_its_partitions_and_the_operations_of_the_client(broker: InProcessBroker) -> None:
    response = await described(broker, "b")
    (topic,) = response.topics
    assert response.next_cursor is None
    assert (topic.name, topic.is_internal, topic.topic_id.int != 0) == ("b", False, True)
    assert topic.topic_authorized_operations & 1 << Operation.WRITE
    first = topic.partitions[0]
    assert (first.leader_id, first.leader_epoch, first.replica_nodes, first.isr_nodes) == (0, 0, [0], [0])
    assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([], [], [])


async def test_names_are_sorted_and_named_once(broker: InProcessBroker) -> None:
    assert found(await described(broker, "c", "a", "c")) == {"a": [0, 1], "c": [0]}


async def test_unknown_topics_have_an_error_only_if_they_are_named(broker: InProcessBroker) -> None:
    assert code(await described(broker, "a", "x", "a b")) == {
        "a": "NONE",
        "x": "UNKNOWN_TOPIC_OR_PARTITION",
        "a b": "INVALID_TOPIC_EXCEPTION",
    }
    assert "x" not in found(await described(broker))


async def test_pages_continue_at_the_cursor(broker: InProcessBroker) -> None:
    pages, cursor = [], None
    while True:
        response = await described(broker, limit=1 if cursor is None else 2, cursor=cursor)
        pages.append(found(response))
        cursor = response.next_cursor
        if cursor is None:
            break
    assert pages == [{"a": [0]}, {"a": [1], "b": [0]}, {"b": [1, 2]}, {"c": [0]}]


async def test_the_setting_limits_what_a_client_may_ask_for(broker: InProcessBroker) -> None:
    response = await described(broker)
    assert found(response) == {"a": [0, 1], "b": [0, 1]}
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("b", 2)
    assert found(await described(broker, limit=-5)) == {"a": [0]}


async def test_a_cursor_behind_the_last_partition_finds_none(broker: InProcessBroker) -> None:
    cursor = Cursor(topic_name="b", partition_index=7)
    assert found(await described(broker, "b", "c", cursor=cursor)) == {"b": [], "c": [0]}


@pytest.mark.parametrize(("topic", "partition"), [("b", 0), ("a", -1)])
async def test_a_cursor_that_is_none_of_the_request_is_refused(
    broker: InProcessBroker, topic: str, partition: int
) -> None:
    response = await described(broker, "a", "c", cursor=Cursor(topic_name=topic, partition_index=partition))
    assert code(response) == {"a": "INVALID_REQUEST", "c": "INVALID_REQUEST"}


async def test_topics_that_a_client_may_not_describe_are_not_disclosed(tmp_path: Path) -> None:
    settings = {**OVERRIDES, "authorizer.class.name": AUTHORIZERS[0], "super.users": "User:admin"}
    async with running_broker(tmp_path / "data", settings) as broker:
        broker.channel.principal = "User:admin"
        for name, partitions in TOPICS.items():
            await broker.create_topic(name, partitions)
        allowed = Acl(EVE, "*", Operation.DESCRIBE, Permission.ALLOW)
        broker.services.authorizer.put(Pattern(ResourceType.TOPIC, "b"), {allowed})
        broker.channel.principal = EVE
        assert found(await described(broker)) == {"b": [0, 1, 2]}
        response = await described(broker, "a", "b", "x")
        assert code(response) == {
            "b": "NONE",
            "a": "TOPIC_AUTHORIZATION_FAILED",
            "x": "TOPIC_AUTHORIZATION_FAILED",
        }
        assert response.topics[0].topic_authorized_operations == 1 << Operation.DESCRIBE
        assert {topic.topic_id.int for topic in response.topics[1:]} == {0}
