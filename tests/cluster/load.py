"""Numbered records, and what must hold of those that were acknowledged.

Owns: a producer in a thread, reading a topic from its beginning, and the comparison of both. Must not know which
failures happen at the same time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.cluster import Cluster

FLUSH_TIMEOUT_S = 60.0
UNKNOWN = -1
READ_TIMEOUT_S = 60.0
BURST_RATE = 2_000.0
"""Records per second."""
OUTSTANDING_MAX = 5_000
"""Records without a result. On a slow machine more of them would time out in the producer's queue."""
# A request to a halted broker must not outlast the test.
PRODUCER_SETTINGS: Mapping[str, Any] = {
    "log_level": 2,  # that brokers are gone is no news
    "acks": "all",
    "linger.ms": 2,
    "batch.num.messages": 100,
    "message.timeout.ms": 60_000,
    "request.timeout.ms": 3_000,
    "socket.timeout.ms": 4_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1_000,
}
CONSUMER_SETTINGS: Mapping[str, Any] = {
    "log_level": 2,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 4_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "fetch.error.backoff.ms": 50,
    "retry.backoff.ms": 50,
}


class NumberedLoad:
    """Produces 0, 1, 2, ... as values, number `n` into partition `n % partitions`, until the end of the block."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        idempotent: bool = True,
        rate: float = 60.0,
        first: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`rate` is the approximate number of records per second outside of bursts, `first` the number to begin with.

        `settings` are further ones of the client.
        """
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """The partition and offset of each acknowledged number."""
        self.latencies_s: list[tuple[float, float]] = []
        """When each acknowledged record was sent, and the time until its acknowledgement."""
        self.errors: list[str] = []
        self.longest_gap_s = 0.0
        """The longest time between two acknowledgements."""
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._producer = Producer(
            {
                **PRODUCER_SETTINGS,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                **(settings or {}),
            }
        )
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._last_s = time.monotonic()
        self.sent = first
        """The number of the next record."""

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for(50)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.stop(kind)

    def stop(self, kind: type[BaseException] | None = None) -> None:
        """End the production; without an error `kind`, every record must be acknowledged."""
        self._is_stopped.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_TIMEOUT_S if kind is None else 1.0)
        if kind is None:
            assert left == 0, f"{left} records got no result"
            assert not self.errors, f"{len(self.errors)} records failed, as {self.errors[:3]}"

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more records have been acknowledged."""
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + timeout_s
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"only {len(self.acknowledged)} of {wanted} records are acknowledged"
            assert self._thread.is_alive()
            time.sleep(0.01)

    @contextmanager
    def burst(self) -> Iterator[None]:
        """Produce so much during the block, from its begin on, that several records wait for replicas at any moment."""
        calm, self._rate = self._rate, BURST_RATE
        try:
            self.wait_for(50)
            yield
        finally:
            self._rate = calm

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._is_stopped.is_set():
            if len(self._producer) >= OUTSTANDING_MAX:
                self._producer.poll(0.1)
                continue
            number = self.sent
            due_s += 1 / self._rate
            sent_s = time.monotonic()
            self._producer.produce(
                self._topic,
                str(number),
                partition=number % self._partitions,
                on_delivery=lambda error, message, number=number, sent_s=sent_s: self._report(
                    number, sent_s, error, message
                ),
            )
            self.sent += 1
            while not self._is_stopped.is_set():
                self._producer.poll(min(max(due_s - time.monotonic(), 0.0), 0.1))
                if time.monotonic() >= due_s:
                    break

    def _report(self, number: int, sent_s: float, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(f"{number}: {error}")
            return
        # The broker had the record already when it was sent again: then its offset is not known here.
        offset = message.offset()
        self.acknowledged[number] = (number % self._partitions, UNKNOWN if offset is None or offset < 0 else offset)
        now_s = time.monotonic()
        self.latencies_s.append((sent_s, now_s - sent_s))
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
        self._last_s = now_s


Records = dict[int, list[tuple[int, int]]]
"""The (offset, number) pairs of each partition, in order."""


def read_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    isolation: str = "read_uncommitted",
    settings: Mapping[str, Any] | None = None,
) -> Records:
    """Return all records of a topic up to its present end. `settings` are further ones of the client."""
    consumer = Consumer(
        {
            **CONSUMER_SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            **(settings or {}),
        }
    )
    try:
        # Positions and ends, because an end may move back while a new leader is elected.
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        records: Records = {index: [] for index in range(partitions)}
        at_end: set[int] = set()
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"partitions {sorted(set(range(partitions)) - at_end)} have no end"
            message = consumer.poll(0.2)  # many at a time would wait for more until the timeout
            if message is None:
                continue
            error = message.error()
            if error is None:
                records[message.partition()].append((message.offset(), int(message.value())))
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
        return records
    finally:
        consumer.close()


def assert_nothing_is_lost(acknowledged: Mapping[int, tuple[int, int]], records: Records) -> None:
    """Each acknowledged record is where its acknowledgement said."""
    assert acknowledged, "nothing was acknowledged"
    found = {(partition, offset): number for partition, pairs in records.items() for offset, number in pairs}
    numbers = {(partition, number) for partition, pairs in records.items() for _, number in pairs}
    lost = {
        number: (partition, offset)
        for number, (partition, offset) in acknowledged.items()
        if (partition, number) not in numbers or (offset != UNKNOWN and found.get((partition, offset)) != number)
    }
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged records are lost, as {list(lost.items())[:5]}"


def assert_no_duplicates(records: Records) -> None:
    counts = Counter(number for pairs in records.values() for _, number in pairs)
    repeated = [number for number, count in counts.items() if count > 1]
    assert not repeated, f"{len(repeated)} records exist twice, as {repeated[:5]}"


def assert_in_order(records: Records) -> None:
    for partition, pairs in records.items():
        numbers = [number for _, number in pairs]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"


def assert_exactly_once(load: NumberedLoad, records: Records) -> None:
    """What an idempotent producer is promised."""
    assert_nothing_is_lost(load.acknowledged, records)
    assert_no_duplicates(records)
    assert_in_order(records)


class GapLimit:
    """How long production may pause: longer by what the cluster's processes waited for a processor in this block."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._before_s = self._cluster.processor_waits_s()
        return self

    def __exit__(self, *exception: object) -> None:
        after_s = self._cluster.processor_waits_s()
        self._waited_s = sum(waited_s - self._before_s.get(pid, 0.0) for pid, waited_s in after_s.items())

    def check(self, load: NumberedLoad) -> None:
        longest = self._seconds + self._waited_s
        assert load.longest_gap_s <= longest, (
            f"no record was acknowledged for {load.longest_gap_s:.1f} s, more than {self._seconds:.1f} s and the "
            f"{self._waited_s:.1f} s for which the cluster waited for processors"
        )


def numbers_of(records: Records) -> Sequence[int]:
    """Return all numbers, sorted."""
    return sorted(number for pairs in records.values() for _, number in pairs)
