"""kafka-python: pure Python, with its own codec, batches and group protocol.

A story mostly waits: for metadata, rebalances, polls and heartbeats. So the versions of the client live it at the same
time, each in a thread; the tests only report how it ended.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from kafka import ConsumerGroupMetadata, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata

from tests.support.at_once import Outcomes, at_once
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

DEADLINE_MS = 30_000
DEADLINE_S = DEADLINE_MS / 1000
POLL_MS = 1000
"""Longer than a join. Release 3.0 rejoins if it did not know its topic at the first join. If the poll ends between the
SyncGroup request and its response, it never uses its assignment."""
PARTITIONS = 4

until = partial(wait_until, timeout_s=DEADLINE_S)


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_consumed_in_a_group(
    broker: BrokerProcess, topic: str, group: str, compression: str | None
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=compression, linger_ms=5)
    futures = [
        producer.send(topic, key=b"%d" % (number % 5), value=b"value %d" % number, headers=[("n", b"%d" % number)])
        for number in range(200)
    ]
    producer.flush(30)
    written = {(future.get(1).partition, future.get(1).offset) for future in futures}
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_MS,
    )
    records = [next(consumer) for _ in range(200)]
    assert {(record.partition, record.offset) for record in records} == written
    assert sorted(int(record.headers[0][1]) for record in records) == list(range(200))
    consumer.commit()
    ends = consumer.end_offsets([TopicPartition(topic, partition) for partition in range(4)])
    committed = {partition: consumer.committed(partition) or 0 for partition in ends}
    assert committed == ends
    consumer.close()


# fmt: off
VERSIONS = [
    (0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1), (0, 10, 2), (0, 11),
    (1, 0), (1, 1), (2, 0), (2, 8), (3, 9), (4, 0), (4, 2),
]
# fmt: on
FIRST_WITH_GROUPS, FIRST_WITH_TOPIC_ADMINISTRATION = (0, 9), (0, 10, 1)
FIRST_WITH_TRANSACTIONS, FIRST_WITH_DELETION, FIRST_WITH_ZSTD = (0, 11), (1, 1), (2, 1)

Version = tuple[int, ...]
Cases = Mapping[str, tuple[Any, ...]]
"""By name: what a story is told about the client."""


def name_of(version: Version) -> str:
    return ".".join(map(str, version))


def since(first: Version) -> Cases:
    """Return a case for each version from `first` on."""
    return {name_of(version): (version,) for version in VERSIONS if version >= first}


def lived_at_once(story: Callable[..., None], broker: BrokerProcess, cases: Cases) -> AbstractContextManager[Outcomes]:
    """Start a story for each case with the name of a topic and of a group of its own."""
    names = {case: f"{story.__name__}-{case}" for case in cases}
    return at_once(story, {case: (broker, names[case], names[case], *told) for case, told in cases.items()})


def produce_and_consume(
    broker: BrokerProcess, topic: str, group: str, version: Version, compression: str | None
) -> None:
    """Versions before 0.11 use message sets of magic 0 and 1, which the broker converts on produce and fetch."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, api_version=version, compression_type=compression, linger_ms=5
    )
    for number in range(60):
        producer.send(topic, key=b"%d" % number, value=b"value %d" % number, partition=0)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        api_version=version,
        group_id=None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=DEADLINE_MS,
    )
    consumer.assign([TopicPartition(topic, 0)])
    records = [next(consumer) for _ in range(60)]
    assert [(record.offset, record.key, record.value) for record in records] == [
        (number, b"%d" % number, b"value %d" % number) for number in range(60)
    ]
    consumer.close()


CODECS: Cases = {
    f"{name_of(version)}-{compression}": (version, compression)
    for version in VERSIONS
    for compression in (None, "gzip", "snappy", "lz4", "zstd")
    # To write the faulty lz4 header of 0.8 this client needs a package that it does not depend on.
    if (compression != "lz4" or version >= (0, 10)) and (compression != "zstd" or version >= FIRST_WITH_ZSTD)
}


@pytest.fixture(scope="module")
def exchanges(broker: BrokerProcess) -> Iterator[Outcomes]:
    with lived_at_once(produce_and_consume, broker, CODECS) as outcomes:
        yield outcomes


@pytest.mark.parametrize("case", CODECS)
def test_every_protocol_version_of_the_client_works(exchanges: Outcomes, case: str) -> None:
    exchanges[case].result()


def consumer_of(broker: BrokerProcess, version: Version, group: str, topic: str) -> KafkaConsumer:
    timeouts = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6000} if version >= FIRST_WITH_GROUPS else {}
    return KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        api_version=version,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        **timeouts,
    )


