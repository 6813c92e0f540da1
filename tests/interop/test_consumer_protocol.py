"""Groups of the consumer protocol (KIP-848): Java 4.x and librdkafka, also mixed with members of the classic one."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient

from tests.interop.conftest import RunJava, create_topic
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until
from tools.admin import consumer_groups

PARTITIONS, RECORDS = 6, 60


def filled_topic(newer_server: ServerProcess, name: str) -> str:
    create_topic(newer_server.bootstrap, name, PARTITIONS)
    producer = Producer({"bootstrap.servers": newer_server.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    producer.flush()
    return name


@pytest.mark.parametrize(
    ("protocols", "described", "left"),
    [
        (("consumer", "consumer"), "Consumer Stable uniform", "Consumer Empty"),
        (("classic", "consumer"), "Consumer Stable uniform", "Classic Empty"),
        (("consumer", "classic"), "Consumer Stable uniform", "Consumer Empty"),
    ],
)
def test_two_java_members_share_the_partitions_whatever_their_protocols(
    newer_server: ServerProcess, run_java: RunJava, protocols: tuple[str, str], described: str, left: str
) -> None:
    topic = filled_topic(newer_server, "-".join(protocols))
    arguments = (newer_server.bootstrap, topic, f"{topic}-group", PARTITIONS, RECORDS, *protocols)
    lines = run_java("GroupOfTwo", *arguments, version="4.1.0")
    assert lines[0] == "first alone: [0, 1, 2, 3, 4, 5]"
    first, second = (set(eval_numbers(line)) for line in lines[1:3])
    assert first | second == set(range(PARTITIONS))
    assert (len(first), len(second)) == (3, 3)
    assert lines[3] == f"described: {described} 2 members"
    assert lines[4] == "first again: [0, 1, 2, 3, 4, 5]"
    assert lines[6] == left


def eval_numbers(line: str) -> list[int]:
    return [int(number) for number in line.partition("[")[2].rstrip("]").split(", ")]


def consumer(newer_server: ServerProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": newer_server.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_members_of_librdkafka_share_commit_and_are_shown_by_the_tools(
    newer_server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = filled_topic(newer_server, "librdkafka"), "librdkafka-group"
    first, second = consumer(newer_server, group), consumer(newer_server, group)
    read: list[bytes] = []

    def poll(*members: Consumer) -> None:
        for member in members:
            message = member.poll(0.02)
            if message is not None and message.error() is None:
                read.append(message.value() or b"")

    try:
        first.subscribe(["^librdkaf.*$"])  # a regular expression, which the broker looks up
        wait_until(lambda: poll(first) or len(read) == RECORDS, "all records", interval_s=0)
        second.subscribe([topic])
        wait_until(
            lambda: poll(first, second) or len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2,
            "a share for each",
            interval_s=0,
        )
        first.commit(asynchronous=False)
        admin = AdminClient({"bootstrap.servers": newer_server.bootstrap})
        found = admin.describe_consumer_groups([group])[group].result()
        assert (found.state, found.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        assert len(found.members) == 2
        line = ["--bootstrap-server", newer_server.bootstrap, "--group", group, "--describe"]
        assert consumer_groups.main([*line, "--state"]) == 0
        assert "uniform" in capsys.readouterr().out
        assert consumer_groups.main(line) == 0
        rows = [row.split() for row in capsys.readouterr().out.splitlines() if row.startswith(group)]
        assert sorted(int(row[2]) for row in rows) == list(range(PARTITIONS))
        assert len({row[6] for row in rows}) == 2, "partitions of both members"
    finally:
        first.close()
        second.close()
