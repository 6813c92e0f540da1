"""Transactions while brokers fail: a copy with read_committed input and output copies each record exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.conftest import PARTITIONS, create_topic
from tests.cluster.load import (
    CONSUMER_SETTINGS,
    PRODUCER_SETTINGS,
    NumberedLoad,
    numbers_of,
    read_topic,
)
from tests.support.cluster import Cluster
from tools.admin_client import TRANSACTION, AdminClient
from tools.bootstrap import Endpoint

DEADLINE_S = 90.0
RECORDS = 600
BATCH = 40
TRANSACTION_TIMEOUT_MS = 10_000


class Copier:
    """Copies a topic in transactions that contain the positions of the input; begins again after an abort."""

    def __init__(self, cluster: Cluster, source: str, target: str, group: str) -> None:
        self.copied = 0
        self.aborted = 0
        self._bootstrap = cluster.bootstrap
        self._source, self._target, self._group = source, target, group
        self._open()

    def _open(self) -> None:
        self._consumer = Consumer(
            {
                **CONSUMER_SETTINGS,
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        # The positions of an earlier transaction that is being ended must not be read as older ones.
        wanted = [TopicPartition(self._source, partition) for partition in range(PARTITIONS)]
        committed = _retried(lambda: self._consumer.committed(wanted, timeout=10))
        for found in committed:
            found.offset = max(found.offset, 0)
        self._consumer.assign(committed)
        self._producer = Producer(
            {
                **PRODUCER_SETTINGS,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._group,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        _retried(lambda: self._producer.init_transactions(10))

    def run(self, count: int) -> None:
        """Copy until `count` records are committed."""
        deadline = time.monotonic() + DEADLINE_S
        while self.copied < count:
            assert time.monotonic() < deadline, f"only {self.copied} of {count} records were copied"
            messages = self._polled()
            if not messages:
                continue
            try:
                self._producer.begin_transaction()
                for message in messages:
                    self._producer.produce(self._target, message.value(), partition=message.partition())
                self._producer.send_offsets_to_transaction(
                    self._consumer.position(self._consumer.assignment()), self._consumer.consumer_group_metadata(), 10
                )
                _retried(lambda: self._producer.commit_transaction(10))
            except KafkaException:
                self.aborted += 1
                self._begin_again()
            else:
                self.copied += len(messages)

    def _polled(self) -> list[Message]:
        """Return up to `BATCH` records. `Consumer.consume` twice did not return from its client library in minutes."""
        messages: list[Message] = []
        while len(messages) < BATCH:
            message = self._consumer.poll(0.0 if messages else 0.2)
            if message is None:
                break
            if message.error() is None:
                messages.append(message)
        return messages

    def _begin_again(self) -> None:
        """Start with a new producer, which fences the old one and aborts its transaction, and from its positions."""
        self._consumer.close()
        self._open()


def _retried(action: Callable[[], object]) -> object:
    """Repeat an action while its error says that it may be repeated."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return action()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def transaction_coordinator(cluster: Cluster, transactional_id: str) -> int:
    endpoints = [Endpoint("127.0.0.1", cluster.brokers[broker_id].port) for broker_id in cluster.running]
    with AdminClient(endpoints) as client:
        return client.coordinator(transactional_id, TRANSACTION)


def kill_the_coordinator(cluster: Cluster, copier: Copier, target: str, group: str) -> None:
    broker_id = transaction_coordinator(cluster, group)
    cluster.kill(broker_id)
    copier.run(copier.copied + 2 * BATCH)
    cluster.start(broker_id)


def kill_the_leader(cluster: Cluster, copier: Copier, target: str, group: str) -> None:
    leader = cluster.leader(target)
    cluster.kill(leader)
    copier.run(copier.copied + 2 * BATCH)
    cluster.start(leader)


def halt_the_coordinator(cluster: Cluster, copier: Copier, target: str, group: str) -> None:
    with cluster.halted(transaction_coordinator(cluster, group)):
        copier.run(copier.copied + 2 * BATCH)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(kill_the_coordinator, id="coordinator-killed"),
        pytest.param(kill_the_leader, id="leader-killed", marks=pytest.mark.soak),
        pytest.param(halt_the_coordinator, id="coordinator-halted", marks=pytest.mark.soak),
    ],
)
def test_copy_contains_each_record_once(
    cluster: Cluster, topic: str, group: str, failure: Callable[[Cluster, Copier, str, str], None]
) -> None:
    target = create_topic(cluster)
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, rate=2000) as load:
        load.wait_for(RECORDS)
    copier = Copier(cluster, topic, target, group)
    copier.run(2 * BATCH)
    failure(cluster, copier, target, group)
    cluster.heal(topic, target)
    total = len(numbers_of(read_topic(cluster.bootstrap, topic, PARTITIONS)))
    copier.run(total)
    copied = read_topic(cluster.bootstrap, target, PARTITIONS, isolation="read_committed")
    assert numbers_of(copied) == list(range(total))