class PollingMember:
    """A consumer that polls in its own thread until it is stopped: the oldest versions rejoin only in a poll."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.records: list[ConsumerRecord] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def owned(self) -> set[int]:
        return {assigned.partition for assigned in self.consumer.assignment()}

    def stop(self) -> KafkaConsumer:
        """Stop polling; return the consumer."""
        self._is_over = True
        self._thread.join(DEADLINE_S)
        return self.consumer

    def _run(self) -> None:
        while not self._is_over:
            for records in self.consumer.poll(timeout_ms=POLL_MS).values():
                self.records += records


def fill(broker: BrokerProcess, version: Version, topic: str) -> None:
    """Produce two records to each partition."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, api_version=version)
    for number in range(2 * PARTITIONS):
        producer.send(topic, value=b"%d" % (number // PARTITIONS), partition=number % PARTITIONS)
    producer.flush(DEADLINE_S)
    producer.close()


def rebalance_commit_and_resume(broker: BrokerProcess, topic: str, group: str, version: Version) -> None:
    """Before 0.9 groups have no members: a consumer selects its partitions, and the group only stores offsets."""
    everything = set(range(PARTITIONS))
    fill(broker, version, topic)
    first = PollingMember(consumer_of(broker, version, group, topic))
    until(lambda: first.owned == everything and len(first.records) == 2 * PARTITIONS, "one member reads everything")
    if version >= FIRST_WITH_GROUPS:
        second = PollingMember(consumer_of(broker, version, group, topic))
        until(lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2, "two members share")
        assert first.owned | second.owned == everything
        second.stop().close()
        until(lambda: first.owned == everything, "the rest goes to who stays")
    consumer = first.stop()
    consumer.commit({TopicPartition(topic, number): OffsetAndMetadata(1, "half way", -1) for number in everything})
    consumer.close()
    third = PollingMember(consumer_of(broker, version, group, topic))
    until(lambda: len(third.records) >= PARTITIONS, "a later member continues")
    consumer = third.stop()
    assert {consumer.committed(TopicPartition(topic, number)) for number in everything} == {1}
    consumer.close()
    assert sorted((record.partition, record.offset, record.value) for record in third.records) == [
        (number, 1, b"1") for number in range(PARTITIONS)
    ]


@pytest.fixture(scope="module")
def rebalances(broker: BrokerProcess) -> Iterator[Outcomes]:
    with lived_at_once(rebalance_commit_and_resume, broker, since(VERSIONS[0])) as outcomes:
        yield outcomes


@pytest.mark.parametrize("version", since(VERSIONS[0]))
def test_a_group_rebalances_commits_and_resumes(rebalances: Outcomes, version: str) -> None:
    rebalances[version].result()


def commit_and_abort_transactions(broker: BrokerProcess, topic: str, group: str, version: Version) -> None:
    source, target = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, api_version=version, transactional_id=f"of-{topic}", linger_ms=0
    )
    producer.init_transactions()
    for value, offset, is_committed in ((b"kept", 5, True), (b"dropped", 7, False), (b"kept too", 6, True)):
        producer.begin_transaction()
        producer.send(topic, value=value, partition=target.partition)
        producer.send_offsets_to_transaction({source: OffsetAndMetadata(offset, "", -1)}, ConsumerGroupMetadata(group))
        producer.flush(DEADLINE_S)
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "api_version": version, "group_id": group}
    consumer = KafkaConsumer(
        **settings,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_MS,
    )
    consumer.assign([target])
    assert [next(consumer).value for _ in range(2)] == [b"kept", b"kept too"]
    assert consumer.committed(source) == 6
    consumer.close()


@pytest.fixture(scope="module")
def transactions(broker: BrokerProcess) -> Iterator[Outcomes]:
    with lived_at_once(commit_and_abort_transactions, broker, since(FIRST_WITH_TRANSACTIONS)) as outcomes:
        yield outcomes


@pytest.mark.parametrize("version", since(FIRST_WITH_TRANSACTIONS))
def test_a_transaction_moves_records_and_offsets_or_neither(transactions: Outcomes, version: str) -> None:
    transactions[version].result()


def administer_groups_and_topics(broker: BrokerProcess, topic: str, group: str, version: Version) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap, api_version=version)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    member = PollingMember(consumer_of(broker, version, group, topic))
    until(lambda: len(member.owned) == PARTITIONS, "the member is assigned")
    (description,) = admin.describe_groups([group]).values()
    assert {each["group_id"] for each in admin.list_groups()} >= {group}
    assert (description["group_state"], len(description["members"])) == ("Stable", 1)
    consumer = member.stop()
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)})
    consumer.close()
    if version >= FIRST_WITH_DELETION:
        offsets = admin.list_group_offsets({group: None})[group]
        assert {partition: each.offset for partition, each in offsets.items()} == {TopicPartition(topic, 0): 3}
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


@pytest.fixture(scope="module")
def administrations(broker: BrokerProcess) -> Iterator[Outcomes]:
    with lived_at_once(administer_groups_and_topics, broker, since(FIRST_WITH_TOPIC_ADMINISTRATION)) as outcomes:
        yield outcomes


@pytest.mark.parametrize("version", since(FIRST_WITH_TOPIC_ADMINISTRATION))
def test_an_administrator_sees_groups_and_topics(administrations: Outcomes, version: str) -> None:
    administrations[version].result()
