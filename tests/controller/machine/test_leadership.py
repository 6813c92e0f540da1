"""The changes and recipients of each plan, as tables over one partition."""

import pytest

from base.topic_partition import TopicPartition
from controller.machine.context import ControllerContext
from controller.machine.effects import ChangeLeadership
from controller.machine.leadership import (
    ElectionReason,
    plan_departure,
    plan_elections,
    plan_first_leaders,
    plan_new_epochs,
    plan_removal_from_isr,
)
from controller.machine.model import (
    Broker,
    LeaderAndIsr,
    LeaderRecoveryState,
    Leadership,
    ReplicaAssignment,
    Topic,
)
from protocol.ids import parse_id

PARTITION = ("t", 0)
TOPIC_ID = parse_id("mxeDiPb0QsCUKycbljLM5g")


def _context(
    assignment: ReplicaAssignment, live: tuple[int, ...] = (1, 2, 3), shutting_down: tuple[int, ...] = ()
) -> ControllerContext:
    context = ControllerContext(epoch=5)
    context.live_brokers = {it: Broker(it, ()) for it in live}
    context.shutting_down = set(shutting_down)
    context.put_topic("t", Topic(TOPIC_ID, {0: assignment}))
    return context


def _now(
    leader: int, isr: tuple[int, ...], epoch: int = 7, controller_epoch: int = 5
) -> dict[TopicPartition, Leadership]:
    return {PARTITION: Leadership(LeaderAndIsr(leader, epoch, isr), controller_epoch, partition_epoch=9)}


@pytest.mark.parametrize(
    ("replicas", "live", "isr"),
    [((1, 2, 3), (1, 2, 3), (1, 2, 3)), ((3, 1, 2), (1, 2), (1, 2)), ((3,), (3,), (3,))],
)
def test_first_leader_is_the_first_live_replica(
    replicas: tuple[int, ...], live: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    plan = plan_first_leaders(_context(ReplicaAssignment(replicas), live), [PARTITION])
    assert plan.changes == [ChangeLeadership(PARTITION, LeaderAndIsr(isr[0], 0, isr), None, new_recipients=isr)]


def test_first_election_without_live_replicas_fails() -> None:
    plan = plan_first_leaders(_context(ReplicaAssignment((1, 2)), live=(3,)), [PARTITION])
    assert plan.changes == []
    assert plan.failures == {PARTITION: "none of the assigned replicas [1, 2] is alive"}


# reason, replicas, leader, isr, live, shutting down -> leader, isr, recipients
ELECTIONS = [
    (ElectionReason.OFFLINE, (1, 2, 3), 1, (1, 2, 3), (2, 3), (), 2, (2, 3), (2, 3)),
    (ElectionReason.OFFLINE, (1, 2, 3), 1, (1, 3), (2, 3), (), 3, (3,), (2, 3)),
    (ElectionReason.OFFLINE, (1, 2, 3), 1, (1, 2, 3), (2, 3), (2,), 3, (3,), (3,)),
    (ElectionReason.OFFLINE, (1, 2), 1, (1,), (2,), (), None, (), ()),
    (ElectionReason.PREFERRED, (1, 2), 2, (2, 1), (1, 2), (), 1, (2, 1), (1, 2)),
    (ElectionReason.PREFERRED, (1, 2), 2, (2,), (1, 2), (), None, (), ()),
    (ElectionReason.PREFERRED, (1, 2), 2, (2, 1), (2,), (), None, (), ()),
    (ElectionReason.CONTROLLED_SHUTDOWN, (1, 2, 3), 1, (1, 2, 3), (1, 2, 3), (1,), 2, (2, 3), (1, 2, 3)),
    (ElectionReason.CONTROLLED_SHUTDOWN, (1, 2, 3), 1, (1, 2, 3), (1, 2, 3), (1, 2), 3, (3,), (1, 2, 3)),
    (ElectionReason.CONTROLLED_SHUTDOWN, (1, 2), 1, (1,), (1, 2), (1,), None, (), ()),
]


@pytest.mark.parametrize(
    ("reason", "replicas", "leader", "isr", "live", "shutting_down", "elected", "isr_after", "notified"), ELECTIONS
)
def test_elections_choose_the_expected_leader_and_isr(
    reason: ElectionReason,
    replicas: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    live: tuple[int, ...],
    shutting_down: tuple[int, ...],
    elected: int | None,
    isr_after: tuple[int, ...],
    notified: tuple[int, ...],
) -> None:
    context = _context(ReplicaAssignment(replicas), live, shutting_down)
    plan = plan_elections(context, _now(leader, isr), reason)
    assert not plan.unclean
    if elected is None:
        assert plan.changes == []
        assert list(plan.failures) == [PARTITION]
    else:
        assert plan.changes == [ChangeLeadership(PARTITION, LeaderAndIsr(elected, 8, isr_after), 9, notified)]
        assert plan.failures == {}


def test_a_reassigned_partition_gets_a_leader_of_the_target() -> None:
    context = _context(ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,)))
    plan = plan_elections(context, _now(1, (1, 2, 3)), ElectionReason.REASSIGNED)
    assert plan.changes == [ChangeLeadership(PARTITION, LeaderAndIsr(2, 8, (1, 2, 3)), 9, (2, 3, 1))]


