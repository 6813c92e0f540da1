"""Checks of a requested reassignment, and the test for its completion."""

import pytest

from controller.machine.context import ControllerContext
from controller.machine.model import Broker, ReplicaAssignment, Topic
from controller.machine.reassignment import is_complete, plan_reassignment
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import parse_id

PARTITION = ("t", 0)


def _context(assignment: ReplicaAssignment) -> ControllerContext:
    context = ControllerContext(1)
    context.live_brokers = {it: Broker(it, ()) for it in (1, 2, 3)}
    context.put_topic("t", Topic(parse_id("mxeDiPb0QsCUKycbljLM5g"), {0: assignment}))
    if assignment.is_being_reassigned:
        context.reassigning.add(PARTITION)
    return context


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment."),
        (
            (2, 2),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate replica ids in partition reassignment replica list: [2, 2]",
        ),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid broker id in replica list: [-1]"),
        (
            (1, 9),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Replica assignment has brokers that are not alive. Replica list: [9], live broker list: [1, 2, 3]",
        ),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
    ],
)
def test_invalid_target_is_rejected(target: tuple[int, ...] | None, code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_reassignment(_context(ReplicaAssignment((1, 2))), PARTITION, target)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_reassignment_of_an_unknown_or_deleted_partition_is_rejected() -> None:
    context = _context(ReplicaAssignment((1, 2)))
    context.topics_to_delete.add("t")
    for partition in (PARTITION, ("t", 1), ("nosuch", 0)):
        with pytest.raises(KafkaError) as caught:
            plan_reassignment(context, partition, (1,))
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_dead_broker_may_stay_in_the_assignment_but_not_be_added() -> None:
    context = _context(ReplicaAssignment((1, 2)))
    del context.live_brokers[2]
    assert plan_reassignment(context, PARTITION, (2, 1)) == ReplicaAssignment((2, 1))


def test_cancelling_removes_the_added_replicas() -> None:
    moving = ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,))
    assert plan_reassignment(_context(moving), PARTITION, None) == ReplicaAssignment((2, 1))


@pytest.mark.parametrize(
    ("isr", "complete"), [((1, 2, 3), True), ((2, 3), True), ((1, 2), False), ((3,), False), ((), False)]
)
def test_reassignment_is_complete_once_the_target_is_in_sync(isr: tuple[int, ...], complete: bool) -> None:
    assert is_complete(ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,)), isr) is complete


@pytest.mark.parametrize("isr", [(1, 2), (1,), ()])
def test_cancelled_reassignment_is_complete_whatever_is_in_sync(isr: tuple[int, ...]) -> None:
    assert is_complete(ReplicaAssignment((1, 2)), isr)
