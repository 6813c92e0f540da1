"""The result of every kind of AlterPartition, in the order of the checks."""

import pytest

from controller.machine.context import ControllerContext
from controller.machine.effects import ChangeLeadership
from controller.machine.isr_changes import plan_isr_change
from controller.machine.model import (
    Broker,
    LeaderAndIsr,
    LeaderRecoveryState,
    Leadership,
    ReplicaAssignment,
    Topic,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import parse_id
from protocol.messages.alter_partition import BrokerState, PartitionData

PARTITION = ("t", 0)
RECOVERING = LeaderRecoveryState.RECOVERING


def _context(recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED) -> ControllerContext:
    context = ControllerContext(1)
    context.live_brokers = {it: Broker(it, ()) for it in (1, 2, 3, 5)}
    context.shutting_down = {3}
    context.put_topic("t", Topic(parse_id("mxeDiPb0QsCUKycbljLM5g"), {0: ReplicaAssignment((1, 2, 3, 4))}))
    context.leaderships[PARTITION] = Leadership(LeaderAndIsr(1, 7, (1, 2), recovery), 1, partition_epoch=5)
    return context


def _reported(
    isr: tuple[int, ...], leader_epoch: int = 7, partition_epoch: int = 5, recovery: int = 0
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=it) for it in isr],
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )


REFUSED: list[tuple[PartitionData, ErrorCode]] = [
    (_reported((1,), leader_epoch=8), ErrorCode.NOT_CONTROLLER),
    (_reported((1,), partition_epoch=6), ErrorCode.NOT_CONTROLLER),
    (_reported((1,), leader_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
    (_reported((1,), leader_epoch=6, partition_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
    (_reported((1,), partition_epoch=4), ErrorCode.INVALID_UPDATE_VERSION),
    (_reported((1, 2), recovery=1), ErrorCode.INVALID_REQUEST),
    (_reported((1,), recovery=1), ErrorCode.INVALID_REQUEST),
    (_reported((1,), recovery=2), ErrorCode.INVALID_REQUEST),
    (_reported((2,)), ErrorCode.INVALID_REQUEST),
    (_reported(()), ErrorCode.INVALID_REQUEST),
    (_reported((1, 2, 5)), ErrorCode.INVALID_REQUEST),
    (_reported((1, 1)), ErrorCode.INVALID_REQUEST),
    (_reported((1, 2, 1)), ErrorCode.INVALID_REQUEST),
    (PartitionData(partition_index=0, leader_epoch=7, new_isr=[1, 2, 2], partition_epoch=5), ErrorCode.INVALID_REQUEST),
    (_reported((1, 2, 4)), ErrorCode.INELIGIBLE_REPLICA),
    (_reported((1, 2, 3)), ErrorCode.INELIGIBLE_REPLICA),
]


@pytest.mark.parametrize(("epoch", "is_accepted"), [(-1, True), (30, True), (29, False), (31, False)])
def test_member_must_have_the_registration_with_which_it_fetched(epoch: int, is_accepted: bool) -> None:
    context = _context()
    context.live_brokers[2] = Broker(2, (), epoch=30)
    context.leaderships[PARTITION] = Leadership(LeaderAndIsr(1, 7, (1,)), 1, partition_epoch=5)
    reported = _reported((1,))
    reported.new_isr_with_epochs.append(BrokerState(broker_id=2, broker_epoch=epoch))
    if is_accepted:
        assert plan_isr_change(context, 1, PARTITION, reported, version=3) is not None
        return
    with pytest.raises(KafkaError) as caught:
        plan_isr_change(context, 1, PARTITION, reported, version=3)
    assert caught.value.code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(("reported", "code"), REFUSED)
def test_invalid_report_is_rejected(reported: PartitionData, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_isr_change(_context(), 1, PARTITION, reported, version=3)
    assert caught.value.code == code


def test_old_leaders_do_not_know_ineligible_replicas() -> None:
    with pytest.raises(KafkaError) as caught:
        plan_isr_change(_context(), 1, PARTITION, _reported((1, 4)), version=1)
    assert caught.value.code == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_report_for_an_unknown_partition_is_rejected() -> None:
    with pytest.raises(KafkaError) as caught:
        plan_isr_change(_context(), 1, ("t", 1), _reported((1,)), version=3)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("partition_epoch", [5, 4, 0])
def test_report_equal_to_the_current_state_succeeds_with_an_old_partition_epoch(partition_epoch: int) -> None:
    assert plan_isr_change(_context(), 1, PARTITION, _reported((1, 2), partition_epoch=partition_epoch), 3) is None


def test_valid_report_is_accepted() -> None:
    change = plan_isr_change(_context(), 1, PARTITION, _reported((1,)), version=3)
    assert change == ChangeLeadership(PARTITION, LeaderAndIsr(1, 7, (1,)), expected_version=5)


def test_isr_in_the_field_of_older_versions_is_accepted() -> None:
    reported = PartitionData(partition_index=0, leader_epoch=7, new_isr=[1], partition_epoch=5)
    change = plan_isr_change(_context(), 1, PARTITION, reported, version=2)
    assert change == ChangeLeadership(PARTITION, LeaderAndIsr(1, 7, (1,)), expected_version=5)


def test_leader_reports_that_it_recovered() -> None:
    change = plan_isr_change(_context(RECOVERING), 1, PARTITION, _reported((1, 2)), version=3)
    assert change == ChangeLeadership(PARTITION, LeaderAndIsr(1, 7, (1, 2)), expected_version=5)
