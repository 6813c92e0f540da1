"""Copies records between two clusters: the streams of `kafka-mirror-maker`, which share one producer.

Owns the order that loses nothing: records are sent, the producer has all acknowledgements, and only then the positions
behind the records are committed. Must not know command lines, or where settings come from.

A stream is a consumer of a group, in a thread of its own. It subscribes to the topics that match, and looks for new
ones every `metadata.max.age.ms`. Before partitions are taken from it, it commits what it has copied.

A record that cannot be sent ends all streams without a further commit, or is counted as dropped.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from protocol.internal_topics import INTERNAL_TOPICS
from tools.client import client_library as library

logger = logging.getLogger("kafka.tools.MirrorMaker")

BATCH_SIZE: Final = 1_000
"""How many records a stream takes at a time."""
POLL_S: Final = 0.1
FLUSH_S: Final = 0.5
"""How often a wait for acknowledgements looks whether it is to end."""
LAST_FLUSH_S: Final = 30.0
"""How long the end waits for acknowledgements. What has none by then is not committed, and copied again."""
LIST_TIMEOUT_S: Final = 10.0
WITHOUT_TIMESTAMP: Final = 0
"""The library's type of a record of the oldest format, which has no timestamp."""

# The group has moved on: another member has the partitions, and copies what was not committed once more.
_REBALANCED: Final = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_STATE"})


class Outgoing(NamedTuple):
    """A record for the target cluster. Without a partition, the key or the producer selects it."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class MessageHandler(Protocol):
    """Turns each record of the source into records for the target: any number, also none."""

    def handle(self, record: library.Message) -> Iterable[Outgoing]: ...


class RebalanceListener(Protocol):
    """Is told of the partitions of a stream, in the stream's thread. Both names are Kafka's."""

    def on_partitions_assigned(self, partitions: Sequence[library.TopicPartition]) -> None: ...

    def on_partitions_revoked(self, partitions: Sequence[library.TopicPartition]) -> None: ...


class CopyAsIs:
    """The handler that keeps topic, key, value, headers and timestamp. The key selects the partition."""

    def handle(self, record: library.Message) -> Iterable[Outgoing]:
        kind, timestamp_ms = record.timestamp()
        topic = record.topic()
        assert topic is not None
        return (
            Outgoing(
                topic,
                record.value(),
                record.key(),
                record.headers() or (),
                None if kind == WITHOUT_TIMESTAMP else timestamp_ms,
            ),
        )


class TopicFilter(NamedTuple):
    """Which topics are mirrored: those whose whole name matches `included` and not `excluded`."""

    included: re.Pattern[str]
    excluded: re.Pattern[str] | None
    with_internal: bool

    def accepts(self, topic: str) -> bool:
        if not self.included.fullmatch(topic) or (not self.with_internal and topic in INTERNAL_TOPICS):
            return False
        return self.excluded is None or not self.excluded.fullmatch(topic)


class Mirror:
    """All streams, and the producer that they share."""

    def __init__(
        self,
        producer_settings: Mapping[str, Any],
        *,
        topics: TopicFilter,
        commit_interval_s: float,
        aborts_on_failure: bool,
        handler: MessageHandler | None,
        listener: RebalanceListener | None,
    ) -> None:
        """Raises library.KafkaException for settings that the library rejects. Without `handler`: `CopyAsIs`."""
        # Only failures are reported, so that an acknowledgement costs no call.
        self.producer = library.Producer({**producer_settings, "delivery.report.only.error": True})
        self.topics = topics
        self.commit_interval_s = commit_interval_s
        self.handler: MessageHandler = CopyAsIs() if handler is None else handler
        self.listener = listener
        self.dropped = 0
        """How many records could not be sent and are lost."""
        self.failure: str | None = None
        """Why all streams end."""
        self._aborts_on_failure = aborts_on_failure
        self._is_stopped = threading.Event()
        self._streams: list[Stream] = []

    @property
    def copied(self) -> int:
        """How many records were taken from the source."""
        return sum(stream.copied for stream in self._streams)

    @property
    def is_over(self) -> bool:
        return self._is_stopped.is_set()

    def add_stream(self, consumer_settings: Mapping[str, Any], *, refresh_s: float) -> None:
        """Add a consumer. Raises library.KafkaException for settings that the library rejects."""
        self._streams.append(Stream(self, library.Consumer(dict(consumer_settings)), refresh_s))

    def stop(self) -> None:
        """End all streams after their present step. Callable from any thread and from a signal handler."""
        self._is_stopped.set()

    def run(self, show: Callable[[int], None]) -> None:
        """Copy until `stop` or a failure; `show` is called every second with the number of copied records."""
        for stream in self._streams:
            stream.start()
        while any(stream.is_alive() for stream in self._streams):
            self._is_stopped.wait(1.0)
            show(self.copied)
            if self.is_over:
                for stream in self._streams:
                    stream.join()
        if self.failure is not None:
            self.producer.purge()  # what comes after a lost record must not be stored before it

    def fail(self, reason: str) -> None:
        """End all streams; none commits any more."""
        if self.failure is None:
            self.failure = reason
            logger.error("%s", reason)
        self._is_stopped.set()

    def send(self, record: Outgoing) -> bool:
        """Send a record; wait while the producer's queue is full. Return False if the mirror is to end meanwhile."""
        fields: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp_ms is not None:
            fields["timestamp"] = record.timestamp_ms
        while True:
            try:
                self.producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=list(record.headers) or None,
                    on_delivery=self._not_delivered,
                    **fields,
                )
            except BufferError:
                self.producer.poll(POLL_S)
                if self.is_over:
                    return False
                continue
            except library.KafkaException as error:  # the record is too large, for example
                self._lost(record.topic, error.args[0].str())
            return self.failure is None

    def flush(self) -> bool:
        """Wait until everything that was sent is acknowledged or lost.

        Return False if the mirror has failed, or if it is to end and the target does not acknowledge in time.
        """
        left_s = LAST_FLUSH_S
        while self.failure is None and self.producer.flush(FLUSH_S):
            left_s -= FLUSH_S if self.is_over else 0
            if left_s <= 0:
                self.fail(f"the target has not acknowledged all records within {LAST_FLUSH_S:g} s")
        return self.failure is None

    def _not_delivered(self, error: library.KafkaError | None, record: library.Message) -> None:
        if error is not None:
            self._lost(record.topic() or "", error.str())

    def _lost(self, topic: str, reason: str) -> None:
        if self._aborts_on_failure:
            self.fail(f"a record of {topic} could not be sent: {reason}")
            return
        self.dropped += 1
        logger.error("a record of %s could not be sent and is lost: %s", topic, reason)


