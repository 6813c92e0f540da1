"""Consumer groups while brokers fail: positions are kept, and every record is consumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from protocol.errors import KafkaError
from tests.cluster.conftest import PARTITIONS
from tests.cluster.load import CONSUMER_SETTINGS, NumberedLoad, read_topic
from tests.support.cluster import Cluster
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import Endpoint

DEADLINE_S = 60.0
DUPLICATES_MAX = 1_000
"""Of a rolling restart of consumers (RV-6)."""
OFFSETS_TOPIC = "__consumer_offsets"


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


def coordinator(cluster: Cluster, group: str) -> int:
    """Return the id of the group's coordinator: the leader of its partition of the offsets topic."""
    endpoints = [Endpoint("127.0.0.1", cluster.brokers[broker_id].port) for broker_id in cluster.running]
    with AdminClient(endpoints) as client:
        return client.coordinator(group)


def wait_for_another_coordinator(cluster: Cluster, group: str, broker_id: int) -> None:
    """Wait until the group has another coordinator: records that the reader had fetched before prove nothing."""

    def has_moved() -> bool:
        try:
            return coordinator(cluster, group) != broker_id
        except KafkaError:  # none is available yet
            return False

    cluster.wait_until(has_moved, f"another broker than {broker_id} coordinates {group}")


def kill_the_coordinator(cluster: Cluster, group: str, reader: GroupReader) -> None:
    broker_id = coordinator(cluster, group)
    cluster.kill(broker_id)
    reader.wait_for(100)
    wait_for_another_coordinator(cluster, group, broker_id)
    cluster.start(broker_id)


def halt_the_coordinator(cluster: Cluster, group: str, reader: GroupReader) -> None:
    broker_id = coordinator(cluster, group)
    with cluster.halted(broker_id):
        reader.wait_for(100)
        wait_for_another_coordinator(cluster, group, broker_id)


def stop_the_coordinator(cluster: Cluster, group: str, reader: GroupReader) -> None:
    cluster.restart(coordinator(cluster, group))


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(kill_the_coordinator, id="coordinator-killed"),
        pytest.param(halt_the_coordinator, id="coordinator-halted"),
        pytest.param(stop_the_coordinator, id="coordinator-stopped"),
    ],
)
def test_positions_are_kept_and_everything_is_consumed(
    cluster: Cluster, topic: str, group: str, failure: Callable[[Cluster, str, GroupReader], None]
) -> None:
    with GroupReader(cluster.bootstrap, group, topic) as reader:
        with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
            reader.wait_for(50)
            failure(cluster, group, reader)
            cluster.heal(topic, OFFSETS_TOPIC)
            reader.wait_for(50)
        deadline = time.monotonic() + DEADLINE_S
        while not set(reader.numbers) >= load.acknowledged.keys():
            assert time.monotonic() < deadline, "acknowledged records were not consumed"
            time.sleep(0.05)
    assert reader.went_back == []
    assert committed_offsets(cluster, group, topic) == {
        partition: len(pairs) for partition, pairs in read_topic(cluster.bootstrap, topic, PARTITIONS).items()
    }


def test_rolled_producers_and_consumers_lose_nothing(cluster: Cluster, topic: str, group: str) -> None:
    """Each of two members, and the producer, are replaced by others one after another, under load."""
    running, left = [GroupReader(cluster.bootstrap, group, topic) for _ in range(2)], []
    acknowledged: dict[int, tuple[int, int]] = {}
    with ExitStack() as stack:
        for reader in running:
            stack.enter_context(reader)
        for _ in range(2):
            with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, first=len(acknowledged)) as load:
                leaving = running.pop(0)
                leaving.__exit__()
                left.append(leaving)
                running.append(stack.enter_context(GroupReader(cluster.bootstrap, group, topic)))
                running[-1].wait_for(20)
            acknowledged |= load.acknowledged
        deadline = time.monotonic() + DEADLINE_S
        while not {number for it in (*left, *running) for number in it.numbers} >= acknowledged.keys():
            assert time.monotonic() < deadline, "acknowledged records were not consumed"
            time.sleep(0.05)
    numbers = [number for it in (*left, *running) for number in it.numbers]
    assert set(numbers) == acknowledged.keys()
    assert len(numbers) - len(acknowledged) <= DUPLICATES_MAX
    assert not [text for it in (*left, *running) for text in it.went_back]


def committed_offsets(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({**CONSUMER_SETTINGS, "bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        # A partition without a commit has a negative offset.
        return {found.partition: max(found.offset, 0) for found in consumer.committed(wanted, timeout=DEADLINE_S)}
    finally:
        consumer.close()
