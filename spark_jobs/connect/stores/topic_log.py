"""A compacted topic that every worker reads whole, from its start on, and that any worker writes.

Owns creation, reading and writing. Must not know what the records mean.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from spark_jobs.connect.base.errors import ConfigError, ConnectError

logger = logging.getLogger("org.apache.kafka.connect.util.KafkaBasedLog")

OnRecord = Callable[[bytes | None, bytes | None, int], None]
"""Called with key, value and offset of each record, in the thread that reads."""

POLL_S: Final = 0.02
IDLE_POLL_S: Final = 0.05
BATCH_SIZE: Final = 1_000
REQUEST_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 0.5
_COMPACT: Final = "compact"


class TopicLog:
    """One topic. All methods but `start` and `stop` may be called from any thread."""

    def __init__(
        self,
        topic: str,
        *,
        client: Mapping[str, Any],
        consumer: Mapping[str, Any],
        producer: Mapping[str, Any],
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        on_record: OnRecord,
    ) -> None:
        """`client`, `consumer` and `producer` are settings of the client library."""
        self.topic = topic
        self._client = dict(client)
        self._consumer_settings = dict(consumer)
        self._producer_settings = dict(producer)
        self._new_topic = NewTopic(topic, partitions, replication_factor, config={"cleanup.policy": _COMPACT, **config})
        self._on_record = on_record
        self._positions: dict[int, int] = {}
        self._wishes: list[Future[None]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"log-{topic}", daemon=True)
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def start(self) -> int:
        """Create the topic if it is missing, and read it to its present end; return the number of its partitions.

        Raises ConfigError if it is not compacted, and ConnectError if it cannot be created or read.
        """
        try:
            self._admin = AdminClient(self._client)
            partitions = self._create(self._admin)
            # A key has one partition, whichever worker writes it: Java's select it so.
            self._producer = Producer({**self._producer_settings, "partitioner": "murmur2_random"})
            self._consumer = Consumer(
                {
                    **self._consumer_settings,
                    "group.id": f"unused-{self.topic}",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 100,
                }
            )
            # An assignment of partitions whose leader is not known begins half a second later.
            self._consumer.list_topics(self.topic, REQUEST_TIMEOUT_S)
            self._positions = dict.fromkeys(range(partitions), 0)
            self._consumer.assign([TopicPartition(self.topic, each, OFFSET_BEGINNING) for each in self._positions])
        except KafkaException as error:
            raise ConnectError(f"the topic {self.topic} cannot be read: {error.args[0].str()}") from error
        self._thread.start()
        self.read_to_end(timeout_s=None)
        return partitions

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._producer is not None:
            self._producer.flush(REQUEST_TIMEOUT_S)
        if self._consumer is not None:
            self._consumer.close()
        self._admin = self._producer = self._consumer = None  # a client ends when nothing refers to it

    def write(self, key: bytes, value: bytes | None) -> Future[None]:
        """Send a record; the result is set when it is acknowledged, or is a ConnectError."""
        done: Future[None] = Future()
        assert self._producer is not None

        def acknowledged(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(ConnectError(f"the topic {self.topic} cannot be written: {error.str()}"))

        try:
            self._producer.produce(self.topic, value, key, on_delivery=acknowledged)
        except (KafkaException, BufferError) as error:
            done.set_exception(ConnectError(f"the topic {self.topic} cannot be written: {error}"))
        return done

    def flush(self, timeout_s: float = REQUEST_TIMEOUT_S) -> bool:
        """Wait until what was sent is acknowledged or lost; return False if that takes longer."""
        assert self._producer is not None
        return bool(self._producer.flush(timeout_s) == 0)

    def read_to_end(self, timeout_s: float | None = REQUEST_TIMEOUT_S) -> None:
        """Return when everything that the topic has now was read. Raises ConnectError after `timeout_s`.

        A consumer of committed records waits for transactions that are open now and have records in the topic.
        """
        wish: Future[None] = Future()
        with self._lock:
            if self._has_ended:
                raise ConnectError(f"the topic {self.topic} was closed")
            self._wishes.append(wish)
        try:
            wish.result(timeout_s)
        except TimeoutError:
            raise ConnectError(f"the topic {self.topic} was not read to its end within {timeout_s:g} s") from None

    def _create(self, admin: AdminClient) -> int:
        """Create the topic unless it exists; return the number of its partitions."""
        give_up_s = time.monotonic() + REQUEST_TIMEOUT_S
        while time.monotonic() < give_up_s:
            # A request for this topic alone would let the broker create it, with its defaults.
            found = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.get(self.topic)
            if found is not None and found.error is None:
                self._require_compaction(admin)
                return len(found.partitions)
            try:
                admin.create_topics([self._new_topic], operation_timeout=REQUEST_TIMEOUT_S)[self.topic].result()
            except KafkaException as error:
                code = error.args[0].code()
                if code not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._TIMED_OUT):
                    raise ConnectError(
                        f"the topic {self.topic} cannot be created: {error.args[0].str()}; "
                        f"with fewer than {self._new_topic.replication_factor} brokers, set its replication factor"
                    ) from error
            time.sleep(POLL_S)
        raise ConnectError(f"the topic {self.topic} exists or was created, but the broker does not list it")

    def _require_compaction(self, admin: AdminClient) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            found = admin.describe_configs([resource])[resource].result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            logger.warning("the cleanup.policy of %s cannot be read: %s", self.topic, error.args[0].str())
            return
        policy = found["cleanup.policy"].value
        if policy != _COMPACT:
            raise ConfigError(
                f"Topic '{self.topic}' is required to have 'cleanup.policy=compact' to guarantee consistency and "
                f"durability, but found the topic currently has 'cleanup.policy={policy}'. Continuing would likely "
                f"result in eventually losing connector configurations, offsets or states."
            )

    def _run(self) -> None:
        assert self._consumer is not None
        ends: list[tuple[Future[None], dict[int, int]]] = []
        while not self._stopping.is_set():
            try:
                ends += self._new_ends()
                self._take(POLL_S if ends else IDLE_POLL_S)
            except Exception as error:
                logger.error("the topic %s cannot be read, and is tried again: %s", self.topic, error)
                self._stopping.wait(RETRY_S)
            for each in [each for each in ends if self._has_reached(each[1])]:
                ends.remove(each)
                each[0].set_result(None)
            for client in (self._admin, self._producer):
                if client is not None:
                    client.poll(0)
        with self._lock:
            self._has_ended = True
        for wish, _ in [*ends, *((wish, None) for wish in self._wishes)]:
            wish.set_exception(ConnectError(f"the topic {self.topic} was closed"))

    def _new_ends(self) -> list[tuple[Future[None], dict[int, int]]]:
        """Return for each new wish the offsets up to which it wants to be read."""
        with self._lock:
            wishes, self._wishes = self._wishes, []
        if not wishes:
            return []
        try:
            ends = self._ends()
        except KafkaException:
            with self._lock:
                self._wishes = wishes + self._wishes
            raise
        return [(wish, ends) for wish in wishes]

    def _ends(self) -> dict[int, int]:
        """Return the end of each partition. Raises KafkaException.

        The admin client asks, not the consumer: to a consumer of committed records the end is where the first open
        transaction begins, and records that were committed behind it would not be read.
        """
        assert self._admin is not None
        wanted = {TopicPartition(self.topic, each): OffsetSpec.latest() for each in self._positions}
        found = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_TIMEOUT_S
        )
        return {each.partition: end.result().offset for each, end in found.items()}

    def _take(self, timeout_s: float) -> None:
        """Read what has arrived; wait for the first record at most `timeout_s`."""
        assert self._consumer is not None
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        for message in (first, *self._consumer.consume(BATCH_SIZE, 0)):
            if (error := message.error()) is None:
                try:
                    self._on_record(message.key(), message.value(), message.offset() or 0)
                except Exception:  # a record that others wrote
                    logger.exception("a record of %s at %s is invalid, and ignored", self.topic, message.offset())
                self._positions[message.partition() or 0] = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partition = message.partition() or 0
                self._positions[partition] = max(self._positions[partition], message.offset() or 0)
            else:
                logger.warning("reading %s: %s", self.topic, error.str())

    def _has_reached(self, ends: Mapping[int, int]) -> bool:
        return all(self._positions[partition] >= end for partition, end in ends.items())
