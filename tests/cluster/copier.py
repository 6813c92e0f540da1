"""A program that copies a topic in transactions, and its supervisor, which starts it again when it fails.

Owns: the copying, which contains the positions of the input, and what a supervisor of such a program does: it ends one
that shows no progress, and starts one that has ended. Must not know which failures happen at the same time.

It is a program of its own because calls of librdkafka may never return, whatever their timeout: a producer of 2.16 that
knows a coordinator which has left the cluster waits for it in `send_offsets_to_transaction` or when it is destroyed
(librdkafka #5456 and #5511). A process can be ended from outside.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.load import CONSUMER_SETTINGS, PRODUCER_SETTINGS

BATCH = 40
CALL_TIMEOUT_S = 10.0
"""For one call of the client library."""
STALL_S = 2 * CALL_TIMEOUT_S
"""A program that reports nothing for so long hangs: it reports after each call."""
DEADLINE_S = 90.0
TRANSACTION_TIMEOUT_MS = 10_000


class Copier:
    """The supervisor. The program copies only as much as it is told to, until the end of the block."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, partitions: int) -> None:
        """`group` is also the transactional id."""
        self.copied = 0
        """The number of records that are committed; those of the source have consecutive offsets."""
        self.starts = 0
        self._arguments = [bootstrap, source, target, group, str(partitions)]
        self._wanted = 0
        self._process: subprocess.Popen[str] | None = None
        self._follower = threading.Thread()
        self._reported_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def run(self, count: int) -> None:
        """Copy until `count` records are committed in all."""
        self._wanted = count
        if self._process is not None:
            self._tell(self._process)
        deadline = time.monotonic() + DEADLINE_S
        while self.copied < count:
            now_s = time.monotonic()
            assert now_s < deadline, f"only {self.copied} of {count} records were copied in {self.starts} starts"
            if self._process is None or self._process.poll() is not None or now_s > self._reported_s + STALL_S:
                self._end()
                self._start()
            time.sleep(0.01)

    def _start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-P", "-m", "tests.cluster.copier", *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._reported_s = time.monotonic()
        self._follower = threading.Thread(target=self._follow, args=(self._process,))
        self._follower.start()
        self._tell(self._process)

    def _tell(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(f"{self._wanted}\n")
        except BrokenPipeError:
            return  # it has ended, and is told again when it has been started again

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._reported_s = time.monotonic()
            self.copied = max(self.copied, int(line))

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._follower.join()
            self._process.communicate()
            self._process = None


class _Copying:
    """The program's side: one consumer, and one producer that fences the one of an earlier process."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, partitions: int) -> None:
        self.copied = 0
        self._positions: dict[int, int] = {}
        """The positions of the input that are committed."""
        self._target = target
        self._consumer = Consumer(
            {
                **CONSUMER_SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer(
            {
                **PRODUCER_SETTINGS,
                "bootstrap.servers": bootstrap,
                "transactional.id": group,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        self._producer.init_transactions(CALL_TIMEOUT_S)
        self._report()
        wanted = [TopicPartition(source, partition) for partition in range(partitions)]
        committed = self._consumer.committed(wanted, timeout=CALL_TIMEOUT_S)
        for found in committed:
            found.offset = max(found.offset, 0)
        self._consumer.assign(committed)
        self._positions.update({found.partition: found.offset for found in committed})
        self._report()

    def run(self, count: int) -> None:
        """Copy until `count` records are committed, by this process and those before it."""
        while self.copied < count:
            messages = self._polled()
            if messages:
                self._copy(messages)
            self._report()

    def _copy(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(self._target, message.value(), partition=message.partition())
        positions = self._consumer.position(self._consumer.assignment())
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, group, CALL_TIMEOUT_S)
        self._report()
        self._producer.commit_transaction(CALL_TIMEOUT_S)
        self._positions.update({message.partition(): message.offset() + 1 for message in messages})

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

    def _report(self) -> None:
        self.copied = sum(self._positions.values())
        print(self.copied, flush=True)


def main(bootstrap: str, source: str, target: str, group: str, partitions: str) -> None:
    try:
        copying = _Copying(bootstrap, source, target, group, int(partitions))
        for line in sys.stdin:
            copying.run(int(line))
    except KafkaException as error:
        print(f"the copier begins again: {error}", file=sys.stderr, flush=True)
    os._exit(0)  # a client that is destroyed may wait for ever


if __name__ == "__main__":
    main(*sys.argv[1:])
