"""A member of a consumer group in a thread, which commits what it has read.

Owns: consuming, committing, and noticing an assignment that begins below what was committed. Must not know which
failures happen at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cluster.load import CONSUMER_SETTINGS
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
CONSUMED = "acknowledged records are consumed"


class GroupReader:
    """A member of a group in a thread: consumes and commits synchronously until the end of the block."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.numbers: list[int] = []
        self.committed: dict[int, int] = {}
        """The highest offset by partition whose commit succeeded."""
        self.went_back: list[str] = []
        """Assignments that begin below an offset that this member has committed."""
        self._topic = topic
        self._consumer = Consumer(
            {
                **CONSUMER_SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_stopped.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Wait for so many more records."""
        wanted, deadline = len(self.numbers) + count, time.monotonic() + DEADLINE_S
        while len(self.numbers) < wanted:
            assert time.monotonic() < deadline, f"only {len(self.numbers)} of {wanted} records were consumed"
            time.sleep(0.01)

    def wait_for_all(self, numbers: Collection[int]) -> None:
        """Wait until each of these has been consumed."""
        wait_until(lambda: {*self.numbers}.issuperset(numbers), CONSUMED, timeout_s=DEADLINE_S, interval_s=0.05)

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        try:
            while not self._is_stopped.is_set():
                messages = [it for it in self._consumer.consume(100, 0.1) if it.error() is None]
                for message in messages:
                    self._check_position(message.partition(), message.offset())
                    self.numbers.append(int(message.value()))
                if messages:
                    self._commit({it.partition(): it.offset() + 1 for it in messages})
        finally:
            self._consumer.close()

    def _check_position(self, partition: int, offset: int) -> None:
        if offset < self.committed.get(partition, 0):
            self.went_back.append(f"offset {offset} of partition {partition} after {self.committed[partition]}")

    def _commit(self, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # it is not known whether the coordinator has stored it; the next commit is higher
        self.committed.update(positions)
