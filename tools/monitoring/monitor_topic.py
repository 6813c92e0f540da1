"""The topic of kafka-monitor: one partition for each broker, which leads it whenever it can.

Owns the requests about the topic. Must not know records.

The first replica of a partition owns it. A broker that is offline keeps its partition, so that its failure shows; when
it is back, it is elected as the leader again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.metadata import MetadataResponsePartition
from tools.admin.leader_election import elect_leaders
from tools.client.admin_client import LATEST, AdminClient, raise_for

REQUEST_TIMEOUT_MS: Final = 10_000


END: Final = -1
"""The end of a partition whose leader did not report its offset; the client library has the same value."""


class Route(NamedTuple):
    """The broker that owns a partition, and whether it leads it; and the offset of the first record of this run."""

    owner: int
    is_led_by_owner: bool
    start: int


class MonitorTopic:
    """Creates the topic, adds partitions for new brokers, and moves leaderships back."""

    def __init__(self, admin: AdminClient, name: str, replication_factor: int) -> None:
        self._admin = admin
        self._name = name
        self._replication_factor = replication_factor
        self._starts: dict[int, int] = {}

    def ensure(self) -> dict[int, Route]:
        """Bring the topic to its wanted state, and return the routes of its partitions.

        Raises KafkaError, CallTimedOut, UnreachableError.
        """
        metadata = self._admin.metadata([self._name])
        brokers = sorted(broker.node_id for broker in metadata.brokers)
        topic = metadata.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._create(brokers)
            self._starts = dict.fromkeys(range(len(brokers)), 0)
        else:
            raise_for(topic.error_code)
            if missing := without_partition(topic.partitions, brokers):
                present = len(topic.partitions)
                self._add(present, missing, brokers)
                self._starts |= {present + number: 0 for number in range(len(missing))}
            if movable := led_by_others(topic.partitions):
                # An error of one partition needs no reaction: the next call tries again.
                elect_leaders(self._admin, "preferred", [(self._name, partition) for partition in movable])
        return {
            it.partition_index: Route(it.replica_nodes[0], it.leader_id == it.replica_nodes[0], self._start(it))
            for it in self._admin.metadata([self._name]).topics[0].partitions
            if it.replica_nodes
        }

    def _start(self, partition: MetadataResponsePartition) -> int:
        """Return where this run's records begin: at the end of the partition when it was first seen."""
        key = (self._name, partition.partition_index)
        if partition.partition_index not in self._starts:
            try:
                found = self._admin.list_offsets_once({key: LATEST}, broker_id=partition.leader_id)[key]
            except (OSError, Malformed, KafkaError):
                found = END
            self._starts[partition.partition_index] = END if isinstance(found, KafkaError) else found
        return self._starts[partition.partition_index]

    def _create(self, brokers: Sequence[int]) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=self._replicas(broker, brokers))
            for index, broker in enumerate(brokers)
        ]
        topic = CreatableTopic(
            name=self._name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        (result,) = self._admin.call_controller(
            request, CreateTopicsResponse, lambda response: [it.error_code for it in response.topics]
        ).topics
        raise_for(result.error_code, result.error_message)

    def _add(self, present: int, missing: Sequence[int], brokers: Sequence[int]) -> None:
        topic = CreatePartitionsTopic(
            name=self._name,
            count=present + len(missing),
            assignments=[CreatePartitionsAssignment(broker_ids=self._replicas(it, brokers)) for it in missing],
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=False)
        (result,) = self._admin.call_controller(
            request, CreatePartitionsResponse, lambda response: [it.error_code for it in response.results]
        ).results
        raise_for(result.error_code, result.error_message)

    def _replicas(self, first: int, brokers: Sequence[int]) -> list[int]:
        """Return the replicas of a partition, its preferred leader first."""
        start = brokers.index(first)
        size = min(self._replication_factor, len(brokers))
        return [brokers[(start + step) % len(brokers)] for step in range(size)]


def without_partition(partitions: Iterable[MetadataResponsePartition], brokers: Iterable[int]) -> list[int]:
    """Return the brokers that own no partition."""
    owners = {it.replica_nodes[0] for it in partitions if it.replica_nodes}
    return [broker for broker in brokers if broker not in owners]


def led_by_others(partitions: Iterable[MetadataResponsePartition]) -> list[int]:
    """Return the partitions whose owner is in sync and does not lead."""
    return [
        it.partition_index
        for it in partitions
        if it.replica_nodes
        and it.leader_id != it.replica_nodes[0]
        and it.replica_nodes[0] in it.isr_nodes
        and it.replica_nodes[0] not in it.offline_replicas
    ]
