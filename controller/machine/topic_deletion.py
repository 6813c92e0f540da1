"""Decide which topic deletions can start, continue or be completed.

Owns the decision. Must not know the store or requests. A topic is deleted once the files of all its replicas are. A
replica that cannot be deleted now makes the topic ineligible until something changes (its broker comes back, its
reassignment ends), and never blocks other topics.
"""

from base.dataclass import dataclass
from base.pause import Pause, through
from controller.machine.context import ControllerContext
from controller.machine.model import PartitionReplica
from controller.machine.replica_states import ReplicaState


@dataclass(frozen=True, slots=True)
class DeletionStep:
    """`finished` topics can be removed; the replicas of `startable` topics can be deleted."""

    finished: tuple[str, ...]
    startable: tuple[str, ...]


async def next_step(context: ControllerContext, pause: Pause) -> DeletionStep:
    """Return what can be done now for the topics to be deleted. Many may wait for a dead broker: pauses after each."""
    finished: list[str] = []
    startable: list[str] = []
    async for topic in through(sorted(context.topics_to_delete), pause):
        replicas = context.replicas_of(context.partitions_of(topic))
        states = {context.replica_state(replica) for replica in replicas}
        if states <= {ReplicaState.DELETION_SUCCESSFUL}:
            finished.append(topic)
        elif ReplicaState.DELETION_STARTED not in states and topic not in context.topics_ineligible_for_deletion:
            startable.append(topic)
    return DeletionStep(tuple(finished), tuple(startable))


def replicas_to_delete(context: ControllerContext, topic: str) -> tuple[list[PartitionReplica], list[PartitionReplica]]:
    """Return the topic's replicas whose files still exist: those that can be deleted now, and the others."""
    possible: list[PartitionReplica] = []
    impossible: list[PartitionReplica] = []
    for replica in context.replicas_of(context.partitions_of(topic)):
        if context.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
            online = context.is_replica_online(replica.broker_id, replica.partition, even_shutting_down=True)
            (possible if online else impossible).append(replica)
    return possible, impossible


async def topics_not_deletable_now(context: ControllerContext, pause: Pause) -> set[str]:
    """Return the topics to be deleted that are being reassigned or have a replica that is offline."""
    return {
        topic
        async for topic in through(sorted(context.topics_to_delete), pause)
        if any(partition in context.reassigning for partition in context.partitions_of(topic))
        or replicas_to_delete(context, topic)[1]
    }