class Stream(threading.Thread):
    """One consumer."""

    def __init__(self, mirror: Mirror, consumer: library.Consumer, refresh_s: float) -> None:
        super().__init__(name="mirror stream", daemon=True)
        self.copied = 0
        self._mirror = mirror
        self._consumer = consumer
        self._refresh_s = refresh_s
        self._positions: dict[tuple[str, int], int] = {}
        """Behind the last record that was sent of each partition, since the last commit."""
        self._subscribed: frozenset[str] = frozenset()
        self._listed_s = -refresh_s
        self._committed_s = time.monotonic()

    def run(self) -> None:
        mirror = self._mirror
        try:
            while not mirror.is_over:
                self._refresh()
                self._copy(self._consumer.consume(BATCH_SIZE, POLL_S) if self._subscribed else self._idle())
                mirror.producer.poll(0)
                if time.monotonic() - self._committed_s >= mirror.commit_interval_s:
                    self._commit()
            self._commit()
        except Exception as error:  # of the library, a message handler or a listener
            logger.exception("a stream has ended")
            mirror.fail(f"a stream has failed: {error}")
        finally:
            self._consumer.close()

    def _idle(self) -> list[library.Message]:
        time.sleep(POLL_S)
        return []

    def _refresh(self) -> None:
        """Subscribe to the topics that match now, if it is time to look."""
        now_s = time.monotonic()
        if now_s - self._listed_s < self._refresh_s:
            return
        self._listed_s = now_s
        try:
            names = self._consumer.list_topics(timeout=LIST_TIMEOUT_S).topics
        except library.KafkaException as error:
            logger.warning("the topics of the source are not known: %s", error.args[0].str())
            self._listed_s = now_s - self._refresh_s + 1.0  # look again after a second
            return
        wanted = frozenset(filter(self._mirror.topics.accepts, names))
        if wanted and wanted != self._subscribed:
            logger.info("mirroring %s", ", ".join(sorted(wanted)))
            self._consumer.subscribe(
                sorted(wanted), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._forgotten
            )
            self._subscribed = wanted

    def _copy(self, records: Iterable[library.Message]) -> None:
        mirror = self._mirror
        for record in records:
            if record.error() is not None:
                logger.warning("the source reports: %s", record.error().str())
                continue
            if not all(map(mirror.send, mirror.handler.handle(record))):
                return
            self._positions[record.topic(), record.partition()] = record.offset() + 1
            self.copied += 1

    def _commit(self) -> None:
        """Commit what was copied when everything that was sent is acknowledged."""
        self._committed_s = time.monotonic()
        if not self._positions or not self._mirror.flush():
            return
        offsets = [library.TopicPartition(*key, position) for key, position in self._positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except library.KafkaException as error:
            failure: library.KafkaError = error.args[0]
            if failure.name() not in _REBALANCED:
                logger.warning("the positions are not committed, and will be later: %s", failure.str())
                return
            logger.warning("the group has rebalanced: another member copies from the last committed positions on")
        self._positions.clear()

    def _assigned(self, consumer: library.Consumer, partitions: Sequence[library.TopicPartition]) -> None:
        if self._mirror.listener is not None:
            self._mirror.listener.on_partitions_assigned(partitions)

    def _revoked(self, consumer: library.Consumer, partitions: Sequence[library.TopicPartition]) -> None:
        self._commit()
        # Committed later, if the commit has failed, the positions would undo what the next member commits.
        self._forgotten(consumer, partitions)
        if self._mirror.listener is not None:
            self._mirror.listener.on_partitions_revoked(partitions)

    def _forgotten(self, consumer: library.Consumer, partitions: Sequence[library.TopicPartition]) -> None:
        """Another member has these partitions already: a commit would be refused."""
        for partition in partitions:
            self._positions.pop((partition.topic, partition.partition), None)
