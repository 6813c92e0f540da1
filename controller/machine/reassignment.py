"""Check the target of a reassignment, and decide when a reassignment is complete.

Owns the checks, their error messages and the completion test. Must not know the store or requests. The phases and their
order are in docs/controller.md.
"""

from collections.abc import Collection, Sequence

from base.topic_partition import TopicPartition
from controller.machine.context import ControllerContext
from controller.machine.model import ReplicaAssignment
from protocol.errors import ErrorCode, KafkaError


def is_complete(assignment: ReplicaAssignment, isr: Collection[int]) -> bool:
    """Return whether nothing is to be added or removed, as after a cancellation, or every target replica is in sync."""
    return not assignment.is_being_reassigned or set(assignment.target) <= set(isr)


def plan_reassignment(
    context: ControllerContext, partition: TopicPartition, target: Sequence[int] | None
) -> ReplicaAssignment:
    """Return the assignment that starts a reassignment to `target`, or with None the one that cancels it.

    Raises:
        KafkaError: the target is invalid, the partition unknown, or there is no reassignment to cancel.
    """
    if target is None and partition not in context.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if not context.has_partition(partition) or context.is_partition_to_be_deleted(partition):
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
