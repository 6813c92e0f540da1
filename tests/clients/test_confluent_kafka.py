"""librdkafka through confluent-kafka, the most common client in Python."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

DEADLINE_S = 30
START_MS = time.time_ns() // 1_000_000
"""Retention would delete records with old timestamps half a minute after the broker's start."""

until = partial(wait_until, timeout_s=DEADLINE_S, interval_s=0.0)


def consumer_of(broker: BrokerProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )


def consume(consumer: Consumer, count: int) -> list[Message]:
    """Return the next `count` messages; fails without them."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        messages += consumer.consume(count - len(messages), 0.2)
    errors = [message.error() for message in messages if message.error()]
    assert not errors
    return messages


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotence", [False, True], ids=["plain", "idempotent"])
def test_produced_records_are_consumed_unchanged(
    broker: BrokerProcess, topic: str, group: str, compression: str, idempotence: bool
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": compression,
            "enable.idempotence": idempotence,
            "linger.ms": 5,
        }
    )
    sent = [
        (b"key-%d" % (number % 7), b"value-%d" % number * 20, [("trace", b"%d" % number), ("none", None)])
        for number in range(500)
    ]
    delivered: list[Message] = []
    for number, (key, value, headers) in enumerate(sent):
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=headers,
            timestamp=START_MS + number,
            on_delivery=lambda error, message: delivered.append(message) if error is None else pytest.fail(str(error)),
        )
    assert producer.flush(DEADLINE_S) == 0
    assert len(delivered) == len(sent)

    consumer = consumer_of(broker, group)
    consumer.subscribe([topic])
    messages = consume(consumer, len(sent))
    consumer.close()
    received = sorted(
        (message.timestamp()[1], message.key(), message.value(), message.headers()) for message in messages
    )
    assert received == [(START_MS + number, key, value, headers) for number, (key, value, headers) in enumerate(sent)]
    offsets = {(message.partition(), message.offset()) for message in messages}
    assert offsets == {(message.partition(), message.offset()) for message in delivered}


def test_tombstones_and_empty_values_differ(broker: BrokerProcess, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in ((b"null", None), (b"empty", b""), (None, b"no key")):
        producer.produce(topic, key=key, value=value, partition=0)
    producer.flush(DEADLINE_S)
    consumer = consumer_of(broker, group)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [(message.key(), message.value()) for message in consume(consumer, 3)] == [
        (b"null", None),
        (b"empty", b""),
        (None, b"no key"),
    ]
    consumer.close()


CONTENTS = st.none() | st.binary(max_size=64)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)  # texts of C end with it
ROWS = st.lists(
    st.tuples(CONTENTS, CONTENTS, st.lists(st.tuples(NAMES, CONTENTS), max_size=3)),
    min_size=1,
    max_size=9,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_any_keys_values_and_headers_come_back_as_they_were(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], any_content: AnyContent
) -> None:
    assert any_content.round_trip(rows) == rows


class AnyContent:
    """A producer and a consumer that stays at the end of a partition."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self._producer.produce(topic, b"first", partition=0)
        assert self._producer.flush(DEADLINE_S) == 0
        self._consumer = consumer_of(broker, group, **{"fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        consume(self._consumer, 1)

    def round_trip(self, rows: Sequence[tuple[Any, Any, list[tuple[str, Any]]]]) -> list[tuple[Any, Any, Any]]:
        for key, value, headers in rows:
            self._producer.produce(self._topic, key=key, value=value, headers=headers, partition=0)
        assert self._producer.flush(DEADLINE_S) == 0
        found = consume(self._consumer, len(rows))
        return [(message.key(), message.value(), message.headers() or []) for message in found]

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def any_content(broker: BrokerProcess, topic: str, group: str) -> Iterator[AnyContent]:
    content = AnyContent(broker, topic, group)
    yield content
    content.close()


def test_a_group_of_two_shares_partitions_and_rebalances(broker: BrokerProcess, topic: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 4)])[topic].result(DEADLINE_S)
    first, second = consumer_of(broker, group), consumer_of(broker, group)
    first.subscribe([topic])
    until(lambda: first.poll(0.1) is None and len(first.assignment()) == 4, "one member owns everything")
    second.subscribe([topic])

    def is_shared() -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return len(first.assignment()) == 2 and len(second.assignment()) == 2

    until(is_shared, "two members own two partitions each")
    owned = [{assigned.partition for assigned in member.assignment()} for member in (first, second)]
    assert owned[0] | owned[1] == {0, 1, 2, 3}

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(4):
        producer.produce(topic, value=b"%d" % partition, partition=partition)
    producer.flush(DEADLINE_S)
    assert {message.partition() for message in consume(first, 2)} == owned[0]
    assert {message.partition() for message in consume(second, 2)} == owned[1]
    first.commit(asynchronous=False)
    second.commit(asynchronous=False)
    second.close()
    until(lambda: first.poll(0.1) is None and len(first.assignment()) == 4, "the rest goes to who stays")
    committed = first.committed([TopicPartition(topic, partition) for partition in range(4)], DEADLINE_S)
    assert [partition.offset for partition in committed] == [1, 1, 1, 1]
    first.close()


