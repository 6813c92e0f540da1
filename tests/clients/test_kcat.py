"""kcat: librdkafka from a shell. Install it with `apt-get install kcat`."""

import subprocess
import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.parts import need_command, skip_when_unavailable

DEADLINE_S = 30
POLL_INTERVAL_S = 0.05
SOON = ("-X", "fetch.wait.max.ms=10")
"""It ends at the end of a partition as soon as the broker reports it: with the first empty response."""


@pytest.fixture(autouse=True)
def kcat_is_installed() -> None:
    with skip_when_unavailable():
        need_command("kcat", "kcat")


def kcat(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *SOON, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.fixture
def created(broker: BrokerProcess, topic: str) -> str:
    """A new topic. For one that its first record creates, kcat waits for a second."""
    create(broker, topic)
    return topic


def create(broker: BrokerProcess, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 4)])[topic].result(DEADLINE_S)
    return admin


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_consumed(broker: BrokerProcess, created: str, codec: str) -> None:
    lines = [f"k{number}:v{number}" for number in range(50)]
    kcat(broker, "-P", "-t", created, "-K", ":", "-p", "0", "-z", codec, stdin="\n".join(lines) + "\n")
    out = kcat(broker, "-C", "-t", created, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %k:%s\n")
    assert out.splitlines() == [f"{number} {line}" for number, line in enumerate(lines)]


def in_group(group: str, topic: str, count: int) -> list[str]:
    """Return the arguments to read `count` messages as a member and leave."""
    settings = ["auto.offset.reset=earliest", "session.timeout.ms=6000", "heartbeat.interval.ms=200"]
    flags = [flag for setting in settings for flag in ("-X", setting)]
    return ["-G", group, *flags, "-q", "-u", "-c", str(count), "-f", "%p %s\\n", topic]


def test_a_group_commits_and_resumes(broker: BrokerProcess, created: str, group: str) -> None:
    kcat(broker, "-P", "-t", created, "-p", "0", stdin="one\ntwo\nthree\n")
    assert kcat(broker, *in_group(group, created, 2)).splitlines() == ["0 one", "0 two"]
    assert kcat(broker, *in_group(group, created, 1)).splitlines() == ["0 three"]


def test_a_group_shares_partitions(broker: BrokerProcess, topic: str, group: str) -> None:
    """The group has offsets: librdkafka 2.0 may read a record twice if it moves while a member still asks for them."""
    admin = create(broker, topic)
    begin = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, 0) for partition in range(4)])
    admin.alter_consumer_group_offsets([begin])[group].result(DEADLINE_S)
    members = [
        subprocess.Popen(
            ["kcat", "-b", broker.bootstrap, *in_group(group, topic, 2)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        deadline = time.monotonic() + DEADLINE_S
        while [len(share) for share in shares(admin, group)] != [2, 2]:
            assert time.monotonic() < deadline, "two members own two partitions each"
            time.sleep(POLL_INTERVAL_S)
        for partition in range(4):
            kcat(broker, "-P", "-t", topic, "-p", str(partition), stdin="value\n")
        read = [member.communicate(timeout=DEADLINE_S)[0].splitlines() for member in members]
    finally:
        for member in members:
            member.kill()
    assert [len(lines) for lines in read] == [2, 2]
    assert sorted(line for lines in read for line in lines) == [f"{partition} value" for partition in range(4)]


def shares(admin: AdminClient, group: str) -> list[list[int]]:
    """Return the partitions of each member."""
    description = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    return [[assigned.partition for assigned in member.assignment.topic_partitions] for member in description.members]


def test_metadata_names_the_internal_topics(broker: BrokerProcess, topic: str, group: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin="one\n")
    kcat(broker, "-G", group, "-o", "beginning", "-c", "1", "-q", "-X", "auto.offset.reset=earliest", topic)
    out = kcat(broker, "-L")
    assert f'topic "{topic}" with 4 partitions' in out
    assert 'topic "__consumer_offsets" with 50 partitions' in out


def test_offsets_are_queried_by_time(broker: BrokerProcess, created: str) -> None:
    kcat(broker, "-P", "-t", created, "-p", "1", stdin="one\ntwo\n")
    assert kcat(broker, "-Q", "-t", f"{created}:1:-1").split() == [created, "[1]", "offset", "2"]
    assert kcat(broker, "-Q", "-t", f"{created}:1:-2").split() == [created, "[1]", "offset", "0"]
