"""A cluster of three brokers under load: its topics, leaders and CPU time, and a client that retries immediately.

Owns: requests to the right brokers, and the measurement over all of them. Must not know which server is measured, or
any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Self

from bench import machine
from bench.client import ProduceStream, Section, closed_loop
from bench.frames import Batch
from bench.measures import Values
from bench.processes import cpu_seconds
from bench.scale import Scale
from bench.subject import Load, closing_all
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.schema import ZERO_UUID
from tests.support.cluster import Cluster
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.bootstrap import Endpoint

ALL_REPLICAS = -1
TIMEOUT_MS = 60_000
REQUEST_TIMEOUT_MS = 1_000
POLL_S = 0.005
DEADLINE_S = 120.0
SESSION_TIMEOUT_S = 6.0
# Kafka's defaults, where the tests of clusters have shorter times. Sessions of 18 s would only make the cases longer.
SETTINGS: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.wait.max.ms": "500",
    "controlled.shutdown.retry.backoff.ms": "5000",
}


class ClusterSubject:
    """A running cluster as the cases see it."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.admin = AdminClient(
            [Endpoint("127.0.0.1", broker.port) for broker in cluster.brokers.values()], timeout_ms=TIMEOUT_MS
        )
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the connections to the cluster, which continues to run."""
        self.admin.__exit__(*exception)

    @contextmanager
    def topic(self, assignments: Sequence[Sequence[int]]) -> Iterator[str]:
        """Yield a new topic with these replicas, whose first ones lead; deletes it afterwards."""
        name = f"bench-{next(self._numbers)}"
        self.create(name, assignments)
        self.wait_until(lambda: self._is_in_sync(name, len(assignments)), f"all replicas of {name} are in sync")
        yield name
        self.cluster.heal()
        topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID)]
        request = DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=TIMEOUT_MS)
        self.admin.call_controller(request, DeleteTopicsResponse, lambda response: [response.responses[0].error_code])

    def create(self, name: str, assignments: Sequence[Sequence[int]]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignments)
            ],
            configs=[],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = self.admin.call_controller(
            request, CreateTopicsResponse, lambda response: [response.topics[0].error_code]
        )
        result = response.topics[0]
        if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # the name is new: a repeated request finds its topic
            raise_for(result.error_code, result.error_message)

    def reassign(self, topic: str, replicas: Sequence[int], partitions: int = 1) -> None:
        """Begin to move the first partitions to the same brokers."""
        moved = [ReassignablePartition(partition_index=it, replicas=list(replicas)) for it in range(partitions)]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=moved)]
        )
        response = self.admin.call_controller(
            request, AlterPartitionReassignmentsResponse, lambda response: [response.error_code]
        )
        raise_for(response.error_code, response.error_message)

    def has_moves(self) -> bool:
        """Return whether partitions are being reassigned."""
        response = self.admin.call_controller(
            ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, lambda it: [it.error_code]
        )
        return bool(response.topics)

    def high_watermark(self, topic: str, broker_id: int) -> int:
        """Return the high watermark of partition 0 that a replica knows, the leader's or a follower's."""
        (found,) = self.admin.metadata([topic]).topics
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, topic_id=found.topic_id, partitions=[wanted])]
        )
        response = self.admin.call_once(request, FetchResponse, broker_id=broker_id)
        high_watermark: int = response.responses[0].partitions[0].high_watermark
        return high_watermark

    def port_of(self, broker_id: int) -> int:
        return self.cluster.brokers[broker_id].port

    def cpu_seconds(self, *broker_ids: int) -> float:
        """Return the CPU time of some brokers so far, or of all."""
        return sum(cpu_seconds(self.cluster.brokers[it].pid) for it in broker_ids or self.cluster.brokers)

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        """Return the in-sync replicas of a partition."""
        return set(self.cluster.partitions(topic)[partition][2])

    def wait_until(self, condition: Callable[[], bool], what: str) -> float:
        """Return the time at which a condition holds. Raises RuntimeError."""
        deadline = time.perf_counter() + DEADLINE_S
        while True:
            try:
                if condition():
                    return time.perf_counter()
            except (OSError, CallTimedOut, ValueError):
                pass
            if time.perf_counter() > deadline:
                raise RuntimeError(f"after {DEADLINE_S:g} s it is not so that {what}")
            time.sleep(POLL_S)

    def measured_for_a_time(self, streams: Sequence[ProduceStream], scale: Scale) -> Load:
        closed_loop(streams, seconds=scale.lead_in_s)
        machine.settle()
        return self._measured(lambda: closed_loop(streams, seconds=scale.section_s))

    def measured_in_bulk(self, streams: Sequence[ProduceStream], scale: Scale, size: int) -> list[Load]:
        """Measure the scale's bytes, which each broker writes, in its number of sections."""
        closed_loop(streams, seconds=scale.lead_in_s)
        requests = scale.bulk_bytes // scale.bulk_sections // size
        return [self._section_in_bulk(streams, requests, size) for _ in range(scale.bulk_sections)]

    def _section_in_bulk(self, streams: Sequence[ProduceStream], requests: int, size: int) -> Load:
        machine.settle(requests * size * len(self.cluster.brokers), size)
        return self._measured(lambda: closed_loop(streams, requests=requests))

    def _measured(self, run: Callable[[], Section]) -> Load:
        cpu = self.cpu_seconds()
        section = run()
        return Load(section, self.cpu_seconds() - cpu)

    @contextmanager
    def producers(
        self, topic: str, leaders: Sequence[int], batch: Batch, in_flight: int
    ) -> Iterator[list[ProduceStream]]:
        """Yield one connection to the leader of each partition, with acks=all."""
        streams = [
            ProduceStream(self.port_of(leader), topic, partition, batch, in_flight, ALL_REPLICAS)
            for partition, leader in enumerate(leaders)
        ]
        with closing_all(streams):
            yield streams

    def _is_in_sync(self, topic: str, partition_count: int) -> bool:
        """Return whether each broker knows all partitions as complete: it learns first which of them it leads."""
        views = (self.cluster.partitions(topic, [broker_id]) for broker_id in self.cluster.running)
        return all(
            len(view) == partition_count
            and all(leader in replicas and len(isr) == len(replicas) for leader, replicas, isr in view.values())
            for view in views
        )


