"""Consumers of 0.8 that share partitions and keep their positions by ZooKeeper, here the coordination server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.interop.conftest import JAVA_PROGRAMS, RunJava, create_topic
from tests.support.apache_kafka import client_command
from tests.support.broker import BrokerProcess
from tests.support.coordination import coordination_in_memory
from tests.support.parts import skip_when_unavailable
from tests.support.waiting import wait_until

OLDEST = "0.8.2.2"
TOPIC, GROUP, PARTITIONS = "shared-by-age", "old-group", 4
KINDS, COUNT_EACH = 4, 10
AT_ONCE = KINDS * COUNT_EACH
PATIENCE_S = 60.0

until = partial(wait_until, timeout_s=PATIENCE_S)


class Reader:
    """A high-level consumer in a JVM of its own, which the test may kill."""

    def __init__(self, connect: str, storage: str, last: int) -> None:
        arguments = ("read", connect, TOPIC, GROUP, storage, str(last))
        command = client_command(OLDEST, JAVA_PROGRAMS / "HighLevelConsumer.java", *arguments)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.read: list[tuple[int, int]] = []
        """Partition and number of each record."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            partition, number = line.split()
            self.read.append((int(partition), int(number)))

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in list(self.read)]

    def end(self) -> None:
        self.process.kill()
        self._thread.join()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker, and the value of `zookeeper.connect`."""
    with (
        coordination_in_memory() as coordination,
        BrokerProcess(tmp_path, {"zookeeper.connect": coordination.connect}) as broker,
    ):
        yield broker, coordination.connect


def test_two_consumers_share_partitions_one_is_killed_and_the_other_continues(
    served: tuple[BrokerProcess, str], run_java: RunJava
) -> None:
    broker, connect = served
    create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)

    def write(first: int) -> None:
        run_java("HighLevelConsumer", "write", broker.bootstrap, TOPIC, first, COUNT_EACH, version=OLDEST)

    client = KazooClient(connect)
    client.start()
    owners = f"/consumers/{GROUP}/owners/{TOPIC}"
    write(0)
    never = 1_000_000
    with skip_when_unavailable():
        killed, other = Reader(connect, "zookeeper", never), Reader(connect, "zookeeper", never)
    try:

        def owning() -> int:
            """Return how many consumers own the partitions, 0 while some have no owner."""
            try:
                found = [client.get(f"{owners}/{it}")[0].rpartition(b"-")[0] for it in client.get_children(owners)]
            except NoNodeError:
                return 0
            return len(set(found)) if len(found) == PARTITIONS else 0

        def stored() -> int:
            """Return the sum of the positions; 0 while one is missing."""
            try:
                return sum(int(client.get(f"/consumers/{GROUP}/offsets/{TOPIC}/{it}")[0]) for it in range(PARTITIONS))
            except NoNodeError:
                return 0

        until(lambda: owning() == 2, "both own partitions")
        write(AT_ONCE)
        until(lambda: {*killed.numbers, *other.numbers} == {*range(2 * AT_ONCE)}, "both read everything")
        assert {partition for partition, number in killed.read if number >= AT_ONCE}.isdisjoint(
            partition for partition, number in other.read if number >= AT_ONCE
        )
        assert len(client.get_children(f"/consumers/{GROUP}/ids")) == 2
        killed.end()
        until(lambda: owning() == 1, "the other owns all")
        write(2 * AT_ONCE)
        until(lambda: {*other.numbers} >= {*range(2 * AT_ONCE, 3 * AT_ONCE)}, "the other reads the rest")
        until(lambda: stored() == 3 * AT_ONCE, "the positions are stored")
    finally:
        for reader in (killed, other):
            reader.end()

    # The positions move to the broker, and are kept in both places at first.
    until(lambda: not client.get_children(f"/consumers/{GROUP}/ids"), "the killed consumers are gone")
    write(3 * AT_ONCE)
    moved = Reader(connect, "kafka", never)
    try:
        until(lambda: {*moved.numbers} >= {*range(3 * AT_ONCE, 4 * AT_ONCE)}, "it reads what is new")
        assert {*moved.numbers} == {*range(3 * AT_ONCE, 4 * AT_ONCE)}, "it continues from ZooKeeper's positions"

        def committed() -> int:
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
            found = consumer.committed([TopicPartition(TOPIC, it) for it in range(PARTITIONS)], PATIENCE_S)
            consumer.close()
            return sum(max(it.offset, 0) for it in found)

        until(lambda: committed() == 4 * AT_ONCE, "the broker has the positions")
    finally:
        moved.end()
    client.stop()
    client.close()
