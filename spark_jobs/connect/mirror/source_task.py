"""The task that copies the records of some partitions (`MirrorSourceTask`).

It continues behind the offsets that its worker has stored, in the form in which Kafka's MirrorMaker 2 stores them. For
each record that the target has acknowledged it considers writing a pair of offsets; this never blocks.

Owns the consumer of the source and the producer of offset syncs. Must not know how records reach the target.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from base.topic_partition import TopicPartition, partition_name
from spark_jobs.connect.base.api import SourceTask
from spark_jobs.connect.base.data import OPTIONAL_BYTES
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.base.records import Headers, SourceRecord
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.mirror.connector_settings import (
    EMITS_SYNCS,
    OFFSET_LAG_MAX,
    POLL_TIMEOUT_MS,
    SOURCE,
    SOURCE_DEFINITION,
    SYNCS_LOCATION,
    TASK_PARTITIONS,
    ConnectorSettings,
)
from spark_jobs.connect.mirror.offset_syncs import OffsetSyncQueue
from spark_jobs.connect.mirror.offsets import OFFSET_KEY
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorSourceTask")

CONSUMER_ROLE: Final = "replication-consumer"
PRODUCER_ROLE: Final = "offset-syncs-{}-producer"
OUTSTANDING_SYNCS_MAX: Final = 10
STATISTICS_MS: Final = 30_000
"""How often partitions without a leader are looked for."""

BACKOFF_MS: Final = 10
"""How long the library fetches nothing when it has enough records; within its default, a second, they would run out."""
_BATCH_SIZE: Final = 5_000
_POLL_S: Final = 0.1
_FLUSH_S: Final = 5.0
_LEADERS_S: Final = 1.0
_WITHOUT_TIMESTAMP: Final = 0
_NO_LEADER: Final = -1


class _Part(NamedTuple):
    """One partition of the source."""

    source_partition: Mapping[str, Any]
    target_topic: str


class MirrorSourceTask(SourceTask):
    """Copies the records of the partitions in `task.assigned.partitions`."""

    version = KAFKA_VERSION

    def __init__(self) -> None:
        self._is_stopping = threading.Event()
        self._access = threading.Lock()  # of the consumer: by `poll`, or by the thread that stops the task
        self._consumer: library.Consumer | None = None
        self._syncs: SyncWriter | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = ConnectorSettings(SOURCE_DEFINITION, config)
        self._timeout_s = settings[POLL_TIMEOUT_MS] / 1000
        self._parts = {
            (topic, index): _Part(
                {"cluster": settings.source_alias, "partition": index, "topic": topic},
                settings.policy.remote_topic(settings.source_alias, topic),
            )
            for topic, index in assigned_partitions(config.get(TASK_PARTITIONS, ""))
        }
        self._reported: set[tuple[TopicPartition, str]] = set()
        self._leaderless: frozenset[TopicPartition] = frozenset()
        if settings[EMITS_SYNCS]:
            self._syncs = SyncWriter(settings)
        consumer = settings.consumer(SOURCE, CONSUMER_ROLE)
        self._batch_size = _batch_size(settings.config)
        try:
            self._consumer = library.Consumer(
                {
                    **consumer,
                    "statistics.interval.ms": STATISTICS_MS,
                    "stats_cb": self._read_statistics,
                    "fetch.queue.backoff.ms": BACKOFF_MS,
                },
                logger=logger,
            )
            positions = self._positions(consumer["auto.offset.reset"])
            self._find_leaders(self._consumer)
            self._consumer.assign(positions)
        except library.KafkaException as error:
            raise ConnectError(f"the consumer of {settings.source_alias}: {error.args[0].str()}") from error
        logger.info(
            "mirroring %d partitions %s->%s: %s",
            len(self._parts), settings.source_alias, settings.target_alias, ", ".join(map(partition_name, self._parts)),
        )  # fmt: skip

    def poll(self) -> Sequence[SourceRecord]:
        with self._access:
            if self._consumer is None:
                return []
            first = self._first(self._consumer)
            if first is None:
                return []
            # Only the first record is waited for: the others have been fetched already.
            others = self._consumer.consume(self._batch_size - 1, 0) if self._batch_size > 1 else ()
            return self._converted((first, *others))

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        if self._syncs is None or offset is None:
            return
        place = record.source_partition
        self._syncs.add(place["topic"], place["partition"], record.source_offset[OFFSET_KEY], offset)

    def commit(self) -> None:
        if self._syncs is not None:
            self._syncs.write_delayed()

    def stop(self) -> None:
        """May be called again: the pairs of records that are acknowledged between the calls are still written."""
        self._is_stopping.set()
        with self._access:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
        if self._syncs is not None:
            self._syncs.flush()

    @staticmethod
    def _find_leaders(consumer: library.Consumer) -> None:
        """Ask for leaders: an assignment of partitions whose leader is not known begins half a second later."""
        with suppress(library.KafkaException):  # the timer tries it again
            consumer.list_topics(timeout=_LEADERS_S)

    def _positions(self, reset: str) -> list[library.TopicPartition]:
        """Return where to begin in each partition. Raises ConnectError if nothing says where."""
        stored = self.context.offset_reader.offsets([part.source_partition for part in self._parts.values()])
        begins = {"earliest": library.OFFSET_BEGINNING, "latest": library.OFFSET_END}
        positions = []
        for partition, found in zip(self._parts, stored, strict=True):
            offset = -1 if found is None else found.get(OFFSET_KEY, -1)
            if type(offset) is not int:
                raise ConnectError(f"the stored offset of {partition_name(partition)} is {found}: expected an integer")
            begin = offset + 1 if offset >= 0 else begins.get(reset)
            if begin is None:
                raise ConnectError(
                    f"{partition_name(partition)} has no stored offset, and auto.offset.reset is {reset}"
                )
            positions.append(library.TopicPartition(*partition, begin))
        return positions

    def _first(self, consumer: library.Consumer) -> library.Message | None:
        """Return the next record, None if there is none in time, or if the task is to stop."""
        give_up_s = time.monotonic() + self._timeout_s
        while not self._is_stopping.is_set():
            left_s = give_up_s - time.monotonic()
            message = consumer.poll(min(max(left_s, 0.0), _POLL_S))
            if message is not None or left_s <= 0:
                return message
        return None

    def _converted(self, messages: Iterable[library.Message]) -> list[SourceRecord]:
        records = []
        parts = self._parts
        for message in messages:
            if message.error() is not None:
                self._report(message)
                continue
            partition = message.partition()
            part = parts[message.topic(), partition]
            kind, timestamp_ms = message.timestamp()
            headers = message.headers()
            records.append(
                SourceRecord(
                    part.source_partition,
                    {OFFSET_KEY: message.offset()},
                    part.target_topic,
                    message.value(),
                    OPTIONAL_BYTES,
                    message.key(),
                    OPTIONAL_BYTES,
                    partition,
                    timestamp_ms if kind != _WITHOUT_TIMESTAMP else None,
                    _converted_headers(headers) if headers else (),
                )
            )
        return records

    def _report(self, message: library.Message) -> None:
        """Log an error of a partition, once for each kind; the others continue."""
        error = message.error()
        assert error is not None
        partition = (message.topic() or "", message.partition() or 0)
        if (partition, error.name()) not in self._reported:
            self._reported.add((partition, error.name()))
            logger.warning("%s is not read: %s", partition_name(partition), error.str())

    def _read_statistics(self, text: str) -> None:
        """Log partitions without a leader, each once until it has one."""
        topics = json.loads(text)["topics"]
        found = frozenset(
            (topic, index)
            for topic, index in self._parts
            if topics.get(topic, {}).get("partitions", {}).get(str(index), {}).get("leader") == _NO_LEADER
        )
        for partition in sorted(found - self._leaderless):
            logger.warning("%s has no leader: the task copies its other partitions", partition_name(partition))
        self._leaderless = found


class SyncWriter:
    """Sends pairs of offsets. All methods but `flush` are called by the thread of the task, and none but it waits."""

    def __init__(self, settings: ConnectorSettings) -> None:
        """Raises ConnectError."""
        self._topic = settings.offset_syncs_topic
        self._queue = OffsetSyncQueue(settings[OFFSET_LAG_MAX])
        self.outstanding = 0
        """How many pairs were sent and are not acknowledged."""
        location = settings[SYNCS_LOCATION]
        try:
            producer = settings.producer(location, PRODUCER_ROLE.format(location))
            self._producer = library.Producer(producer, logger=logger)
        except library.KafkaException as error:
            raise ConnectError(f"the producer of {self._topic}: {error.args[0].str()}") from error

    @property
    def waiting(self) -> int:
        """How many pairs wait to be sent."""
        return self._queue.pending_count

    def add(self, topic: str, partition: int, upstream_offset: int, downstream_offset: int) -> None:
        """A record has been copied."""
        self._queue.add(topic, partition, upstream_offset, downstream_offset)
        if self._queue.pending_count:
            self._write()

    def write_delayed(self) -> None:
        """Write the pairs that were not due, and those that found too many under way."""
        self._queue.promote()
        self._write()

    def flush(self) -> None:
        """Wait for acknowledgements, but not for long."""
        if self._producer.flush(_FLUSH_S):
            logger.warning("%s: some pairs were not acknowledged within %g s", self._topic, _FLUSH_S)

    def _write(self) -> None:
        self._producer.poll(0)
        for sync in self._queue.take():
            if self.outstanding >= OUTSTANDING_SYNCS_MAX:
                return
            try:
                self._producer.produce(
                    self._topic, sync.value(), sync.key(), partition=0, on_delivery=self._on_delivery
                )
            except BufferError:
                return
            self.outstanding += 1

    def _on_delivery(self, error: library.KafkaError | None, _message: library.Message) -> None:
        self.outstanding -= 1
        if error is not None:
            logger.error("a pair of offsets could not be written to %s: %s", self._topic, error.str())


def assigned_partitions(text: str) -> list[TopicPartition]:
    """Return the partitions of `topic-0,topic-1`. Raises ConfigError."""
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        topic, dash, index = name.rpartition("-")
        if not dash or not topic or not index.isdecimal():
            raise ConfigError(f"Invalid value {name} for configuration {TASK_PARTITIONS}: expected topic-partition")
        found.append((topic, int(index)))
    return found


def _converted_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    return tuple((name, OPTIONAL_BYTES, value) for name, value in headers)


def _batch_size(config: Mapping[str, str]) -> int:
    """Return how many records one `poll` returns at most."""
    key = "max.poll.records"
    text = config.get(f"source.consumer.{key}", config.get(f"consumer.{key}", str(_BATCH_SIZE)))
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"Invalid value {text} for configuration {key}: expected an integer of 1 or more")
    return int(text)