def create_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 4)])[topic].result(DEADLINE_S)


class Rebalances:
    """The assigned and revoked partitions of a member, call by call."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.given: list[set[int]] = []
        self.taken: list[set[int]] = []
        consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self.given.append({each.partition for each in partitions}),
            on_revoke=lambda _, partitions: self.taken.append({each.partition for each in partitions}),
        )


def owned_by(consumer: Consumer) -> set[int]:
    return {assigned.partition for assigned in consumer.assignment()}


def test_cooperative_group_moves_only_the_necessary_partitions(broker: BrokerProcess, topic: str, group: str) -> None:
    """KIP-429: members keep reading their retained partitions; a new one gets its partitions in a second generation."""
    create_topic(broker, topic)
    strategy = {"partition.assignment.strategy": "cooperative-sticky", "enable.auto.commit": False}
    first, second = consumer_of(broker, group, **strategy), consumer_of(broker, group, **strategy)
    seen = Rebalances(first, topic)
    until(lambda: first.poll(0.1) is None and len(owned_by(first)) == 4, "one member owns everything")
    seen_by_second = Rebalances(second, topic)

    def is_shared() -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return len(owned_by(first)) == len(owned_by(second)) == 2

    until(is_shared, "two members own two partitions each")
    moved = owned_by(second)
    assert [each for each in seen.taken if each] == [moved]
    assert [each for each in seen.given if each] == [{0, 1, 2, 3}]
    assert [each for each in seen_by_second.given if each] == [moved]
    assert owned_by(first) == {0, 1, 2, 3} - moved
    second.close()
    until(lambda: first.poll(0.1) is None and len(owned_by(first)) == 4, "the rest goes to who stays")
    assert [each for each in seen.taken if each] == [moved]
    first.close()


def test_a_restarted_static_member_causes_no_rebalance(broker: BrokerProcess, topic: str, group: str) -> None:
    """KIP-345: it gets its partitions back, and the other members see no rebalance."""
    create_topic(broker, topic)
    first, second = (
        consumer_of(broker, group, **{"group.instance.id": name, "session.timeout.ms": 30_000}) for name in "ab"
    )
    seen = Rebalances(first, topic)
    second.subscribe([topic])

    def is_shared() -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return len(owned_by(first)) == len(owned_by(second)) == 2

    until(is_shared, "two members own two partitions each")
    before, owned = (list(seen.given), list(seen.taken)), owned_by(second)
    for _ in range(2):
        second.close()
        second = consumer_of(broker, group, **{"group.instance.id": "b", "session.timeout.ms": 30_000})
        second.subscribe([topic])

        def is_back() -> bool:
            first.poll(0.05)
            second.poll(0.05)  # noqa: B023 - called before the next turn
            return bool(owned_by(second))  # noqa: B023

        until(is_back, "the member is back")
        assert owned_by(second) == owned
    assert (seen.given, seen.taken) == before
    first.close()
    second.close()


def test_new_topics_and_partitions_are_consumed(broker: BrokerProcess, topic: str, group: str) -> None:
    """The client sees them in the metadata and rejoins."""
    create_topic(broker, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    consumer = consumer_of(broker, group, **{"topic.metadata.refresh.interval.ms": 100})
    consumer.subscribe([f"^{topic}(-later)?$"])

    def owns(*expected: tuple[str, int]) -> bool:
        consumer.poll(0.05)
        counts = Counter(assigned.topic for assigned in consumer.assignment())
        return counts == dict(expected)

    until(lambda: owns((topic, 4)), "the existing topic")
    create_topic(broker, f"{topic}-later")
    until(lambda: owns((topic, 4), (f"{topic}-later", 4)), "the topic that came later")
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(DEADLINE_S)
    until(lambda: owns((topic, 6), (f"{topic}-later", 4)), "the partitions that were added")
    consumer.close()


def test_members_of_a_group_share_partitions_and_groups_do_not(broker: BrokerProcess, topic: str, group: str) -> None:
    """Each partition has one consumer in a group; surplus members idle; every group reads all records."""
    create_topic(broker, topic)
    groups: dict[str, list[Consumer]] = {group: [], f"{group}-other": []}
    joined: set[Consumer] = set()
    """The consumers that have received their assignment, which may be empty."""

    def shares(name: str) -> list[int]:
        for members in groups.values():
            for member in members:
                member.poll(0.01)
        return sorted(len(owned_by(member)) for member in groups[name])

    for name, size, expected in (
        (group, 1, [4]),
        (group, 2, [2, 2]),
        (f"{group}-other", 2, [2, 2]),
        (group, 4, [1, 1, 1, 1]),
        (group, 5, [0, 1, 1, 1, 1]),
    ):
        while len(groups[name]) < size:
            groups[name].append(consumer_of(broker, name))
            groups[name][-1].subscribe([topic], on_assign=lambda consumer, _: joined.add(consumer))

        def is_shared(name: str = name, expected: list[int] = expected) -> bool:
            return shares(name) == expected and joined.issuperset(groups[name])

        until(is_shared, f"{size} members share")
        assert set().union(*map(owned_by, groups[name])) == {0, 1, 2, 3}
    assert shares(f"{group}-other") == [2, 2]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(4):
        producer.produce(topic, value=b"%d" % partition, partition=partition)
    producer.flush(DEADLINE_S)
    for name, members in groups.items():
        read: list[int] = []

        def everything(members: list[Consumer] = members, read: list[int] = read) -> bool:
            for member in members:
                message = member.poll(0.05)
                if message is not None and not message.error():
                    read.append(message.partition())
            return len(read) >= 4

        until(everything, f"{name} reads everything")
        assert sorted(read) == [0, 1, 2, 3]
    for member in (member for members in groups.values() for member in members):
        member.close()


def test_a_member_that_does_not_poll_loses_its_partitions(broker: BrokerProcess, topic: str, group: str) -> None:
    """Its client leaves the group, and rejoins at the next poll."""
    create_topic(broker, topic)
    limits = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000}
    stuck, other = consumer_of(broker, group, **limits), consumer_of(broker, group)
    stuck.subscribe([topic])
    until(lambda: stuck.poll(0.1) is None and len(owned_by(stuck)) == 4, "one member owns everything")
    other.subscribe([topic])
    until(lambda: other.poll(0.1) is None and len(owned_by(other)) == 4, "the rest goes to who asks")

    def is_shared() -> bool:
        stuck.poll(0.05)
        other.poll(0.05)
        return len(owned_by(stuck)) == len(owned_by(other)) == 2

    until(is_shared, "both have a share again")
    stuck.close()
    other.close()


def test_partitions_of_a_killed_member_move_after_its_session_timeout(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    create_topic(broker, topic)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "session.timeout.ms": 1000}
    poll = f"""
