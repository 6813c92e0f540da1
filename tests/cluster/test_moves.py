"""Moves of a partition whose controller, source and target are killed in each phase, while a producer writes to it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena_broker.testing import ClusterBroker, ProcessCluster
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.metadata import MetadataResponsePartition
from tests.cluster.load import NumberedLoad, assert_exactly_once, read_topic
from tools.admin import reassign_partitions
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.bootstrap import Endpoint

TOPIC = "moved"
PATIENCE_S = 30.0
POLL_S = 0.1
FILL = [str(-number).rjust(50_000) for number in range(30, 0, -1)]
"""So many bytes that a move takes a minute at RATE: a phase lasts until the test has killed a broker in it."""
RATE, UNLIMITED = 20_000, 1_000_000_000
THROTTLED = ("--throttle", str(RATE))
SETTINGS = {
    "replica.fetch.max.bytes": 60_000,
    "replica.fetch.backoff.ms": 100,
    "default.replication.factor": 2,
    "auto.leader.rebalance.enable": False,
}
PHASES = ("begun", "copying", "complete")
ROLES = ("controller", "source", "target")


class MovedPartition:
    """The only partition of a topic in a cluster of three brokers, and its moves between them."""

    def __init__(self, cluster: ProcessCluster, folder: Path, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._plan = folder / f"{topic}.json"
        self._topic = topic

    def admin(self) -> AdminClient:
        running = [self._cluster.broker(number) for number in range(3) if self._cluster.broker(number).is_running]
        endpoints = [Endpoint("127.0.0.1", broker.port) for broker in running]
        return AdminClient(endpoints, timeout_ms=5000, request_timeout_ms=2000)

    @property
    def state(self) -> MetadataResponsePartition:
        """The partition, as soon as a broker knows it: one that was just started may not yet."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            with self.admin() as client:
                (topic,) = client.metadata([self._topic]).topics
            if topic.partitions:
                return topic.partitions[0]
            assert time.monotonic() < deadline_s, f"nobody knows the partition: {topic}"
            time.sleep(POLL_S)

    @property
    def controller(self) -> int:
        with self.admin() as client:
            return client.metadata([]).controller_id

    @property
    def is_moving(self) -> bool:
        with self.admin() as client:
            response = client.call_controller(
                ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, lambda it: [it.error_code]
            )
        return self._topic in {topic.name for topic in response.topics}

    def tool(self, *arguments: str) -> None:
        """Run kafka-reassign-partitions with the plan."""
        bootstrap = ("--bootstrap-server", self._cluster.bootstrap_servers)
        status = reassign_partitions.main([*bootstrap, *arguments, "--reassignment-json-file", str(self._plan)])
        assert status == 0

    def move(self, replicas: list[int], *options: str) -> None:
        partition = {"topic": self._topic, "partition": 0, "replicas": replicas}
        self._plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        self.tool("--execute", *options)

    def no_longer_throttled(self) -> None:
        self.tool("--execute", "--additional", "--throttle", str(UNLIMITED))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                if condition():
                    return
            except (OSError, CallTimedOut):
                pass
            assert time.monotonic() < deadline_s, f"it is not so that {what}: {self.state}, moving: {self.is_moving}"
            time.sleep(POLL_S)

    def wait_until_in_sync(self, replicas: list[int]) -> None:
        self.wait_until(
            lambda: self.state.replica_nodes == replicas and sorted(self.state.isr_nodes) == sorted(replicas),
            f"the replicas are {replicas}, and in sync",
        )

    def log(self, broker_id: int) -> bytes:
        """Return the content of a replica's segments."""
        folder = self._cluster.folder / f"data-{broker_id}" / f"{self._topic}-0"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


@pytest.fixture
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(3, SETTINGS) as started:
        yield started


def fill(cluster: ProcessCluster) -> None:
    cluster.create_topic(TOPIC, replication_factor=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "batch.num.messages": 1})
    for value in FILL:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def kill_during(partition: MovedPartition, cluster: ProcessCluster, phase: str, role: str) -> ClusterBroker:
    """Begin a move to the broker that has no replica, kill the broker with this role, and return it."""
    state = partition.state
    source = state.leader_id
    (target,) = {0, 1, 2} - set(state.replica_nodes)
    partition.move([target, *(it for it in state.replica_nodes if it != source)], *THROTTLED)
    if phase == "copying":
        partition.wait_until(lambda: bool(partition.log(target)), "the target has some records")
    elif phase == "complete":
        partition.no_longer_throttled()
        partition.wait_until(lambda: target in partition.state.isr_nodes, "the target is in sync")
    killed = cluster.broker({"controller": partition.controller, "source": source, "target": target}[role])
    if phase != "complete":
        assert partition.is_moving
        assert target not in partition.state.isr_nodes
    killed.kill()
    return killed


def move_beside(cluster: ProcessCluster, folder: Path, brokers: list[int]) -> None:
    """Move another topic between brokers that live: a move whose target is dead holds up only its own partition."""
    cluster.create_topic("beside", replication_factor=1)
    beside = MovedPartition(cluster, folder, "beside")
    beside.move([it for it in brokers if it != beside.state.leader_id], "--additional")  # no throttle reaches the dead
    beside.wait_until(lambda: not beside.is_moving, "the other move is complete")


def test_acknowledged_records_survive_deaths_in_each_phase_of_moves(
    cluster: ProcessCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = MovedPartition(cluster, tmp_path)
    fill(cluster)
    with NumberedLoad(cluster.bootstrap_servers, TOPIC, 1) as load:
        for phase, role in product(PHASES, ROLES):
            expected = partition.state.replica_nodes
            killed = kill_during(partition, cluster, phase, role)
            load.wait_for(20)
            killed.restart()
            if partition.is_moving:
                partition.no_longer_throttled()
            partition.wait_until(lambda: not partition.is_moving, f"the move ends after the death of the {role}")
            partition.tool("--verify")
            after = partition.state.replica_nodes
            assert len(after) == len(expected)
            assert after != expected
            partition.wait_until_in_sync(after)

        # A target that does not come back: the operator cancels the move.
        before = partition.state.replica_nodes
        killed = kill_during(partition, cluster, "copying", "target")
        assert partition.is_moving
        # Before the controller knows, it may give the dead broker a new topic.
        partition.wait_until(lambda: killed.broker_id in partition.state.offline_replicas, "the death is known")
        move_beside(cluster, tmp_path, [it for it in range(3) if it != killed.broker_id])
        partition.tool("--cancel", "--preserve-throttles")
        assert f"Successfully cancelled partition reassignment for: {TOPIC}-0\n" in capsys.readouterr().out
        partition.wait_until(lambda: not partition.is_moving, "the move is cancelled")
        assert sorted(partition.state.replica_nodes) == sorted(before)
        load.wait_for(20)
        # It comes back later, with what it has copied: another move continues from there.
        killed.restart()
        replicas = [killed.broker_id, before[0]]
        partition.move(replicas, *THROTTLED)
        partition.no_longer_throttled()
        partition.wait_until_in_sync(replicas)
        load.wait_for(20)
    assert re.search(rf"/{TOPIC}-0, topic id .* is kept but not served", killed.log.read_text())
    partition.wait_until(lambda: len({partition.log(it) for it in replicas}) == 1, "the replicas are equal")
    records = read_topic(cluster.bootstrap_servers, TOPIC, 1)
    assert_exactly_once(load, records)
    assert [number for _, number in records[0][: len(FILL)]] == [*range(-len(FILL), 0)]
