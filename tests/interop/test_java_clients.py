"""Kafka's own Java clients, old and new: they read the records that they write, and form groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from kafka.partitioner.default import murmur2

from tests.interop.conftest import RunJava, Server, StartServer, create_topic
from tests.support.at_once import Outcomes, at_once

# The clients of 3.9.1 belong to the reference; 2.1 is the first with all five codecs, 4.0 the first that dropped the
# versions that brokers before 2.1 speak.
CLIENT_VERSIONS = ("3.9.1", "2.1.1", "4.0.0")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 50
FIRST_TIMESTAMP = time.time_ns() // 1_000_000  # retention would delete older records
# What the clients of each version can write: zstd came with 2.1. These go one whole round in one JVM.
CODECS_BY_VERSION = {
    "0.9.0.1": CODECS[:4],
    "0.10.2.2": CODECS[:4],
    "1.1.1": CODECS[:4],
    "2.8.2": CODECS,
    "3.9.1": CODECS,
    "4.1.0": CODECS,
}
ADMIN_VERSIONS = ("1.1.1", "2.8.2", "4.1.0")
OLDEST = "0.8.2.2"
PARTITIONS = 4
ASSIGNORS = ("RangeAssignor", "CooperativeStickyAssignor")


def expected_lines() -> list[str]:
    """What ConsumeInGroup prints of what ProduceEveryCompression wrote."""
    offsets = count()
    return [
        "\t".join(
            (
                str(offset := next(offsets)),
                str(FIRST_TIMESTAMP + offset),
                "null" if index % 3 == 0 else f"key-{index}",
                "null" if index % 5 == 0 else f"{codec}-{index} " * 20,
                f"codec={codec};nothing=null;",
            )
        )
        for codec in CODECS
        for index in range(RECORDS_PER_CODEC)
    ]


@pytest.fixture(scope="module")
def codecs(server: Server, run_java: RunJava) -> Iterator[Outcomes]:
    cases = {version: (server, run_java, version) for version in CLIENT_VERSIONS}
    with at_once(write_and_read_codecs, cases) as outcomes:
        yield outcomes


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_records_of_every_codec_come_back_whole(codecs: Outcomes, version: str) -> None:
    codecs[version].result()


def write_and_read_codecs(server: Server, run_java: RunJava, version: str) -> None:
    topic, group = f"codecs-{version}", f"readers-{version}"
    written = run_java(
        "ProduceEveryCompression", server.bootstrap, topic, RECORDS_PER_CODEC, FIRST_TIMESTAMP, version=version
    )
    assert written == [
        f"{codec} {first} {first + RECORDS_PER_CODEC - 1}"
        for codec, first in zip(CODECS, count(0, RECORDS_PER_CODEC), strict=False)
    ]
    total = RECORDS_PER_CODEC * len(CODECS)
    assert run_java("ConsumeInGroup", server.bootstrap, topic, group, total, version=version) == expected_lines()


def test_a_group_resumes_at_its_committed_offset(server: Server, run_java: RunJava) -> None:
    topic, group = "committed", "committers"
    for _ in range(2):
        run_java("ProduceEveryCompression", server.bootstrap, topic, 4, FIRST_TIMESTAMP, version="3.9.1")
        lines = run_java("ConsumeInGroup", server.bootstrap, topic, group, 20, version="3.9.1")
        assert len(lines) == 20
    assert [line.split("\t")[0] for line in lines] == [str(offset) for offset in range(20, 40)]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_two_members_share_partitions_until_one_leaves(server: Server, run_java: RunJava, assignor: str) -> None:
    topic, strategy = f"shared-{assignor}", f"org.apache.kafka.clients.consumer.{assignor}"
    create_topic(server.bootstrap, topic, partitions=4)
    assert run_java("TwoMembers", server.bootstrap, topic, f"{topic}-group", strategy, version="3.9.1") == [
        "alone 4",
        "shared 2 2",
        "disjoint true",
        "left 4",
    ]


def test_the_admin_client_manages_a_topic(server: Server, run_java: RunJava) -> None:
    assert run_java("AdminRoundTrip", server.bootstrap, "managed", version="3.9.1") == [
        "created 2",
        "created-again TopicExistsException",
        "listed true",
        "partitions 2",
        "id-is-set true",
        "retention 3600000 DYNAMIC_TOPIC_CONFIG",
        "widened 3",
        "latest 0",
        "nodes 1",
        "bad-config InvalidConfigurationException",
        "deleted true",
    ]


@pytest.fixture(scope="module")
def rounds(server: Server, run_java: RunJava) -> Iterator[Outcomes]:
    with at_once(one_round, {version: (server, run_java, version) for version in CODECS_BY_VERSION}) as outcomes:
        yield outcomes


@pytest.mark.parametrize("version", CODECS_BY_VERSION)
def test_clients_of_any_version_produce_share_commit_and_resume(rounds: Outcomes, version: str) -> None:
    rounds[version].result()


def one_round(server: Server, run_java: RunJava, version: str) -> None:
    topic, codecs = f"round-{version}", CODECS_BY_VERSION[version]
    create_topic(server.bootstrap, topic, partitions=PARTITIONS)
    written_each = 10
    total = written_each * len(codecs)
    lines = run_java(
        "OneClient", server.bootstrap, topic, f"{topic}-group", written_each, ",".join(codecs), version=version
    )
    assert lines == [
        *(f"written {codec} {written_each * number - 1}" for number, codec in enumerate(codecs, 1)),
        f"read {total * PARTITIONS}",
        "shared 2 2 of 4",
        "left 4",
        "committed 4",
        "resumed " + " ".join(f"{partition}:{total}:none-{partition}" for partition in range(PARTITIONS)),
    ]


def test_serializers_partitions_positions_and_wake_ups(server: Server, run_java: RunJava) -> None:
    typed, keyed, moved = "typed", "keyed", "moved"
    create_topic(server.bootstrap, typed)
    create_topic(server.bootstrap, keyed, partitions=PARTITIONS)
    create_topic(server.bootstrap, moved, configs={"retention.ms": "-1"})
    lines = run_java("ClientBehaviour", server.bootstrap, typed, keyed, moved, version="3.9.1")
    keys = [f"key-{number}" for number in range(1_000)]
    by_kafka_python = "".join(str((murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS) for key in keys)
    assert lines == [
        "typed -7 Customer[id=42, name=Ann Ærø]",
        "intercepted 1 1",
        "bytes -7 17",
        f"partitions {by_kafka_python}",
        "sought v5",
        "beginning 0",
        "end 10",
        "time 3",
        "none 10000",
        "earliest 0",
        "latest 10",
        "woken",
        "taken over 1",
    ]
    found: dict[str, str] = {}
    producer = Producer({"bootstrap.servers": server.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(
            keyed, b"x", key, on_delivery=lambda _, message, key=key: found.setdefault(key, str(message.partition()))
        )
    assert producer.flush(30) == 0
    assert "".join(found[key] for key in keys) == by_kafka_python


def test_clients_of_0_8_write_read_and_keep_offsets(server: Server, run_java: RunJava) -> None:
    topic, codecs, written_each = "oldest", CODECS[:4], 5
    create_topic(server.bootstrap, topic)
    values = [f"{codec}-{index}" for codec in codecs for index in range(written_each)]
    lines = run_java("OldestClient", server.bootstrap, topic, "oldest-group", written_each, version=OLDEST)
    assert lines == [
        *(f"written {codec} {written_each * number - 1}" for number, codec in enumerate(codecs, 1)),
        *(f"read {offset} {value}" for offset, value in enumerate(values)),
        "committed 7  0",  # where ZooKeeper kept offsets there was no room for metadata
        "committed 7 half way 0",
    ]


@pytest.fixture(scope="module")
def administrations(server: Server, run_java: RunJava) -> Iterator[Outcomes]:
    with at_once(administer, {version: (server, run_java, version) for version in ADMIN_VERSIONS}) as outcomes:
        yield outcomes


@pytest.mark.parametrize("version", ADMIN_VERSIONS)
def test_admin_clients_of_any_version_get_the_same_responses(administrations: Outcomes, version: str) -> None:
    administrations[version].result()


def administer(server: Server, run_java: RunJava, version: str) -> None:
    lines = run_java("OneAdmin", server.bootstrap, f"administered-{version}", 0, version=version)
    assert lines == [
        "validated false",
        "created none",
        "created-again TopicExistsException",
        "bad-name InvalidTopicException",
        "bad-replicas InvalidReplicationFactorException",
        "bad-config InvalidConfigurationException",
        "listed true",
        "retention 3600000 false false false",
        "broker-id 0 false true false",
        "narrowed InvalidPartitionsException",
        "low-watermark 0",
        "beyond-the-end OffsetOutOfRangeException",
        "nodes 1",
        "deleted none",
        "deleted-again UnknownTopicOrPartitionException",
    ]


def test_groups_of_newer_protocols_are_rejected_as_by_kafka(start_server: StartServer, run_java: RunJava) -> None:
    with start_server({"group.coordinator.rebalance.protocols": "classic"}) as server:
        create_topic(server.bootstrap, "newer")
        lines = run_java("NewerGroups", server.bootstrap, "newer", version="4.1.0")
    assert [line.partition(".")[0] for line in lines] == [
        "consumer: UnsupportedVersionException The cluster does not support the new CONSUMER group protocol",
        (
            "pattern: UnsupportedVersionException The cluster does not support regular expressions resolution on "
            "ConsumerGroupHeartbeat API version 0"
        ),
        (
            "share: UnsupportedVersionException The cluster does not support the share group protocol using "
            "ShareGroupHeartbeat API version 1 or later"
        ),
        "telemetry: null",
    ]
