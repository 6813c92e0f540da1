"""Check whether the in-sync replicas that a leader reports become those of the partition (AlterPartition, KIP-497).

Owns the order of the checks: the error code determines whether the leader is to retry, to refresh its state or to stop.
Must not know the store.
"""

from base.topic_partition import TopicPartition
from controller.machine.context import ControllerContext
from controller.machine.effects import ChangeLeadership
from controller.machine.model import NO_BROKER_EPOCH, LeaderAndIsr, LeaderRecoveryState
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import PartitionData

# Older leaders do not know INELIGIBLE_REPLICA (KIP-841).
FIRST_VERSION_WITH_INELIGIBLE_REPLICA = 2


def plan_isr_change(
    context: ControllerContext, leader_id: int, partition: TopicPartition, reported: PartitionData, version: int
) -> ChangeLeadership | None:
    """Return the state to write, or None if the partition has it already.

    Raises:
        KafkaError: with the error code for the leader.
    """
    leadership = context.leaderships.get(partition)
    if leadership is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = leadership.state
    if reported.partition_epoch > leadership.partition_epoch or reported.leader_epoch > current.leader_epoch:
        # The leader has a state that this controller does not have: there is a newer controller.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if reported.leader_epoch < current.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    wanted = LeaderAndIsr(leader_id, reported.leader_epoch, reported_isr(reported), _recovery_state(reported))
    if wanted == current:
        return None
    if reported.partition_epoch < leadership.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    _check(context, partition, current, wanted, version)
    _check_epochs(context, reported)
    return ChangeLeadership(partition, wanted, leadership.partition_epoch)


def reported_isr(reported: PartitionData) -> tuple[int, ...]:
    """Return the in-sync replicas, which the request holds in one of two fields, depending on its version."""
    if reported.new_isr_with_epochs:
        return tuple(broker.broker_id for broker in reported.new_isr_with_epochs)
    return tuple(reported.new_isr)


def _check_epochs(context: ControllerContext, reported: PartitionData) -> None:
    """Reject a replica that restarted since it caught up, because it may have lost records (KIP-903)."""
    for replica in reported.new_isr_with_epochs:
        if replica.broker_epoch not in (NO_BROKER_EPOCH, context.live_brokers[replica.broker_id].epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _recovery_state(reported: PartitionData) -> LeaderRecoveryState:
    try:
        return LeaderRecoveryState(reported.leader_recovery_state)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None


def _check(
    context: ControllerContext, partition: TopicPartition, current: LeaderAndIsr, wanted: LeaderAndIsr, version: int
) -> None:
    is_recovering = wanted.recovery_state is LeaderRecoveryState.RECOVERING
    if is_recovering and (len(wanted.isr) > 1 or current.recovery_state is LeaderRecoveryState.RECOVERED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if wanted.leader != current.leader or wanted.leader not in wanted.isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if len(set(wanted.isr)) < len(wanted.isr):
        # No controller reads a stored state that repeats a replica.
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not set(wanted.isr) <= {*current.isr, *context.assignment(partition).replicas}:
        # A replica that was dropped from the assignment is being deleted. A member that is in the ISR may stay there.
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not set(wanted.isr) <= context.electable_brokers:
        if version < FIRST_VERSION_WITH_INELIGIBLE_REPLICA:
            raise KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED)
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
