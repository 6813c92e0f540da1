"""Moving a partition to other brokers: what is asked, and when it is done.

Owns the checks of a target and the texts that users see, and the question whether a reassignment is complete. Must not
know the store or requests. Phases and their order are in docs/controller.md.
"""

from collections.abc import Collection, Sequence

from controller.context import ControllerContext
from controller.model import ReplicaAssignment, TopicPartition
from protocol.errors import ErrorCode, KafkaError


def is_complete(assignment: ReplicaAssignment, isr: Collection[int]) -> bool:
    """Whether every target replica is in sync."""
    return set(assignment.target) <= set(isr)


def plan_reassignment(
    context: ControllerContext, partition: TopicPartition, target: Sequence[int] | None
) -> ReplicaAssignment:
    """The assignment with which a move to `target` begins, or with None the one it is cancelled to.

    Raises KafkaError where nothing can be moved or cancelled.
    """
    if target is None and partition not in context.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if not context.has_partition(partition) or context.is_to_be_deleted(partition.topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    current = context.assignment(partition)
    if target is None:
        return ReplicaAssignment(current.original)
    _check_target(context, current, target)
    return current.reassigned_to(tuple(target))


def _check_target(context: ControllerContext, current: ReplicaAssignment, target: Sequence[int]) -> None:
    if not target:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment."
        )
    if len(set(target)) != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Duplicate replica ids in partition reassignment replica list: {_list(target)}",
        )
    if any(replica < 0 for replica in target):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Invalid broker id in replica list: {_list(target)}")
    added = set(target) - set(current.original)
    if not added <= context.electable_brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Replica assignment has brokers that are not alive. Replica list: {_list(sorted(added))}, "
            f"live broker list: {_list(sorted(context.electable_brokers))}",
        )


def _list(replicas: Sequence[int]) -> str:
    return f"[{', '.join(map(str, replicas))}]"