class RetryingProducer:
    """Sends one batch to each partition of a topic, again and again, and retries without a pause.

    Metadata is read anew after every failure.
    """

    def __init__(self, subject: ClusterSubject, topic: str, partitions: int, batch: Batch) -> None:
        self._endpoints = [Endpoint("127.0.0.1", broker.port) for broker in subject.cluster.brokers.values()]
        self._topic = topic
        self._batch = batch
        now = time.perf_counter()
        self.acknowledged_at = dict.fromkeys(range(partitions), now)
        """The time of each partition's last acknowledgement."""
        self.longest_gap_s = 0.0
        self._client: AdminClient | None = None

    def forget_gaps(self) -> None:
        """Measure the longest gap from now on."""
        self.longest_gap_s = 0.0

    def round(self, partitions: Sequence[int] | None = None) -> None:
        """Send to each partition once, or to those given, and wait for the results."""
        wanted = list(self.acknowledged_at if partitions is None else partitions)
        try:
            client = self._connected()
            by_leader: dict[int, list[int]] = {}
            for (_, partition), leader in client.leaders([(self._topic, it) for it in wanted]).items():
                if not isinstance(leader, KafkaError):
                    by_leader.setdefault(leader, []).append(partition)
            for leader, led in by_leader.items():
                self._send(client, leader, led)
        except (OSError, Malformed, KafkaError):
            self.close()

    def until_all_acknowledged_since(self, moment: float) -> float:
        """Send until every partition has acknowledged a batch after a moment; return the time of the last."""
        deadline = time.perf_counter() + DEADLINE_S
        while missing := [it for it, at in self.acknowledged_at.items() if at <= moment]:
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{len(missing)} partitions acknowledge nothing after {DEADLINE_S:g} s")
            self.round(missing)
        return max(self.acknowledged_at.values())

    def close(self) -> None:
        if self._client is not None:
            self._client.__exit__()
            self._client = None

    def _connected(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._endpoints, timeout_ms=REQUEST_TIMEOUT_MS)
        return self._client

    def _send(self, client: AdminClient, leader: int, partitions: Sequence[int]) -> None:
        data = [PartitionProduceData(index=partition, records=self._batch.data) for partition in partitions]
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        response = client.call_once(request, ProduceResponse, broker_id=leader)
        now = time.perf_counter()
        for result in response.responses[0].partition_responses:
            if result.error_code == ErrorCode.NONE:
                self.longest_gap_s = max(self.longest_gap_s, now - self.acknowledged_at[result.index])
                self.acknowledged_at[result.index] = now


def share_of_core(cpu_s: float, wall_s: float) -> float:
    return 100 * cpu_s / wall_s


def cpu_of_idle(subject: ClusterSubject, seconds: float) -> Values:
    """Return the share of a core that the brokers use together while nothing is asked of them."""
    cpu, begin = subject.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    return {"idle CPU": share_of_core(subject.cpu_seconds() - cpu, time.perf_counter() - begin)}
