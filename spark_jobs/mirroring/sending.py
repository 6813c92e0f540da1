"""Sends the records of a batch to the target, in Spark's tasks, with their timestamps.

Spark's own sink has no column for the timestamp, so each task has a Kafka client of its own: idempotent, acks=all, and
with retries that never end. It leaves the client to the next task of its process. A task has the records of one source
partition in their order. It returns where they went, as runs: the records of a run have the same difference between the
offsets of source and target.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from spark_jobs.mirroring.naming import TopicNames
from spark_jobs.skeleton.clients import LINGER_MS
from spark_jobs.skeleton.errors import JobError

ORIGIN = "mirror.origin"
PLACE = "mirror.place"
_QUEUE_KB = 65_536  # of each task, while the target is slow; librdkafka's default is 1 GB
_PURGE_TIMEOUT_S = 10
_TIMEOUT_S = 60
_FULL_QUEUE_WAIT_S = 0.1
_FAILURE_POLL_S = 1.0
_NO_DELIVERY_TIMEOUT = "0"
_WAIT_AT_END_MS = "5"

# The producer of the last task of this process: a new one gets its producer id only after half a second. Spark ends a
# process that has no task for a minute. The key is the settings, and the numbers of partitions that the producer knows.
_Key = tuple[frozenset[tuple[str, Any]], frozenset[tuple[str, int]]]
_idle_producers: dict[_Key, Producer] = {}


class Run(NamedTuple):
    """Records that went from `source_offset` on to `target_offset` on, with the same difference."""

    topic: str
    partition: int
    source_offset: int
    target_topic: str
    target_partition: int
    target_offset: int


@dataclass(frozen=True, slots=True)
class Mirroring:
    """What a task has to know. It is sent to the executors."""

    target: Mapping[str, str]  # settings of librdkafka's clients
    names: TopicNames
    partitions: Mapping[str, int]  # of the target topics
    source_partitions: Mapping[str, int]
    source_alias: str
    target_alias: str
    mark_origin: bool
    exact_offsets: bool = False
    producer: Mapping[str, str] = field(default_factory=dict)  # further settings

    def keeps_partitions(self, topic: str) -> bool:
        """Whether the records of a topic keep their partitions: it is mirrored, and the target has as many of them."""
        return topic in self.source_partitions and self.source_partitions[topic] == self.partitions.get(
            self.names.target(topic)
        )


def send(rows: Iterable[Any], mirroring: Mirroring) -> Iterator[Run]:
    """Send the rows of one task (of Spark's Kafka source, with `timestamp_ms`); yield where they went.

    Raises JobError if the target refuses a record, or with exact offsets would give it another offset.
    """
    sender = _Sender(mirroring)
    try:
        for row in rows:
            sender.send(row)
        yield from sender.finish()
    except BaseException:  # also the end of a task that Spark cancels
        sender.abandon()
        raise


def to_record(row: Any, mirroring: Mirroring) -> dict[str, Any] | None:
    """Return the arguments of `Producer.produce` for a record, or None if it has been at the target.

    The headers name all clusters that a record has passed, and its place in the first one.
    """
    headers = [(header.key, _bytes(header.value)) for header in row.headers or ()]
    origins = [value for key, value in headers if key == ORIGIN]
    source, target = mirroring.source_alias.encode(), mirroring.target_alias.encode()
    if target in origins:
        return None
    if mirroring.mark_origin and source not in origins:
        headers.append((ORIGIN, source))
    if mirroring.mark_origin and not origins:
        headers.append((PLACE, f"{row.topic}/{row.partition}/{row.offset}".encode()))
    record = {
        "topic": mirroring.names.target(row.topic),
        "key": _bytes(row.key),
        "value": _bytes(row.value),
        "headers": headers,
        "timestamp": row.timestamp_ms,
    }
    return {**record, "partition": row.partition} if mirroring.keeps_partitions(row.topic) else record


def _bytes(content: bytearray | bytes | None) -> bytes | None:
    return None if content is None else bytes(content)


class _Sender:
    """One task: its producer, the failures, and the places that the target reported."""

    def __init__(self, mirroring: Mirroring) -> None:
        self._mirroring = mirroring
        settings = {
            "queue.buffering.max.kbytes": _QUEUE_KB,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": LINGER_MS,
            "delivery.timeout.ms": _NO_DELIVERY_TIMEOUT,
            **mirroring.producer,
            **mirroring.target,
        }
        self._key = (frozenset(settings.items()), frozenset(mirroring.partitions.items()))
        # A task that fails leaves no producer: it may still have records to send.
        self._producer = _idle_producers.pop(self._key, None) or Producer(settings)
        _idle_producers.clear()
        self._failures: list[str] = []
        self._runs = Runs()
        self._expected: dict[tuple[str, int], int] = {}
        self._skipped: dict[tuple[str, int], Any] = {}  # the last row that the target has already

    def send(self, row: Any) -> None:
        record = to_record(row, self._mirroring)
        if self._mirroring.exact_offsets and not self._is_next(row, record):
            return
        if record is None:
            return
        source = (row.topic, row.partition, row.offset)
        name = f"{row.topic}-{row.partition} offset {row.offset}"

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failures.append(f"{name}: {error.str()}")
            else:
                self._runs.add(Run(*source, message.topic(), message.partition(), message.offset()))

        while True:
            try:
                self._producer.produce(**record, on_delivery=on_delivery)
                break
            except BufferError:
                self._producer.poll(_FULL_QUEUE_WAIT_S)
            except KafkaException as error:
                raise JobError(f"{name} cannot be sent to the target: {error.args[0].str()}") from error
        self._producer.poll(0)

    def finish(self) -> Iterator[Run]:
        """Wait for all responses, however long; yield the first place of each run."""
        while self._producer.flush(_FAILURE_POLL_S) and not self._failures:
            pass
        if self._failures:
            raise JobError(f"{len(self._failures)} records were refused by the target: {self._failures[0]}")
        if self._mirroring.exact_offsets:
            for (topic, partition), row in self._skipped.items():
                self._check_skipped(topic, partition, row)
            for run in self._runs:
                if run.source_offset != run.target_offset:
                    raise JobError(
                        f"--exact-offsets: {run.topic}-{run.partition} offset {run.source_offset} "
                        f"has offset {run.target_offset} at the target: something else writes there"
                    )
        _idle_producers[self._key] = self._producer
        yield from self._runs

    def abandon(self) -> None:
        """Drop the records that are not sent yet: otherwise they would be sent later, after those of the next try."""
        self._producer.purge()
        self._producer.flush(_PURGE_TIMEOUT_S)  # calls on_delivery, which refers to this object, for the last time

    def _is_next(self, row: Any, record: dict[str, Any] | None) -> bool:
        """Whether a record has to be sent: it is at the end of the target, and not there yet. Raises JobError."""
        key = (self._mirroring.names.target(row.topic), row.partition)
        if not self._mirroring.keeps_partitions(row.topic):
            raise JobError(
                f"--exact-offsets: {row.topic} has {self._mirroring.source_partitions[row.topic]} partitions, "
                f"{key[0]} at the target {self._mirroring.partitions[key[0]]}: expected the same number"
            )
        if key not in self._expected:
            self._expected[key] = self._end_offset(*key)
        if row.offset < self._expected[key]:
            self._skipped[key] = row
            return False
        if row.offset > self._expected[key] or record is None:
            reason = "the record came from the target" if record is None else "the source has a gap"
            raise JobError(
                f"--exact-offsets: {row.topic}-{row.partition} offset {row.offset} would get offset "
                f"{self._expected[key]} at the target: {reason} (compaction, transactions, retention, or a loop)"
            )
        self._expected[key] += 1
        return True

    def _check_skipped(self, topic: str, partition: int, row: Any) -> None:
        """Raise JobError unless the target has the same record at this offset: it must be from an earlier run."""
        settings = {"group.id": "mirror-end-offsets", "enable.auto.commit": False, "fetch.wait.max.ms": _WAIT_AT_END_MS}
        consumer = Consumer({**self._mirroring.target, **settings})
        try:
            consumer.list_topics(topic, _TIMEOUT_S)  # otherwise it looks for the leader only at its next timer
            consumer.assign([TopicPartition(topic, partition, row.offset)])
            found = consumer.poll(_TIMEOUT_S)
        finally:
            consumer.close()
        wanted = (row.offset, _bytes(row.key), _bytes(row.value), row.timestamp_ms)
        if found is None or (found.offset(), found.key(), found.value(), found.timestamp()[1]) != wanted:
            raise JobError(
                f"--exact-offsets: {row.topic}-{row.partition} offset {row.offset} is another record at the target: "
                "something else writes there"
            )

    def _end_offset(self, topic: str, partition: int) -> int:
        consumer = Consumer({**self._mirroring.target, "group.id": "mirror-end-offsets"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S)[1])
        finally:
            consumer.close()


class Runs:
    """Collects the runs of records whose places come in the order of their responses; it keeps no place of a record."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._last: dict[tuple[str, int, str, int], tuple[int, int]] = {}  # offset at the source, and difference

    def add(self, place: Run) -> None:
        pair = (place.topic, place.partition, place.target_topic, place.target_partition)
        difference = place.target_offset - place.source_offset
        last_offset, last_difference = self._last.get(pair, (-1, None))
        if difference != last_difference or place.source_offset < last_offset:
            self._runs.append(place)
        self._last[pair] = (place.source_offset, difference)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)
