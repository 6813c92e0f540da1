"""A flow between two brokers, and a driver that plays the worker of its connectors and tasks.

The driver calls `poll`, sends what it returns, calls `commit_record` for each acknowledgement, and stores offsets in a
dictionary. Owns no assertion.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.mirror.checkpoint import MirrorCheckpointConnector
from spark_jobs.connect.mirror.source import MirrorSourceConnector
from tests.spark_jobs.connect.contexts import FakeConnectorContext, FakeOffsets
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
until = partial(wait_until, timeout_s=DEADLINE_S)
_numbers = itertools.count()


class TaskWorker:
    """Runs one task, a step at a time."""

    def __init__(self, task: SourceTask, config: Mapping[str, str], offsets: FakeOffsets, bootstrap: str) -> None:
        self.task = task
        self.offset_reader = offsets
        self.transactions = None
        self.config = config
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        task.context = self
        task.start(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.task.stop()

    def step(self) -> Sequence[SourceRecord]:
        """Poll once, send everything, and store the offsets."""
        records = self.task.poll()
        for record in records:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=partial(self._delivered, record),
                headers=[(name, value) for name, _, value in record.headers],
                timestamp=record.timestamp_ms,
            )
        self._producer.flush(DEADLINE_S)
        self.offset_reader.store(records)
        self.task.commit()
        return records

    def copy(self, count: int) -> list[SourceRecord]:
        """Step until so many records were sent; return them."""
        found: list[SourceRecord] = []

        def has_copied() -> bool:
            found.extend(self.step())
            return len(found) >= count

        until(has_copied, f"{count} records are copied")
        return found

    def run(self, condition: Callable[[], object], what: str) -> None:
        """Step until a condition is true."""

        def stepped() -> object:
            self.step()
            return condition()

        until(stepped, what)

    def _delivered(self, record: SourceRecord, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.task.commit_record(record, message.partition(), message.offset())


class Flow:
    """One flow `SOURCE->TARGET`."""

    def __init__(self, source: str, target: str) -> None:
        number = next(_numbers)
        self.source_alias, self.target_alias = f"s{number}", f"t{number}"
        self.source, self.target = source, target
        self.offsets = FakeOffsets()
        self.worker = FakeConnectorContext()
        self._open: list[SourceConnector] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for connector in self._open:
            connector.stop()

    def name(self, suffix: str) -> str:
        """Return the name of a topic or group that no other test has."""
        return f"{self.source_alias}-{suffix}"

    def remote(self, topic: str) -> str:
        return f"{self.source_alias}.{topic}"

    def config(self, **settings: object) -> dict[str, str]:
        """Return settings of a connector; `settings` have underscores for dots."""
        return {
            "name": "mirror",
            "source.cluster.alias": self.source_alias,
            "target.cluster.alias": self.target_alias,
            "source.cluster.bootstrap.servers": self.source,
            "target.cluster.bootstrap.servers": self.target,
            "topics": self.name(".*"),
            "groups": self.name(".*"),
            "consumer.poll.timeout.ms": "50",
            "consumer.fetch.max.wait.ms": "20",
            "admin.timeout.ms": "30000",
            **{f"{topic}.replication.factor": "1" for topic in ("offset-syncs.topic", "checkpoints.topic")},
            "heartbeats.topic.replication.factor": "1",
            "replication.factor": "1",
            **{key.replace("_", "."): str(value) for key, value in settings.items()},
        }

    def start(self, connector: SourceConnector, config: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
        """Start a connector and return the configurations of up to two tasks."""
        connector.context = self.worker
        connector.start(config)
        self._open.append(connector)
        return connector.task_configs(2)

    def copying(self, **settings: object) -> TaskWorker:
        """Start a source connector and its only task."""
        config = self.config(**settings)
        connector = MirrorSourceConnector()
        self.start(connector, config)
        (task_config,) = connector.task_configs(1)
        return TaskWorker(connector.task(), task_config, self.offsets, self.target)

    def checkpointing(self, **settings: object) -> TaskWorker:
        """Start a checkpoint connector and its only task."""
        config = self.config(emit_checkpoints_interval_seconds=0, **settings)
        connector = MirrorCheckpointConnector()
        self.start(connector, config)
        (task_config,) = connector.task_configs(1)
        return TaskWorker(connector.task(), task_config, FakeOffsets(), self.target)

    def create_topic(self, suffix: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic at the source; return its name."""
        topic = self.name(suffix)
        create_topic(self.source, topic, partitions, **configs)
        return topic


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result()


def produce(bootstrap: str, topic: str, values: Iterable[bytes | None], **fields: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, **fields)
    assert producer.flush(DEADLINE_S) == 0


def partition_counts(bootstrap: str) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def stored(bootstrap: str, topic: str, partition: int = 0) -> list[Message]:
    """Return all records of a partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "enable.partition.eof": True, "fetch.wait.max.ms": 5}
    )
    try:
        consumer.list_topics(topic, DEADLINE_S)  # otherwise it looks for the leader only at its next timer
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: list[Message] = []
        while True:
            record = consumer.poll(DEADLINE_S)
            assert record is not None
            if (error := record.error()) is not None:
                assert error.name() == "_PARTITION_EOF", error
                return found
            found.append(record)
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        positions = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Return a committed offset, a negative number without one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return int(consumer.committed([TopicPartition(topic, partition)], timeout=DEADLINE_S)[0].offset)
    finally:
        consumer.close()
