"""Share groups (KIP-932): the share consumers of Java 4.1 and librdkafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.interop.conftest import RunJava, create_topic
from tests.support.kraft_node import KraftNode
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until

PATIENCE_S = 30


def fill(newer_server: ServerProcess, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": newer_server.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode())
    producer.flush()


def test_share_consumers_of_java(newer_server: ServerProcess, run_java: RunJava) -> None:
    create_topic(newer_server.bootstrap, "java", 1)
    fill(newer_server, "java", range(9))
    lines = run_java("ShareGroup", newer_server.bootstrap, "java", "java-group", 9, version="4.1.0")
    assert lines[:5] == [
        "first: 9, delivery 1",
        "stored: yes",
        "again: [1, 4, 7], delivery 2",
        "described: Stable, [[java-0]]",
        "listed: Share Empty",
    ]
    if not isinstance(newer_server, KraftNode):  # it stores a start later, and moves none
        assert lines[5:] == [
            "begins at: [9]",
            "moved to: [1]",
            "after the move: [1, 2, 3, 4, 5, 6, 7, 8]",
            "forgotten: []",
            "left: 0",
        ]


@pytest.fixture
def broker(shared_newer_server: Callable[[str], ServerProcess]) -> ServerProcess:
    """Milena alone: Kafka 4.1 does not understand the share consumer of librdkafka 2.16."""
    return shared_newer_server("milena")


@pytest.fixture
def group(broker: ServerProcess, request: pytest.FixtureRequest) -> str:
    """A group that begins with the first record of its topic, which has its name."""
    name = request.node.originalname.replace("_", "-")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    return name


def member(broker: ServerProcess, group: str) -> ShareConsumer:
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([group])
    return consumer


def read(consumer: ShareConsumer, count: int) -> list[Message]:
    got: list[Message] = []
    wait_until(lambda: got.extend(consumer.poll(0.1) or ()) or len(got) >= count, f"{count} records", interval_s=0)
    return got


def values(messages: list[Message]) -> list[int]:
    return [int(message.value() or b"-1") for message in messages]


def test_what_a_member_has_not_acknowledged_goes_to_another(broker: ServerProcess, group: str) -> None:
    fill(broker, group, range(10))
    first = member(broker, group)
    got = read(first, 10)
    for message in got:
        if int(message.value() or b"") < 4:
            first.acknowledge(message, AcknowledgeType.ACCEPT)
    first.commit_sync()
    second = member(broker, group)
    first.close()  # what it has not acknowledged is released
    again = read(second, 6)
    assert values(again) == list(range(4, 10))
    for message in again:
        second.acknowledge(message, AcknowledgeType.ACCEPT)
    second.commit_sync()
    second.close()


def test_progress_survives_kill_9(broker: ServerProcess, group: str) -> None:
    fill(broker, group, range(6))
    consumer = member(broker, group)
    for message in read(consumer, 6):
        number = int(message.value() or b"")
        consumer.acknowledge(message, AcknowledgeType.RELEASE if number in (2, 5) else AcknowledgeType.ACCEPT)
    consumer.commit_sync()
    consumer.close()
    broker.kill()
    broker.start()
    consumer = member(broker, group)
    assert values(read(consumer, 2)) == [2, 5]
    consumer.close()
