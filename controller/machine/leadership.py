"""Plan each change of a leader, leader epoch or ISR that the controller itself decides.

Owns the new state; `election` chooses the leader. Must not know the store: current states are arguments, and the plan
names the versions that it is based on. A plan holds each partition at most once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from controller.machine import election
from controller.machine.context import ControllerContext
from controller.machine.effects import ChangeLeadership
from controller.machine.model import (
    NO_LEADER,
    LeaderAndIsr,
    LeaderRecoveryState,
    Leadership,
    ReplicaAssignment,
)

INITIAL_LEADER_EPOCH = 0


class ElectionReason(Enum):
    """Why a leader is elected, which determines how it is chosen."""

    OFFLINE = "offline"
    REASSIGNED = "reassigned"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


@dataclass(slots=True)
class LeadershipPlan:
    """The states to write, and the partitions for which none can be written, with the reason.

    Electing the leaders of the partitions in `unclean` may lose records.
    """

    changes: list[ChangeLeadership] = field(default_factory=list)
    failures: dict[TopicPartition, str] = field(default_factory=dict)
    unclean: set[TopicPartition] = field(default_factory=set)

    def add(self, other: "LeadershipPlan") -> None:
        """Add the changes and failures of `other`, which must concern other partitions."""
        self.changes += other.changes
        self.failures |= other.failures
        self.unclean |= other.unclean


def plan_first_leaders(context: ControllerContext, partitions: Iterable[TopicPartition]) -> LeadershipPlan:
    """Plan the first state of new partitions: all live replicas are in sync and the first of them leads."""
    plan = LeadershipPlan()
    for partition in partitions:
        live = context.online_replicas(partition)
        if not live:
            assigned = list(context.assignment(partition).replicas)
            plan.failures[partition] = f"none of the assigned replicas {assigned} is alive"
            continue
        state = LeaderAndIsr(leader=live[0], leader_epoch=INITIAL_LEADER_EPOCH, isr=live)
        plan.changes.append(ChangeLeadership(partition, state, expected_version=None, new_recipients=live))
    return plan


def plan_elections(
    context: ControllerContext,
    current: Mapping[TopicPartition, Leadership],
    reason: ElectionReason,
    topics_unclean_allowed: Collection[str] = (),
) -> LeadershipPlan:
    """Elect a leader for each partition in `current`, or record why none qualifies."""
    plan = LeadershipPlan()
    for partition, leadership in _not_fenced(context, current, plan):
        state = _ELECTORS[reason](context, partition, leadership.state, partition[0] in topics_unclean_allowed)
        if state is None:
            plan.failures[partition] = (
                f"no replica qualifies ({reason.value} election, isr {list(leadership.state.isr)})"
            )
            continue
        if state.leader not in leadership.state.isr:
            plan.unclean.add(partition)
        recipients = context.online_replicas(partition, even_shutting_down=reason is ElectionReason.CONTROLLED_SHUTDOWN)
        plan.changes.append(ChangeLeadership(partition, state, leadership.partition_epoch, recipients))
    return plan


def plan_removal_from_isr(
    context: ControllerContext, current: Mapping[TopicPartition, Leadership], broker_id: int
) -> LeadershipPlan:
    """Remove a broker from the ISR of each partition that has it there, and from its leadership.

    The last member of an ISR stays, so that only a replica with all acknowledged records can be elected cleanly later.
    """
    plan = LeadershipPlan()
    for partition, leadership in _not_fenced(context, current, plan):
        state = leadership.state
        if broker_id not in state.isr:
            continue
        leader = NO_LEADER if state.leader == broker_id else state.leader
        isr = tuple(replica for replica in state.isr if replica != broker_id) or state.isr
        others = _others(context.assignment(partition), broker_id)
        plan.changes.append(
            ChangeLeadership(partition, state.with_leader(leader, isr), leadership.partition_epoch, others)
        )
    return plan


def plan_departure(
    context: ControllerContext,
    current: Mapping[TopicPartition, Leadership],
    staying: Mapping[TopicPartition, Sequence[int]],
) -> LeadershipPlan:
    """Remove all replicas but those in `staying` from ISR and leadership, before they are deleted.

    `staying` holds each partition's replicas that are kept, in order of preference. If none of them is in sync, the
    others hold the only copy of acknowledged records, and the departure is a failure. So it is if the leader would
    leave and no in-sync replica that stays can lead.
    """
    plan = LeadershipPlan()
    for partition, leadership in _not_fenced(context, current, plan):
        state, kept = leadership.state, staying[partition]
        isr = tuple(replica for replica in state.isr if replica in kept)
        leader = state.leader
        if leader != NO_LEADER and leader not in kept:
            chosen = election.leader_when_reassigned(kept, isr, context.online_replicas(partition))
            leader = NO_LEADER if chosen is None else chosen
        if not isr or (leader == NO_LEADER and state.leader != NO_LEADER):
            wanted = "in sync" if not isr else "in sync and online"
            plan.failures[partition] = (
                f"none of the replicas {list(kept)} that would stay is {wanted} (isr {list(state.isr)})"
            )
        elif (leader, isr) != (state.leader, state.isr):
            plan.changes.append(
                ChangeLeadership(
                    partition,
                    state.with_leader(leader, isr),
                    leadership.partition_epoch,
                    context.assignment(partition).replicas,
                )
            )
    return plan


def plan_new_epochs(context: ControllerContext, current: Mapping[TopicPartition, Leadership]) -> LeadershipPlan:
    """Keep leaders and ISR under a new leader epoch, so that every replica applies a new assignment."""
    plan = LeadershipPlan()
    for partition, leadership in _not_fenced(context, current, plan):
        state = leadership.state.with_leader(leadership.state.leader)
        assignment = context.assignment(partition)
        plan.changes.append(
            ChangeLeadership(partition, state, leadership.partition_epoch, assignment.original, assignment.adding)
        )
    return plan


def _not_fenced(
    context: ControllerContext, current: Mapping[TopicPartition, Leadership], plan: LeadershipPlan
) -> Iterable[tuple[TopicPartition, Leadership]]:
    """Yield the partitions that no newer controller has written; record the others as failures."""
    for partition, leadership in current.items():
        if leadership.controller_epoch > context.epoch:
            plan.failures[partition] = f"written by a newer controller, of epoch {leadership.controller_epoch}"
        else:
            yield partition, leadership


def _others(assignment: ReplicaAssignment, broker_id: int) -> tuple[int, ...]:
    return tuple(replica for replica in assignment.replicas if replica != broker_id)


def _elect_offline(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr, unclean_allowed: bool
) -> LeaderAndIsr | None:
    live = context.online_replicas(partition)
    replicas = context.assignment(partition).replicas
    choice = election.leader_when_offline(replicas, state.isr, live, unclean_allowed=unclean_allowed)
    if choice is None:
        return None
    if choice.is_unclean:
        if context.has_leader_recovery:
            state = replace(state, recovery_state=LeaderRecoveryState.RECOVERING)
        return state.with_leader(choice.leader, (choice.leader,))
    return state.with_leader(choice.leader, tuple(replica for replica in state.isr if replica in live))


def _elect_reassigned(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr, _: bool
) -> LeaderAndIsr | None:
    target = context.assignment(partition).target
    leader = election.leader_when_reassigned(target, state.isr, context.online_replicas(partition))
    return None if leader is None else state.with_leader(leader)


def _elect_preferred(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr, _: bool
) -> LeaderAndIsr | None:
    replicas = context.assignment(partition).replicas
    leader = election.preferred_leader(replicas, state.isr, context.online_replicas(partition))
    return None if leader is None else state.with_leader(leader)


def _elect_on_shutdown(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr, _: bool
) -> LeaderAndIsr | None:
    live = context.online_replicas(partition, even_shutting_down=True)
    replicas = context.assignment(partition).replicas
    leader = election.leader_when_shutting_down(replicas, state.isr, live, context.shutting_down)
    if leader is None:
        return None
    return state.with_leader(leader, tuple(replica for replica in state.isr if replica not in context.shutting_down))


_Elector = Callable[[ControllerContext, TopicPartition, LeaderAndIsr, bool], LeaderAndIsr | None]

_ELECTORS: Mapping[ElectionReason, _Elector] = {
    ElectionReason.OFFLINE: _elect_offline,
    ElectionReason.REASSIGNED: _elect_reassigned,
    ElectionReason.PREFERRED: _elect_preferred,
    ElectionReason.CONTROLLED_SHUTDOWN: _elect_on_shutdown,
}