from confluent_kafka import Consumer
consumer = Consumer({settings!r})
consumer.subscribe([{topic!r}])
while True:
    consumer.poll(0.1)
"""
    other = consumer_of(broker, group)
    with subprocess.Popen([sys.executable, "-c", poll]) as doomed:
        try:
            other.subscribe([topic])
            until(lambda: other.poll(0.1) is None and len(owned_by(other)) == 2, "two members share")
        finally:
            doomed.kill()
    until(lambda: other.poll(0.1) is None and len(owned_by(other)) == 4, "the rest goes to the remaining member")
    other.close()


def test_a_group_resumes_at_its_committed_offset(broker: BrokerProcess, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, value=b"%d" % number, partition=0)
    producer.flush(DEADLINE_S)
    first = consumer_of(broker, group, **{"enable.auto.commit": False})
    first.subscribe([topic])
    consume(first, 10)
    first.commit(offsets=[TopicPartition(topic, 0, 6, metadata="half \x01 way")], asynchronous=False)
    first.close()
    second = consumer_of(broker, group, **{"enable.auto.commit": False})
    assert second.committed([TopicPartition(topic, 0)], DEADLINE_S)[0].metadata == "half \x01 way"
    second.subscribe([topic])
    assert [message.value() for message in consume(second, 4)] == [b"6", b"7", b"8", b"9"]
    second.close()


def test_offsets_are_returned_by_time_and_at_both_ends(broker: BrokerProcess, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, value=b"x", partition=0, timestamp=START_MS + 1000 * (number + 1))
        producer.flush(DEADLINE_S)
    consumer = consumer_of(broker, group)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S) == (0, 10)
    asked = [0, 1000, 1001, 10_000]
    found = [
        consumer.offsets_for_times([TopicPartition(topic, 0, START_MS + time_ms)], DEADLINE_S)[0].offset
        for time_ms in asked
    ]
    assert found == [0, 0, 1, 9]
    assert consumer.offsets_for_times([TopicPartition(topic, 0, START_MS + 10_001)], DEADLINE_S)[0].offset == -1
    consumer.close()


def test_topics_are_created_grown_described_and_deleted(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, config={"retention.ms": "3600000"})])[topic].result(DEADLINE_S)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic, 2)])[topic].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    until(
        lambda: len(admin.list_topics(timeout=DEADLINE_S).topics[topic].partitions) == 5, "the topic has 5 partitions"
    )
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("3600000", False)
    assert entries["cleanup.policy"].value == "delete"
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.parametrize(
    ("name", "partitions", "replication_factor", "config", "code"),
    [
        ("bad name", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("refused-a", 0, 1, {}, KafkaError.INVALID_PARTITIONS),
        ("refused-b", 1, 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("refused-c", 1, 1, {"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
        ("refused-d", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_rejected_with_kafkas_code(
    broker: BrokerProcess, name: str, partitions: int, replication_factor: int, config: dict[str, str], code: int
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    future = admin.create_topics([NewTopic(name, partitions, replication_factor, config=config)])[name]
    with pytest.raises(KafkaException) as caught:
        future.result(DEADLINE_S)
    assert caught.value.args[0].code() == code
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


def test_groups_are_listed_and_described(broker: BrokerProcess, topic: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(DEADLINE_S)
    consumer = consumer_of(broker, group, **{"client.id": "describer"})
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, "the member is assigned")
    listed = {listing.group_id for listing in admin.list_consumer_groups().result(DEADLINE_S).valid}
    assert group in listed
    description = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert description.state.name == "STABLE"
    (member,) = description.members
    assert member.client_id == "describer"
    assert {assigned.partition for assigned in member.assignment.topic_partitions} == {0, 1}
    consumer.close()


def test_a_record_above_the_limit_is_rejected(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "1000"})])[topic].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[KafkaError] = []
    producer.produce(topic, value=bytes(2000), on_delivery=lambda error, _: errors.append(error))
    producer.flush(DEADLINE_S)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_unknown_topic_is_not_created_if_the_client_forbids_it(broker: BrokerProcess, topic: str, group: str) -> None:
    consumer = consumer_of(broker, group, **{"allow.auto.create.topics": False})
    consumer.subscribe([topic])
    message = None
    deadline = time.monotonic() + DEADLINE_S
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.2)
    assert message is not None
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()
    assert topic not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=DEADLINE_S).topics