def test_unclean_election_leaves_the_leader_alone_in_the_isr() -> None:
    context = _context(ReplicaAssignment((1, 2, 3)), live=(2, 3))
    plan = plan_elections(context, _now(1, (1,)), ElectionReason.OFFLINE, {"t"})
    state = LeaderAndIsr(2, 8, (2,), LeaderRecoveryState.RECOVERING)
    assert plan.changes == [ChangeLeadership(PARTITION, state, 9, (2, 3))]
    assert plan.unclean == {PARTITION}


# broker to remove, leader, isr -> leader, isr; None: nothing to write
REMOVALS: list[tuple[int, int, tuple[int, ...], tuple[int, tuple[int, ...]] | None]] = [
    (2, 1, (1, 2, 3), (1, (1, 3))),
    (1, 1, (1, 2, 3), (-1, (2, 3))),
    (1, 1, (1,), (-1, (1,))),
    (3, 1, (1, 2), None),
]


@pytest.mark.parametrize(("broker_id", "leader", "isr", "after"), REMOVALS)
def test_removal_from_the_isr_keeps_the_last_replica(
    broker_id: int, leader: int, isr: tuple[int, ...], after: tuple[int, tuple[int, ...]] | None
) -> None:
    plan = plan_removal_from_isr(_context(ReplicaAssignment((1, 2, 3))), _now(leader, isr), broker_id)
    if after is None:
        assert plan.changes == []
    else:
        others = tuple(it for it in (1, 2, 3) if it != broker_id)
        assert plan.changes == [ChangeLeadership(PARTITION, LeaderAndIsr(after[0], 8, after[1]), 9, others)]


# staying, leader, isr -> leader, isr; None: nothing to write; text: why it is refused
DEPARTURES: list[tuple[tuple[int, ...], int, tuple[int, ...], tuple[int, tuple[int, ...]] | str | None]] = [
    ((1, 2), 1, (1, 2), None),
    ((1, 2), 1, (1, 2, 3), (1, (1, 2))),
    ((1, 2), 3, (1, 2, 3), (1, (1, 2))),
    ((2, 1), 3, (1, 2, 3), (2, (1, 2))),
    ((1, 2), 3, (3, 2), (2, (2,))),
    ((1, 2), 3, (3,), "none of the replicas [1, 2] that would stay is in sync (isr [3])"),
    ((1, 2), -1, (3,), "none of the replicas [1, 2] that would stay is in sync (isr [3])"),
    ((4, 2), 3, (3, 4), "none of the replicas [4, 2] that would stay is in sync and online (isr [3, 4])"),
    ((4, 2), -1, (4,), None),
    ((4, 2), 2, (2, 3, 4), (2, (2, 4))),
]


@pytest.mark.parametrize(("staying", "leader", "isr", "after"), DEPARTURES)
def test_departure_leaves_an_in_sync_replica_and_a_leader(
    staying: tuple[int, ...], leader: int, isr: tuple[int, ...], after: tuple[int, tuple[int, ...]] | str | None
) -> None:
    """Broker 4 is dead."""
    context = _context(ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2)))
    plan = plan_departure(context, _now(leader, isr), {PARTITION: staying})
    if isinstance(after, str):
        assert (plan.changes, plan.failures) == ([], {PARTITION: after})
    elif after is None:
        assert (plan.changes, plan.failures) == ([], {})
    else:
        assert plan.changes == [ChangeLeadership(PARTITION, LeaderAndIsr(after[0], 8, after[1]), 9, (3, 4, 1, 2))]


def test_new_epoch_sends_is_new_to_added_replicas() -> None:
    context = _context(ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,)))
    plan = plan_new_epochs(context, _now(1, (1, 2)))
    assert plan.changes == [ChangeLeadership(PARTITION, LeaderAndIsr(1, 8, (1, 2)), 9, (2, 1), (3,))]


def test_state_of_a_newer_controller_is_not_changed() -> None:
    context = _context(ReplicaAssignment((1, 2)))
    current = _now(1, (1, 2), controller_epoch=6)
    for plan in (
        plan_elections(context, current, ElectionReason.OFFLINE),
        plan_removal_from_isr(context, current, 1),
        plan_departure(context, current, {PARTITION: (2,)}),
        plan_new_epochs(context, current),
    ):
        assert plan.changes == []
        assert plan.failures == {PARTITION: "written by a newer controller, of epoch 6"}
