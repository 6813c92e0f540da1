"""What a worker does for tasks, as far as tests of connectors need it: it gives offsets and remembers requests."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from base.topic_partition import TopicPartition
from spark_jobs.connect.base.api import Connector, Offsets, SinkTask, SourceTask, Transactions
from spark_jobs.connect.base.records import SinkRecord, SourceRecord

NO_IDS: Mapping[str, str] = {}


class FakeConnectorContext:
    """Counts the reconfigurations that a connector requested."""

    def __init__(self) -> None:
        self.reconfigurations = 0

    def request_reconfiguration(self) -> None:
        self.reconfigurations += 1

    def fail(self, error: Exception) -> None:
        raise AssertionError(error)


class FakeOffsets:
    """Stored source offsets; partitions are compared as the JSON that a worker stores."""

    def __init__(self) -> None:
        self.stored: dict[str, Mapping[str, Any]] = {}

    def store(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            self.stored[json.dumps(record.source_partition, sort_keys=True)] = _as_stored(record.source_offset)

    def set(self, source_partition: Mapping[str, Any], source_offset: Mapping[str, Any]) -> None:
        self.stored[json.dumps(source_partition, sort_keys=True)] = _as_stored(source_offset)

    def offset(self, source_partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self.stored.get(json.dumps(source_partition, sort_keys=True))

    def offsets(self, source_partitions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        return [self.offset(each) for each in source_partitions]


def _as_stored(source_offset: Mapping[str, Any]) -> Mapping[str, Any]:
    stored: Mapping[str, Any] = json.loads(json.dumps(source_offset))
    return stored


class FakeSourceContext:
    def __init__(self, config: Mapping[str, str], offsets: FakeOffsets | None = None) -> None:
        self.config = config
        self.offset_reader = offsets or FakeOffsets()
        self.transactions: Transactions | None = None


class FakeSinkContext:
    """Remembers where a task continues. The connectors under test call nothing else."""

    def __init__(self, config: Mapping[str, str], ids: Mapping[str, str]) -> None:
        self.config = config
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.sought: dict[TopicPartition, int] = {}
        self.ids = ids

    def assignment(self) -> frozenset[TopicPartition]:
        return self.partitions

    def seek(self, offsets: Offsets) -> None:
        self.sought.update(offsets)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def pause(self, *partitions: TopicPartition) -> None:
        raise NotImplementedError

    def resume(self, *partitions: TopicPartition) -> None:
        raise NotImplementedError

    def retry_after(self, timeout_ms: int) -> None:
        raise NotImplementedError

    def request_commit(self) -> None:
        raise NotImplementedError

    def report_errant(self, record: SinkRecord, error: Exception) -> None:
        raise NotImplementedError


def start_source(kind: type[SourceTask], config: Mapping[str, str], offsets: FakeOffsets | None = None) -> SourceTask:
    """Return a started task."""
    task = kind()
    task.context = FakeSourceContext(config, offsets)
    task.start(config)
    return task


def start_sink(
    kind: type[SinkTask], config: Mapping[str, str], *partitions: TopicPartition, ids: Mapping[str, str] = NO_IDS
) -> SinkTask:
    """Return a started task with these partitions, of topics with these ids."""
    task = kind()
    context = FakeSinkContext(config, ids)
    context.partitions = frozenset(partitions)
    task.context = context
    task.start(config)
    task.open(partitions)
    return task


def start_connector(kind: type[Connector], config: Mapping[str, str]) -> Connector:
    """Return a started connector."""
    connector = kind()
    connector.context = FakeConnectorContext()
    connector.start(config)
    return connector


def acknowledge(task: SourceTask, records: Sequence[SourceRecord], offsets: FakeOffsets | None = None) -> None:
    """Do what a worker does after the broker has the records: store their offsets and call the task."""
    for number, record in enumerate(records):
        task.commit_record(record, 0, number)
    if offsets is not None:
        offsets.store(records)
    task.commit()


def poll_until(task: SourceTask, count: int) -> list[SourceRecord]:
    """Poll until there are `count` records; the test's timeout ends it if there are fewer."""
    found: list[SourceRecord] = []
    while len(found) < count:
        found += task.poll()
    return found


def sink_record(value: Any, offset: int = 0, topic: str = "topic", partition: int = 0, **others: Any) -> SinkRecord:
    fields = {"value_schema": None, "key": None, "key_schema": None, "timestamp_ms": None, "headers": ()} | others
    return SinkRecord(
        topic, partition, value, **fields, original_topic=topic, original_partition=partition, offset=offset
    )
