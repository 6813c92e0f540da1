"""Each guard is tested by its absence: a scripted case passes with it, and a checker catches the case without it.

A case breaks a rule only if its guard is removed, at the one place that `remove` patches. So a guard that is no longer
in force, or a checker that no longer sees what it guards against, fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from broker.cluster.control_requests import ControlFence
from broker.replica.partition import Partition
from controller import election, isr_changes
from controller.active.controller import ActiveController
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from tests.sim.history import DataLoss
from tests.sim.run import PLAIN
from tests.sim.scripted import Script

P = PLAIN[0]
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Guard:
    """A guard: how a test removes it, the case in which it counts, and the rules of which the case breaks one."""

    name: str
    remove: Callable[[Patch], None]
    case: Callable[[Script], None]
    rules: tuple[str, ...]
    properties: tuple[tuple[str, str], ...] = ()


# Leader epochs


def no_epoch_check(patch: Patch) -> None:
    original = Partition.require_leader
    patch.setattr(Partition, "require_leader", lambda self, epoch=-1: original(self))


def consumer_asks_a_deposed_leader(script: Script) -> None:
    """The old leader is separated from the cluster, but not from a consumer that knows the new epoch."""
    old = script.leader(P)
    script.produce("a")
    script.isolate(old)
    script.wait_until(lambda: script.leader(P) not in (old, -1))
    script.consume(P, old, script.state(P).leader_epoch)
    script.rejoin(old)


# Committed records


def consumers_read_to_the_end(patch: Patch) -> None:
    patch.setattr(Partition, "readable_end_offset", lambda self, isolation: self.log.log_end_offset)


def consumer_reads_what_one_replica_has(script: Script) -> None:
    leader = script.leader(P)
    for other in script.others(leader):
        script.cut(leader, other)
    script.produce("a", acks=1)
    script.consume(P, leader, script.state(P).leader_epoch)
    script.cluster.kill(leader)
    script.wait_until(lambda: script.leader(P) not in (leader, -1))
    script.produce("b", acks=1)


def no_wait_for_followers(patch: Patch) -> None:
    patch.setattr(
        Partition,
        "advance_high_watermark",
        lambda self, now_ms: self.log.advance_high_watermark(self.log.log_end_offset),
    )


def leader_is_cut_off_and_dies(script: Script) -> None:
    leader = script.leader(P)
    for other in script.others(leader):
        script.cut(leader, other)
    send = script.begin_produce("a")
    script.wait(1.0)
    script.cluster.kill(leader)
    script.wait_until(lambda: send.task.done() and script.leader(P) not in (leader, -1))
    script.produce("b")


def leaving_replicas_do_not_count(patch: Patch) -> None:
    """Let the high watermark wait for the proposed ISR only, although the controller has not confirmed it."""

    def proposed(self: Partition) -> Any:
        return self.leadership.isr if self.isr_change is None else self.isr_change.proposed

    patch.setattr(Partition, "maximal_isr", property(proposed))


def controller_does_not_hear_of_a_shrink(script: Script) -> None:
    """The leader is separated from all, and wants to remove its followers. The controller elects one of them."""
    leader = script.leader(P)
    script.isolate(leader)
    script.produce("late", acks=1)
    script.wait_until(lambda: script.leader(P) not in (leader, -1))
    script.wait(4.0)
    script.produce("a", broker=leader)
    script.produce("b")
    script.rejoin(leader)


def min_isr_does_not_hold(patch: Patch) -> None:
    patch.setattr(Partition, "has_enough_in_sync", property(lambda self: True))


def only_the_leader_is_in_sync(script: Script) -> None:
    leader = script.leader(P)
    for other in script.others(leader):
        script.cluster.kill(other)
    script.wait_until(lambda: script.state(P).isr == (leader,))
    script.produce("a")


# The ISR


def no_partition_epoch_check(patch: Patch) -> None:
    original = isr_changes.plan_isr_change

    def plan(context: Any, leader_id: int, partition: Any, reported: PartitionData, version: int) -> Any:
        reported.partition_epoch = context.leaderships[partition].partition_epoch
        return original(context, leader_id, partition, reported, version)

    patch.setattr("controller.active.isr.plan_isr_change", plan)


def late_request_for_an_old_isr(script: Script) -> None:
    """A request of the leader from before a follower left the ISR reaches the controller after that."""
    leader = script.leader(P)
    controller = script.controller()
    complete, lagging = sorted(script.others(leader), key=lambda it: it != controller)
    before = script.state(P)
    script.cut(leader, lagging)
    script.produce("late", acks=1)
    script.wait_until(lambda: lagging not in script.state(P).isr)
    script.produce("a")
    members = [BrokerState(broker_id=it, broker_epoch=-1) for it in (leader, lagging, complete)]
    script.ask_controller(
        lambda epoch, topic_id: AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=epoch,
            topics=[
                TopicData(
                    topic_id=topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=P.index,
                            leader_epoch=before.leader_epoch,
                            new_isr_with_epochs=members,
                            partition_epoch=before.partition_epoch,
                        )
                    ],
                )
            ],
        ),
        3,
        leader,
    )
    for broker in (complete, leader):
        script.cluster.kill(broker)
    script.wait(8.0)


def no_restart_check(patch: Patch) -> None:
    patch.setattr(ActiveController, "_restarted_replicas", lambda self: [])


def leader_returns_empty_without_a_controller(script: Script) -> None:
    """A leader loses its disk and is back while the controller is paused; the next controller sees it registered."""
    leader, controller = script.leader(P), script.controller()
    assert leader != controller
    script.produce("a")
    machine = script.cluster.machines[leader]
    script.pause(controller)
    script.cluster.kill(leader)
    machine.disk.erase()
    script.history.losses.append(DataLoss(script.world.now_us, leader))
    script.cluster.zookeeper.expire(machine.host)
    script.cluster.start(leader)
    script.wait_until(lambda: script.cluster.is_running(leader))
    script.cluster.kill(controller)
    script.wait(10.0)


# The doors of a broker


def no_controller_epoch(patch: Patch) -> None:
    original = ControlFence.admit

    def admit(self: ControlFence, request: Any) -> ErrorCode:
        request.controller_epoch = 1_000_000
        return original(self, request)

    patch.setattr(ControlFence, "admit", admit)


def replaced_controller_deletes_a_replica(script: Script) -> None:
    """A request of a controller that has been replaced arrives late: it deletes the only complete replica."""
    leader = script.leader(P)
    script.produce("a")
    first = script.controller()
    script.cluster.zookeeper.expire(script.cluster.machines[first].host)
    script.wait_until(lambda: script.controller_epoch() > 1)
    script.wait(2.0)
    leader = script.leader(P)
    for target in script.cluster.machines:
        if target != leader:
            script.stop_replica(target, controller_epoch=1)
    script.cluster.kill(leader)
    script.wait(8.0)
    script.wait_until(lambda: script.leader(P) not in (leader, -1), limit_s=15)
    script.produce("b")


def no_broker_epoch(patch: Patch) -> None:
    original = ControlFence.admit

    def admit(self: ControlFence, request: Any) -> ErrorCode:
        request.broker_epoch = -1
        return original(self, request)

    patch.setattr(ControlFence, "admit", admit)


def request_for_an_earlier_registration(script: Script) -> None:
    """A request that deletes a replica was sent before its broker registered again."""
    script.produce("a")
    leader = script.leader(P)
    script.wait(1.0)
    for target in script.cluster.machines:
        if target != leader:
            script.stop_replica(target, controller_epoch=script.controller_epoch(), broker_epoch=0)
    script.cluster.kill(leader)
    script.wait(8.0)
    script.wait_until(lambda: script.leader(P) not in (leader, -1), limit_s=15)
    script.produce("b")


# Elections


def unclean_leaders(patch: Patch) -> None:
    original = election.leader_when_offline

    def choose(assignment: Any, isr: Any, live: Any, *, unclean_allowed: bool) -> Any:
        return original(assignment, isr, live, unclean_allowed=True)

    patch.setattr(election, "leader_when_offline", choose)


def last_in_sync_replica_dies(script: Script) -> None:
    leader = script.leader(P)
    others = script.others(leader)
    for other in others:
        script.cluster.kill(other)
    script.wait_until(lambda: script.state(P).isr == (leader,))
    script.produce("a", acks=1)
    script.cluster.kill(leader)
    for other in others:
        script.cluster.start(other)
    script.wait(20.0)


GUARDS = [
    Guard(
        "leader epoch of a fetch",
        no_epoch_check,
        consumer_asks_a_deposed_leader,
        ("I1 consumers see one leader per epoch",),
    ),
    Guard(
        "consumers read below the high watermark",
        consumers_read_to_the_end,
        consumer_reads_what_one_replica_has,
        ("I7 the high watermark is monotonic and bounds reads", "I5 no visible record is lost"),
    ),
    Guard(
        "the high watermark waits for the ISR",
        no_wait_for_followers,
        leader_is_cut_off_and_dies,
        ("I4 no acknowledged record is lost", "I11 acknowledged means stored by min.insync.replicas"),
    ),
    Guard(
        "replicas that leave count until the controller confirms",
        leaving_replicas_do_not_count,
        controller_does_not_hear_of_a_shrink,
        (
            "I9 a deposed leader acknowledges nothing",
            "I4 no acknowledged record is lost",
            "I11 acknowledged means stored by min.insync.replicas",
        ),
    ),
    Guard(
        "min.insync.replicas",
        min_isr_does_not_hold,
        only_the_leader_is_in_sync,
        ("I11 acknowledged means stored by min.insync.replicas",),
    ),
    Guard(
        "partition epoch of AlterPartition",
        no_partition_epoch_check,
        late_request_for_an_old_isr,
        ("I4 no acknowledged record is lost", "I11 acknowledged means stored by min.insync.replicas"),
    ),
    Guard(
        "restart without a controller",
        no_restart_check,
        leader_returns_empty_without_a_controller,
        ("I4 no acknowledged record is lost",),
    ),
    Guard(
        "controller epoch of control requests",
        no_controller_epoch,
        replaced_controller_deletes_a_replica,
        ("I4 no acknowledged record is lost", "no client is stuck"),
    ),
    Guard(
        "broker epoch of control requests",
        no_broker_epoch,
        request_for_an_earlier_registration,
        ("I4 no acknowledged record is lost", "no client is stuck"),
    ),
    Guard(
        "no unclean leader",
        unclean_leaders,
        last_in_sync_replica_dies,
        ("I13 no unclean election unless allowed",),
    ),
]


def violated(guard: Guard) -> list[str]:
    script = Script(properties=dict(guard.properties))
    with script.world:
        script.begin()
        guard.case(script)
        return [violation.rule for violation in script.end()]


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.name for guard in GUARDS])
def test_case_breaks_no_rule(guard: Guard) -> None:
    assert violated(guard) == []


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.name for guard in GUARDS])
def test_case_is_caught_without_its_guard(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.remove(monkeypatch)
    assert set(violated(guard)) & set(guard.rules)
