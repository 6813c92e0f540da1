"""The records of kafka-monitor: one thread sends them, another one reads them back.

Owns the form of a record and both clients of the library. Must not know what the figures mean, or who leads what.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import count
from queue import SimpleQueue
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as LibraryPartition

from tools.monitoring.monitor_probe import Probe
from tools.monitoring.monitor_topic import Route

POLL_S: Final = 0.2
FLUSH_S: Final = 2.0


class Sender:
    """Sends a record to each partition. Belongs to one thread, except for `assign`."""

    def __init__(
        self, producer: Producer, topic: str, probe: Probe, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.routes: Mapping[int, Route] = {}
        self._producer = producer
        self._topic = topic
        self._probe = probe
        self._clock = clock
        self._numbers = count()

    def assign(self, routes: Mapping[int, Route]) -> None:
        """Send to these partitions from the next round on. In any thread."""
        self.routes = routes

    def run(self, stopped: threading.Event, interval_s: float) -> None:
        """Send records at each interval until `stopped`."""
        while not stopped.is_set():
            due_s = self._clock() + interval_s
            self.step()
            stopped.wait(max(due_s - self._clock(), 0))
        self._producer.flush(FLUSH_S)

    def step(self) -> None:
        """Send a record to each partition, and note what became of earlier ones."""
        for partition, route in self.routes.items():
            self._send(partition, route)
        self._producer.poll(0)
        self._probe.expire(self._clock())

    def _send(self, partition: int, route: Route) -> None:
        """Send one record. What another broker stores does not count for the owner of the partition."""
        number, sent_s = next(self._numbers), self._clock()

        def done(error: object, message: Message | None) -> None:
            is_acknowledged = error is None and route.is_led_by_owner
            self._probe.sent(route.owner, number, sent_s, self._clock(), is_acknowledged=is_acknowledged)

        broker = route.owner if route.is_led_by_owner else None
        value = json.dumps({"number": number, "broker": broker, "sent_s": sent_s})
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=done)
        except (BufferError, KafkaException) as error:
            done(error, None)


class Receiver:
    """Reads records back. All calls of its consumer are made in the thread of `run`: they block each other."""

    def __init__(
        self, consumer: Consumer, topic: str, probe: Probe, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._probe = probe
        self._clock = clock
        self._wanted: SimpleQueue[Mapping[int, Route]] = SimpleQueue()
        self._assigned: set[int] = set()

    def assign(self, routes: Mapping[int, Route]) -> None:
        """Read these partitions too, from their starts. May be called from any thread; never blocks."""
        self._wanted.put(routes)

    def run(self, stopped: threading.Event) -> None:
        """Read until `stopped`, and close the consumer."""
        with closing(self._consumer):
            while not stopped.is_set():
                self.step()

    def step(self) -> None:
        """Read one record, if one comes within `POLL_S`."""
        self._assign_new()
        message = self._consumer.poll(POLL_S)
        if message is not None and message.error() is None and (record := read_record(message.value())) is not None:
            self._probe.received(*record, self._clock())

    def _assign_new(self) -> None:
        while not self._wanted.empty():
            new = {each: route for each, route in self._wanted.get().items() if each not in self._assigned}
            if new:
                partitions = [LibraryPartition(self._topic, each, route.start) for each, route in new.items()]
                self._consumer.incremental_assign(partitions)
                self._assigned |= new.keys()


def read_record(value: bytes | None) -> tuple[int, int, float] | None:
    """Return broker, number and time of a record that counts for a broker, None for others."""
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(found, Mapping):
        return None
    broker, number, sent_s = found.get("broker"), found.get("number"), found.get("sent_s")
    if isinstance(broker, int) and isinstance(number, int) and isinstance(sent_s, float):
        return broker, number, sent_s
    return None
