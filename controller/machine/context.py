"""The active controller's view of the cluster, in memory.

Owns this state and the queries on it. Every state change goes through `move_partition` and `move_replica`, which reject
transitions that the tables do not allow. Must not know the store, the brokers' connections or time. Queries that visit
all partitions pause.

`leaderships` equals the store for every partition with a state node. If two topics were given the same id by hand,
`topic_names` holds the later one.

Invariants, which `check` tests:

- A partition that has a state is in `assignments`.
- A partition that has a leadership is in `assignments`.
- `topic_names` is the inverse of `topic_ids`.
- `taken_names` are the names in `topic_ids`.
- Brokers that are shutting down are alive.
- Brokers with a replica in an offline directory are alive.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from base.pause import Pause
from base.topic_partition import TopicPartition
from controller.machine import partition_states, replica_states
from controller.machine.model import (
    Broker,
    Leadership,
    PartitionReplica,
    ReplicaAssignment,
    Topic,
)
from controller.machine.partition_states import PartitionState
from controller.machine.replica_states import ReplicaState
from controller.machine.topic_creation import TopicNames


class ControllerContext:
    def __init__(self, epoch: int, *, has_leader_recovery: bool = True) -> None:
        """`has_leader_recovery`: a leader that is elected uncleanly is marked as recovering."""
        self.epoch = epoch
        self.has_leader_recovery = has_leader_recovery
        self.live_brokers: dict[int, Broker] = {}
        self.shutting_down: set[int] = set()
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.taken_names = TopicNames()
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_states: dict[TopicPartition, PartitionState] = {}
        self.replica_states: dict[PartitionReplica, ReplicaState] = {}
        self.offline_directory_replicas: dict[int, set[TopicPartition]] = {}
        self.reassigning: set[TopicPartition] = set()
        self.topics_to_delete: set[str] = set()
        self.topics_with_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()

    # -- brokers ---------------------------------------------------------------------------------------------------

    @property
    def electable_brokers(self) -> set[int]:
        """Live brokers that are not shutting down."""
        return self.live_brokers.keys() - self.shutting_down

    def is_current(self, broker_id: int, broker_epoch: int, controller_epoch: int) -> bool:
        """Return whether a request with these epochs was sent in this term to the broker's present registration."""
        broker = self.live_brokers.get(broker_id)
        return broker is not None and broker.epoch == broker_epoch and controller_epoch == self.epoch

    def is_replica_online(self, broker_id: int, partition: TopicPartition, *, even_shutting_down: bool = False) -> bool:
        """Return whether the replica can serve: its broker is alive and the replica's log directory is not offline."""
        if broker_id not in self.live_brokers or (broker_id in self.shutting_down and not even_shutting_down):
            return False
        return partition not in self.offline_directory_replicas.get(broker_id, ())

    def online_replicas(self, partition: TopicPartition, *, even_shutting_down: bool = False) -> tuple[int, ...]:
        """Return the assigned replicas that can serve, in order of preference."""
        return tuple(
            replica
            for replica in self.assignment(partition).replicas
            if self.is_replica_online(replica, partition, even_shutting_down=even_shutting_down)
        )

    # -- topics ----------------------------------------------------------------------------------------------------

    def put_topic(self, name: str, topic: Topic) -> None:
        """Add a topic, or replace its assignment."""
        assert topic.topic_id is not None, name
        if name not in self.topic_ids:
            self.taken_names.add(name)
        self.topic_ids[name] = topic.topic_id
        self.topic_names[topic.topic_id] = name
        self.assignments[name] = dict(topic.partitions)

    def topic(self, name: str) -> Topic:
        """Return the topic as it should be stored."""
        return Topic(self.topic_ids[name], dict(self.assignments[name]))

    def remove_topic(self, name: str) -> None:
        """Remove a topic and everything that belongs to it."""
        partitions = self.partitions_of(name)
        for partition in partitions:
            self.leaderships.pop(partition, None)
            self.partition_states.pop(partition, None)
            self.reassigning.discard(partition)
            for replica in self.assignment(partition).replicas:
                self.replica_states.pop(PartitionReplica(partition, replica), None)
        for offline in self.offline_directory_replicas.values():
            offline.difference_update(partitions)
        del self.assignments[name]
        self.taken_names.remove(name)
        topic_id = self.topic_ids.pop(name)
        if self.topic_names.get(topic_id) == name:
            del self.topic_names[topic_id]
        self.topics_to_delete.discard(name)
        self.topics_with_deletion_started.discard(name)
        self.topics_ineligible_for_deletion.discard(name)

    def is_to_be_deleted(self, topic: str) -> bool:
        return topic in self.topics_to_delete

    def is_partition_to_be_deleted(self, partition: TopicPartition) -> bool:
        return partition[0] in self.topics_to_delete

    # -- partitions and replicas -----------------------------------------------------------------------------------

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return the partition's assignment; an empty one if the partition is unknown."""
        topic, index = partition
        known = self.assignments.get(topic, {}).get(index)
        return ReplicaAssignment(()) if known is None else known

    def put_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        topic, index = partition
        self.assignments[topic][index] = assignment

    def has_partition(self, partition: TopicPartition) -> bool:
        topic, index = partition
        return index in self.assignments.get(topic, ())

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.assignments.items():
            for partition in partitions:
                yield (topic, partition)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [(topic, partition) for partition in self.assignments.get(topic, ())]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionReplica]:
        return [
            PartitionReplica(partition, replica)
            for partition in partitions
            for replica in self.assignment(partition).replicas
        ]

    def all_replicas(self) -> Iterator[PartitionReplica]:
        for partition in self.all_partitions():
            for broker_id in self.assignment(partition).replicas:
                yield PartitionReplica(partition, broker_id)

    async def replicas_on(self, broker_ids: Iterable[int], pause: Pause) -> list[PartitionReplica]:
        wanted = set(broker_ids)
        found: list[PartitionReplica] = []
        for partition in self.all_partitions():
            found += [PartitionReplica(partition, it) for it in self.assignment(partition).replicas if it in wanted]
            await pause()
        return found

    def partitions_in(self, *states: PartitionState) -> list[TopicPartition]:
        return [partition for partition, state in self.partition_states.items() if state in states]

    def replica_state(self, replica: PartitionReplica) -> ReplicaState:
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        return self.partition_states.get(partition, PartitionState.NON_EXISTENT)

    async def led_offline(self, pause: Pause) -> list[TopicPartition]:
        """Return the partitions that had a leader and have none now, or one that is not online.

        Partitions of topics to be deleted are left out.
        """
        found: list[TopicPartition] = []
        for partition in self.leaderships:
            if not self.has_leader(partition) and not self.is_partition_to_be_deleted(partition):
                found.append(partition)
            await pause()
        return found

    def has_leader(self, partition: TopicPartition) -> bool:
        """Return whether the partition has a leader, and it is online."""
        leadership = self.leaderships.get(partition)
        return leadership is not None and self.is_replica_online(leadership.state.leader, partition)

    # -- transitions -----------------------------------------------------------------------------------------------

    def can_move_partition(self, partition: TopicPartition, target: PartitionState) -> bool:
        return self.partition_state(partition) in partition_states.VALID_PREVIOUS[target]

    def move_partition(self, partition: TopicPartition, target: PartitionState) -> None:
        """Change the state; the transition must be allowed. Partitions in state NON_EXISTENT are not stored."""
        assert self.can_move_partition(partition, target), (partition, self.partition_state(partition), target)
        if target is PartitionState.NON_EXISTENT:
            del self.partition_states[partition]
        else:
            self.partition_states[partition] = target

    def can_move_replica(self, replica: PartitionReplica, target: ReplicaState) -> bool:
        return self.replica_state(replica) in replica_states.VALID_PREVIOUS[target]

    def move_replica(self, replica: PartitionReplica, target: ReplicaState) -> None:
        """Change the state; the transition must be allowed. Replicas in state NON_EXISTENT are not stored."""
        assert self.can_move_replica(replica, target), (replica, self.replica_state(replica), target)
        if target is ReplicaState.NON_EXISTENT:
            del self.replica_states[replica]
        else:
            self.replica_states[replica] = target

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        assert all(map(self.has_partition, self.partition_states)), "A partition that has a state is in `assignments`"
        assert all(map(self.has_partition, self.leaderships)), "A partition that has a leadership is in `assignments`"
        assert self.topic_names.keys() == set(self.topic_ids.values()), "`topic_names` is the inverse of `topic_ids`"
        assert all(self.topic_ids.get(name) == topic_id for topic_id, name in self.topic_names.items()), (
            "`topic_names` is the inverse of `topic_ids`"
        )
        assert sorted(self.taken_names) == sorted(self.topic_ids), "`taken_names` are the names in `topic_ids`"
        assert self.shutting_down <= self.live_brokers.keys(), "Brokers that are shutting down are alive"
        assert self.offline_directory_replicas.keys() <= self.live_brokers.keys(), (
            "Brokers with a replica in an offline directory are alive"
        )
