"""Each guard is tested by its absence: a scripted case passes with it, and a checker catches the case without it.

A case breaks a rule only if its guard is removed, at the one place that `remove` patches. So a guard that is no longer
in force fails here. Without their guards most cases run with `--soak` only: users have the product with its guards,
and `test_checkers` breaks the rules of these cases by histories.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from broker.cluster.control_requests import ControlFence
from broker.coordination.led_partitions import LedPartitions
from broker.coordination.replicated_log import ReplicatedLog
from broker.groups.machine.consumer.group import ConsumerGroup
from broker.groups.machine.consumer.stored_group import StoredGroup
from broker.groups.machine.group import Group
from broker.handlers.fetch import _Reader
from broker.loop.promise import resolved
from broker.lost_logs import LostLogs
from broker.replica import partition as partition_module
from broker.replica import reader
from broker.replica.appends import Appends
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.delayed_fetch import AwaitedPartition
from broker.replica.fetch_service import Fetch
from broker.replica.fetch_sessions import FetchPartition
from broker.replica.machine.fetcher import Fetcher
from broker.replica.machine.isr import committed_offset
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Effect, FetchIsolation, Partition
from broker.share.machine import deliveries
from broker.share.machine.deliveries import AcknowledgeType, Deliveries, RecordState
from broker.share.shared_partition import SharedPartitions
from broker.transactions.machine.transaction import Transaction as CoordinatedTransaction
from controller.active.controller import ActiveController
from controller.active.fenced_store import FencedStore
from controller.machine import election, isr_changes, leadership, topic_deletion
from controller.machine.leadership import LeadershipPlan
from controller.machine.replica_states import ReplicaState
from controller.machine.topic_deletion import DeletionStep
from controller.store.state_store import ANY_VERSION, Check, SetData
from controller.tree import paths, topic_nodes
from controller.tree.entity_configs import change_overrides
from controller.zookeeper.settings import ZooKeeperSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import BrokerState, PartitionData
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from storage.log import log_truncation
from storage.log.divergence import TruncationPoint
from storage.log.log_reader import LogReader
from storage.log.segment_reader import Wanted
from storage.producers.producer_state import ProducerState
from storage.segments.leader_epochs import EpochEnd
from tests.sim.clients.admin import SEGMENT_BYTES, Admin
from tests.sim.clients.base import GROUP, Failed, Retry
from tests.sim.clients.consumer import IDS_VERSION, SILENT, Consumer
from tests.sim.clients.consumer_member import ConsumerMember
from tests.sim.clients.copier import LATE_BATCH, OF_VERSION_2, Copier, Fenced
from tests.sim.clients.member import REPLACED, Member
from tests.sim.clients.producer import Producer
from tests.sim.clients.share_member import ShareMember
from tests.sim.guards import ends_raise_no_epoch
from tests.sim.history import ACCEPT, RELEASE, DataLoss, Transaction
from tests.sim.history import Partition as TopicPartition
from tests.sim.rules import TRANSACTIONS
from tests.sim.run import (
    BROKERS,
    ENABLE_VERSION_2,
    LOCK_MS,
    NEWER_GROUPS,
    PLAIN,
    SETTINGS,
    SHARE_GROUP,
    SOURCE,
    TARGETS,
)
from tests.sim.scripted import Script
from tests.sim.test_checkers import BROKEN
from tests.sim.wait_checks import WOKEN
from tests.sim.zookeeper import HOST as ZOOKEEPER

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
    brokers: int = BROKERS


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


def held_by_no_min_isr(patch: Patch) -> None:
    """Let the high watermark advance with too few in-sync replicas; producers with acks=all are rejected as before."""

    def advance(self: Partition, now_ms: int) -> bool:
        rules = self._rules
        return self.log.advance_high_watermark(
            committed_offset(
                self.log.log_end_offset,
                self._followers,
                self.maximal_isr,
                is_alive=rules.is_alive,
                now_ms=now_ms,
                lag_ms_max=rules.lag_ms_max,
            )
        )

    patch.setattr(Partition, "advance_high_watermark", advance)


def consumer_reads_from_the_only_in_sync_replica(script: Script) -> None:
    leader = script.leader(P)
    for other in script.others(leader):
        script.cluster.kill(other)
    script.wait_until(lambda: script.state(P).isr == (leader,))
    script.produce("a", acks=1)
    script.consume(P, leader, script.state(P).leader_epoch)


def joining_replicas_do_not_count(patch: Patch) -> None:
    """Let the high watermark wait for the committed ISR only, although the controller may have applied an expansion."""

    def committed(self: Partition) -> Any:
        change = self.isr_change
        return change.committed if change is not None and change.is_shrink else self.leadership.isr

    patch.setattr(Partition, "maximal_isr", property(committed))


def leader_does_not_hear_of_an_expansion(script: Script) -> None:
    """A follower joins the ISR; neither it nor the controller, which is the same broker, reports it to the leader."""
    leader = script.leader(P)
    joining, other = script.others(leader)
    script.elect_controller(other)
    script.cut(leader, joining)
    script.produce("late", acks=1)
    script.wait_until(lambda: script.is_out_of_sync(P, joining))
    script.elect_controller(joining)
    script.mend(leader, joining)
    script.catch(lambda: not script.is_out_of_sync(P, joining))
    script.cut(joining, leader, one_way=True)
    script.wait(6.0)
    send = script.begin_produce("a", broker=leader)
    script.wait(1.0)
    for broker in (leader, other):
        script.cluster.kill(broker)
    script.wait_until(send.task.done)
    script.wait(8.0)


def positions_stay_over_missed_epochs(patch: Patch) -> None:
    original = Partition.lead

    def lead(self: Partition, state: Any, now_ms: int) -> bool:
        self.leader_epoch = state.leader_epoch - 1
        return original(self, state, now_ms)

    patch.setattr(Partition, "lead", lead)


def leader_does_not_hear_that_another_led(script: Script) -> None:
    """A follower truncates its log to that of a leader of which the one before and after never hears."""
    leader = script.leader(P)
    between, follower = script.others(leader)
    script.elect_controller(between)
    script.cut(leader, between)
    send = script.begin_produce("a")
    script.wait(1.0)
    script.move(P, [between, leader, follower])
    script.prefer()
    script.lead_with(P, between)
    script.wait(1.0)
    script.pause(follower)
    script.cluster.stop(between)
    script.wait_until(lambda: script.controller_or_none() == leader)
    script.wait(0.5)
    script.leave(leader)
    script.resume(follower)
    script.lead_with(P, follower)
    script.wait_until(send.task.done)


# The ISR


def joins_at_the_high_watermark(patch: Patch) -> None:
    patch.setattr(
        partition_module,
        "may_join",
        lambda follower, *, high_watermark, epoch_start_offset: follower.log_end_offset >= high_watermark,
    )


def new_leader_has_an_old_high_watermark(script: Script) -> None:
    """The new leader does not know yet that a record is committed, which a follower outside of the ISR lacks."""
    old = script.leader(P)
    new, lagging = script.others(old)
    script.elect_controller(new)
    script.cluster.kill(lagging)
    script.cluster.zookeeper.expire(script.cluster.machines[lagging].host)
    script.wait_until(lambda: script.is_out_of_sync(P, lagging))
    script.cut(old, lagging)
    script.cluster.start(lagging)
    script.wait_until(lambda: script.cluster.is_running(lagging))
    send = script.begin_produce("a")
    script.lose_answer_to_fetch(new, old)
    script.wait_until(send.task.done)
    script.cluster.kill(old)
    script.catch(lambda: script.leader(P) == new)
    script.catch(lambda: script.replica(P, lagging).leader_epoch == script.state(P).leader_epoch)
    script.lose_answer_to_fetch(lagging, new)
    script.wait(1.0)
    script.cluster.kill(new)
    script.wait(10.0)


def no_fence_of_earlier_registrations(patch: Patch) -> None:
    original = Partition.follower_fetched

    def fetched(self: Partition, replica: int, offset: int, log_start: int, now_ms: int, broker_epoch: int = -1) -> Any:
        follower = self.progress_of(replica)
        known = -1 if follower is None else follower.broker_epoch
        return original(self, replica, offset, log_start, now_ms, max(broker_epoch, known))

    patch.setattr(Partition, "follower_fetched", fetched)


def late_fetch_of_an_earlier_registration(script: Script) -> None:
    """A follower returns with an empty disk and fetches; then a fetch arrives from before it lost its disk."""
    leader = script.leader(P)
    controller, lost = script.others(leader)
    script.elect_controller(controller)
    script.produce("a")
    old_epoch = script.broker_epoch(lost)
    script.return_empty(lost)
    script.wait_until(lambda: script.is_out_of_sync(P, lost))
    script.cluster.start(lost)
    script.lose_answer_to_fetch(lost, leader)
    script.wait(0.5)
    script.fetch_as_follower(leader, lost, old_epoch, 1)
    script.wait(1.0)
    for broker in (leader, controller):
        script.cluster.kill(broker)
    script.wait(10.0)


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
    script.alter_partition(leader, members, before.leader_epoch, before.partition_epoch)
    for broker in (complete, leader):
        script.cluster.kill(broker)
    script.wait(8.0)


def no_restart_check(patch: Patch) -> None:
    async def none(self: ActiveController) -> list[object]:
        return []

    patch.setattr(ActiveController, "_restarted_replicas", none)


def leader_returns_empty_without_a_controller(script: Script) -> None:
    """A leader loses its disk and is back while the controller is paused; the next controller sees it registered."""
    leader, controller = script.leader(P), script.controller()
    assert leader != controller
    script.produce("a")
    script.pause(controller)
    script.return_empty(leader)
    script.cluster.start(leader)
    script.wait_until(lambda: script.cluster.is_running(leader))
    script.cluster.kill(controller)
    script.wait(10.0)


def restarted_leaders_keep_their_epoch(patch: Patch) -> None:
    async def none(self: ActiveController, out_of_sync: object) -> list[object]:
        return []

    patch.setattr(ActiveController, "_led_by_restarted", none)


def all_restart_before_an_election_and_the_leader_has_lost_a_record(script: Script) -> None:
    """All brokers restart and register while another process holds the controller's node; then it is gone.

    The leader has lost a record, and writes another one in its place before its followers continue.
    """
    zookeeper, machines = script.cluster.zookeeper, script.cluster.machines
    leader = script.leader(P)
    others = script.others(leader)
    script.produce("a", acks=1)
    script.wait(1.0)
    script.cluster.lose_power(leader)
    script.history.losses.append(DataLoss(script.world.now_us, leader))
    for other in others:
        script.cluster.kill(other)
    for machine in machines.values():
        zookeeper.expire(machine.host)
    holder = zookeeper.new_store("holder", script.actor.loop, ZooKeeperSettings("zookeeper:2181"))
    script.do(holder.open())
    script.do(holder.create(paths.CONTROLLER, paths.encode_controller(9, 0), ephemeral=True))
    script.cluster.return_power(leader)
    for broker in machines:
        script.cluster.start(broker)
    script.wait_until(lambda: all(paths.broker_path(broker) in zookeeper.tree.entries for broker in machines))
    script.wait(0.5)
    for other in others:
        script.pause(other)
    script.do(holder.close())
    script.wait_until(lambda: script.controller_or_none() == leader)
    script.wait(0.5)
    script.produce("b", acks=1)
    for other in others:
        script.resume(other)
    script.wait(5.0)


def no_registration_check(patch: Patch) -> None:
    patch.setattr(isr_changes, "_check_epochs", lambda context, reported: None)


def restarted_follower_is_reported_as_complete(script: Script) -> None:
    """A follower returns with an empty disk; then a request arrives that rests on what it had fetched before."""
    leader = script.leader(P)
    controller = script.controller()
    complete, lost = sorted(script.others(leader), key=lambda it: it != controller)
    script.produce("a")
    old_epoch = script.broker_epoch(lost)
    script.return_empty(lost)
    script.wait_until(lambda: script.is_out_of_sync(P, lost))
    script.cut(leader, lost)
    script.cluster.start(lost)
    script.wait_until(lambda: script.cluster.is_running(lost))
    script.wait(1.0)
    state = script.state(P)
    members = [BrokerState(broker_id=it, broker_epoch=-1) for it in state.isr]
    members.append(BrokerState(broker_id=lost, broker_epoch=old_epoch))
    script.alter_partition(leader, members, state.leader_epoch, state.partition_epoch)
    for broker in (complete, leader):
        script.cluster.kill(broker)
    script.wait(8.0)


def no_check_of_reported_members(patch: Patch) -> None:
    patch.setattr(isr_changes, "_check", lambda context, partition, current, wanted, version: None)


def leader_reports_no_members(script: Script) -> None:
    state = script.state(P)
    script.alter_partition(state.leader, [], state.leader_epoch, state.partition_epoch)


def last_member_leaves(patch: Patch) -> None:
    original = leadership.plan_removal_from_isr

    def plan(context: Any, current: Any, broker_id: int) -> LeadershipPlan:
        planned = original(context, current, broker_id)
        for index, change in enumerate(planned.changes):
            isr = tuple(it for it in change.state.isr if it != broker_id)
            planned.changes[index] = replace(change, state=replace(change.state, isr=isr))
        return planned

    patch.setattr("controller.active.transitions.plan_removal_from_isr", plan)


def caught_up_replicas_do_not_count(patch: Patch) -> None:
    """Let the high watermark wait for the ISR only."""

    def committed(*arguments: Any, is_alive: Any, **others: Any) -> int:
        return committed_offset(*arguments, is_alive=lambda broker: False, **others)

    patch.setattr(partition_module, "committed_offset", committed)


def follower_is_to_join_while_records_arrive(script: Script) -> None:
    """The fetches of a follower take longer than those of the ISR, so it is always behind the high watermark."""
    leader = script.leader(P)
    follower, other_follower = script.others(leader)
    script.elect_controller(other_follower)
    script.cut(leader, follower)
    script.produce("late", acks=1)
    script.wait_until(lambda: script.is_out_of_sync(P, follower))
    host, other = (script.cluster.machines[it].host for it in (leader, follower))
    script.cluster.network.slow_down(host, other, 300_000)
    for number in range(600):
        script.begin_produce(f"{number}", acks=1)
        script.wait(0.01)
        if number == 50:
            script.mend(leader, follower)
        if not script.is_out_of_sync(P, follower):
            break
    else:
        script._note("I12 replicas are complete after healing", "a follower cannot join while records arrive")
    script.wait(1.0)


def anyone_may_fetch_as_a_follower(patch: Patch) -> None:
    patch.setattr(Partition, "require_follower", lambda self, replica_id, current_leader_epoch: None)


def late_responses_count(patch: Patch) -> None:
    """Let a part of a response count whatever was requested, if its partition is fetched at all."""
    original = Fetcher.effect_of

    def effect_of(self: Fetcher, partition: Any, data: Any) -> Any:
        requested = self._session.get(partition.key)
        if requested is None:
            return None
        self._session[partition.key] = partition.known
        try:
            return original(self, partition, data)
        finally:
            self._session[partition.key] = requested

    patch.setattr(Fetcher, "effect_of", effect_of)


def response_of_the_epoch_before_is_late(script: Script) -> None:
    """A leader refuses a fetch of the epoch before, but its follower has heard of the new epoch when it learns that."""
    leader, *others = script.states.assignment(P)
    script.lead_with(P, leader)
    script.elect_controller(leader)
    for other in others:
        script.cluster.network.slow_down(*(script.cluster.machines[it].host for it in (leader, other)), 15_000)
    for number in range(60):
        others.reverse()
        assert script.move(P, [leader, *others]) == ErrorCode.NONE  # completes immediately, with a new leader epoch
        script.produce(f"{number}", acks=1)
        script.wait(1.0)
        ends = {script.replica(P, broker).log.log_end_offset for broker in (leader, *others)}
        if len(ends) > 1:
            break


def unassigned_replica_fetches(script: Script) -> None:
    """A broker without a replica fetches at the end of the log. Then the next append must not wait for it."""
    leader = script.leader(P)
    stranger = script.others(*script.states.assignment(P))[0]
    script.fetch_as_follower(leader, stranger, script.broker_epoch(stranger), 0)
    send = script.begin_produce("a")
    script.wait(2.0)
    if not send.task.done():
        script._note("no client is stuck", "an append waits for a broker that has no replica")
    script.wait_until(send.task.done)


# Truncation


def leaders_answer_is_final(patch: Patch) -> None:
    """Truncate to the end of the epoch that the leader names, although the follower may have no such epoch."""

    def point(leaders: EpochEnd, own_epochs: Any, *, log_end_offset: int, high_watermark: int) -> TruncationPoint:
        return TruncationPoint(min(leaders.end_offset, log_end_offset), is_final=True)

    patch.setattr(log_truncation, "truncation_point", point)


def logs_diverge_in_two_epochs(script: Script) -> None:
    """Two brokers lead in turns, each elected uncleanly, so that each has two epochs that the other lacks.

    The first one's log: a, x1 (epoch 1), x2, x3 (epoch 3); the second one's: a, y1, y2 (epoch 2), y3 (epoch 4).
    """
    script.history.allows_unclean = True
    first = script.leader(P)
    second, third = script.others(first)
    script.produce("a")
    script.leave(second, third)
    for leader, other, values in (
        (first, None, ["x1"]),
        (second, first, ["y1", "y2"]),
        (first, second, ["x2", "x3"]),
        (second, first, ["y3"]),
    ):
        if other is not None:
            script.leave(other)
            script.cluster.start(leader)
        script.wait_until(lambda leader=leader: script.state(P).isr == (leader,))  # type: ignore[misc]
        for value in values:
            script.wait_until(lambda value=value: script.produce(value, acks=1).acked_us is not None)  # type: ignore[misc]
    script.cluster.network.slow_down(script.cluster.machines[first].host, script.cluster.machines[second].host, 20_000)


def no_divergence(patch: Patch) -> None:
    patch.setattr(reader, "_divergence", lambda partition, wanted: None)


def deposed_leader_returns_with_another_record(script: Script) -> None:
    """It has appended a record that no other replica has; the new leader has another record at this offset."""
    old = script.leader(P)
    script.produce("a")
    script.isolate(old)
    script.produce("only here", acks=1, broker=old)
    script.wait_until(lambda: script.leader(P) not in (old, -1))
    script.produce("b")
    script.rejoin(old)
    script.wait(8.0)


# Producers and transactions


def no_duplicate_check(patch: Patch) -> None:
    patch.setattr(ProducerState, "check_data", lambda self, header, offset: None)


def producer_sends_each_batch_twice(script: Script) -> None:
    producer = Producer("p", script, [P], count=8, is_idempotent=True, duplicates=1.0)
    script.let_run(producer)
    script.wait(2.0)


def committed_readers_read_to_the_high_watermark(patch: Patch) -> None:
    patch.setattr(
        Partition,
        "readable_end_offset",
        lambda self, isolation: (
            self.log.log_end_offset if isolation is FetchIsolation.LOG_END else self.log.high_watermark
        ),
    )


def transactions_while_a_reader_polls(script: Script) -> None:
    source = Producer("p", script, [SOURCE], count=10, is_idempotent=True, pause_s=0.1)
    copier = Copier("copier", script, SOURCE, TARGETS, count=6, pause_s=0.1)
    reader_ = Consumer("r", script, TARGETS, is_committed=True, pause_s=0.01)
    reader_.start()
    script.let_run(source, copier)


def no_producer_epoch(patch: Patch) -> None:
    patch.setattr(ProducerState, "_check_epoch", lambda self, entry, epoch, offset: None)


def zombie_writes_into_the_transaction_of_its_successor(script: Script) -> None:
    old, new = (Copier("copier", script, SOURCE, TARGETS, count=0) for _ in range(2))
    target = TARGETS[0]
    transactions = [Transaction(name, "copier", script.world.now_us) for name in ("first", "second")]
    for copier, transaction in zip((old, new), transactions, strict=True):
        script.history.transactions[transaction.name] = transaction
        transaction.reads = ["x"]
        script.let(copier, "InitProducerId", copier._initialize)  # the second one aborts the first transaction
        script.let(copier, "AddPartitionsToTxn", partial(copier._add, target))
        script.let(copier, "Produce", partial(copier._write, transaction, target))
    first, second = transactions
    first.outcome = "aborted"
    first.reads = ["late"]
    old._sequences.clear()
    with suppress(Fenced):
        script.let(old, "Produce", partial(old._write, first, target))
    second.end_asked_us = script.world.now_us
    script.let(new, "EndTxn", partial(new._end, True))
    second.outcome = "committed"


def batch_of_an_ended_transaction_is_late(script: Script) -> None:
    """It arrives in the next transaction of its producer, in a partition that has the marker of its own."""
    copier = Copier("copier", script, SOURCE, TARGETS, count=0)
    script.let(copier, "InitProducerId", copier._initialize)
    copier._versions = OF_VERSION_2
    for name, target in zip(("first", "second"), TARGETS, strict=True):
        transaction = Transaction(name, "copier", script.world.now_us, reads=[name], instance=copier._identity)
        script.history.transactions[name] = transaction
        script.let(copier, "Produce", partial(copier._write, transaction, target))
        if name == "second":
            script.let(copier, "Produce of the first", partial(copier._send_late_batch, TARGETS[0]))
        transaction.end_asked_us = script.world.now_us
        script.let(copier, "EndTxn", partial(copier._end, True))
        transaction.outcome = "committed"
        transaction.ended_us = script.world.now_us


def coordinators_serve_older_instances(patch: Patch) -> None:
    original = CoordinatedTransaction._producer_error

    def error(self: CoordinatedTransaction, producer: Any) -> ErrorCode:
        return original(self, producer._replace(epoch=self.current.producer_epoch))

    patch.setattr(CoordinatedTransaction, "_producer_error", error)


def older_instance_goes_on(script: Script) -> None:
    """The newer instance has begun, but has written nothing: no partition knows its epoch."""
    old, new = (Copier(name, script, SOURCE, TARGETS, count=0, transactional_id="copier") for name in ("old", "new"))
    target = TARGETS[0]
    for copier in (old, new):
        script.let(copier, "InitProducerId", copier._initialize)
    transaction = Transaction("late", "old", script.world.now_us, reads=["x"], instance=old._identity)
    script.history.transactions[transaction.name] = transaction
    with suppress(Failed, Fenced):
        script.let(old, "AddPartitionsToTxn", partial(old._add, target))
        script.let(old, "Produce", partial(old._write, transaction, target))
    transaction.outcome = "unknown"
    script.let(new, "InitProducerId", new._initialize)


def no_coordinator_epoch(patch: Patch) -> None:
    original = ProducerState.check_marker

    def check(self: ProducerState, header: Any, marker: Any, offset: int) -> None:
        original(self, header, marker._replace(coordinator_epoch=1_000_000), offset)

    patch.setattr(ProducerState, "check_marker", check)


def marker_of_a_replaced_coordinator_is_late(script: Script) -> None:
    """The coordinator has moved. In the second transaction an abort of the first arrives from where it was before."""
    copier = Copier("copier", script, SOURCE, TARGETS, count=0)
    script.let(copier, "InitProducerId", copier._initialize)
    coordinator = script.leader(TRANSACTIONS)
    script.cluster.zookeeper.expire(script.cluster.machines[coordinator].host)
    script.wait_until(lambda: script.leader(TRANSACTIONS) not in (coordinator, -1))
    script.wait(1.0)
    for name in ("first", "second"):
        transaction = Transaction(name, "copier", script.world.now_us)
        transaction.reads = [f"{name}-x"]
        script.history.transactions[name] = transaction
        for target in TARGETS:
            script.let(copier, "AddPartitionsToTxn", partial(copier._add, target))
            script.let(copier, "Produce", partial(copier._write, transaction, target))
        if name == "second":
            late = WritableTxnMarker(
                producer_id=copier._identity[0],
                producer_epoch=copier._identity[1],
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=TARGETS[0].topic, partition_indexes=[TARGETS[0].index])],
                coordinator_epoch=0,
            )
            script.ask(script.leader(TARGETS[0]), WriteTxnMarkersRequest(markers=[late]), 1)
        transaction.end_asked_us = script.world.now_us
        script.let(copier, "EndTxn", partial(copier._end, True))
        transaction.outcome = "committed"
        transaction.ended_us = script.world.now_us


def coordinator_keeps_its_epoch(patch: Patch) -> None:
    original = LedPartitions.become_leader

    def become(self: LedPartitions[Any], number: int, leader_epoch: int) -> None:
        if self.get(number) is None:
            original(self, number, leader_epoch)

    patch.setattr(LedPartitions, "become_leader", become)


def coordinator_does_not_hear_of_another(script: Script) -> None:
    """Another coordinator writes a marker, of which the one before and after never hears; it sends that marker too."""
    target = TARGETS[0]
    copier = Copier("copier", script, SOURCE, TARGETS, count=0)
    script.let(copier, "InitProducerId", copier._initialize)
    coordinator = script.leader(TRANSACTIONS)
    between, other = script.others(coordinator)
    script.move(target, [between, other, coordinator])
    script.prefer()
    script.lead_with(target, between)
    script.elect_controller(between)
    transaction = Transaction("first", "copier", script.world.now_us)
    transaction.reads = ["x"]
    script.history.transactions["first"] = transaction
    script.let(copier, "AddPartitionsToTxn", partial(copier._add, target))
    script.let(copier, "Produce", partial(copier._write, transaction, target))
    transaction.end_asked_us = script.world.now_us
    log = script.replica(TRANSACTIONS, coordinator).log
    before = log.log_end_offset
    ending = copier.loop.start(copier.until_done("EndTxn", partial(copier._end, True)))
    script.catch(lambda: before < log.log_end_offset == log.high_watermark)
    script.cut(coordinator, between)
    script.wait_until(ending.done)
    transaction.outcome = "committed"
    transaction.ended_us = script.world.now_us
    script.move(TRANSACTIONS, [between, coordinator, other])
    script.prefer()
    script.lead_with(TRANSACTIONS, between)
    script.wait(1.0)
    script.pause(other)
    script.cluster.stop(between)
    script.wait_until(lambda: script.controller_or_none() == coordinator)
    script.resume(other)
    script.wait(2.0)
    assert script.leader(TRANSACTIONS) == coordinator
    next_one = copier.loop.start(copier.until_done("AddPartitionsToTxn", partial(copier._add, target)))
    script.wait(10.0)
    if not next_one.done():
        script._note_stuck(copier)
    next_one.cancel()


def coordinators_do_not_wait(patch: Patch) -> None:
    async def committed(self: ReplicatedLog, partition: int, end_offset: int) -> None: ...

    patch.setattr(ReplicatedLog, "committed", committed)


def coordinator_dies_with_what_it_alone_has(script: Script) -> None:
    """A partition is added to a transaction, and the third coordinator does not know it; nor does one leader of two."""
    copier = Copier("copier", script, SOURCE, TARGETS, count=0)
    script.let(copier, "InitProducerId", copier._initialize)
    script.wait(1.0)
    first, second, third = script.state(TRANSACTIONS).replicas
    others = script.others(first, second, third)
    script.elect_controller(others[0])
    for target in TARGETS:
        script.move(target, others)
        script.wait_until(lambda target=target: set(script.state(target).isr) == set(others))  # type: ignore[misc]
    transaction = Transaction("first", "copier", script.world.now_us)
    transaction.reads = ["x"]
    script.history.transactions["first"] = transaction
    script.let(copier, "AddPartitionsToTxn", partial(copier._add, TARGETS[0]))
    script.let(copier, "Produce", partial(copier._write, transaction, TARGETS[0]))
    for broker in (first, second):
        script.cut(third, broker)
    adding = copier.loop.start(copier.until_done("AddPartitionsToTxn", partial(copier._add, TARGETS[1])))
    script.wait(0.3)
    script.leave(first)
    script.lead_with(TRANSACTIONS, second)
    script.wait(2.0)
    writing = copier.loop.start(copier.until_done("Produce", partial(copier._write, transaction, TARGETS[1])))
    script.wait(1.0)
    script.leave(second)
    script.lead_with(TRANSACTIONS, third)
    for broker in (first, second):
        script.mend(third, broker)
        script.cluster.start(broker)
    script.wait_until(lambda: adding.done() and writing.done())
    transaction.end_asked_us = script.world.now_us
    script.let(copier, "EndTxn", partial(copier._end, True))
    transaction.outcome = "committed"
    transaction.ended_us = script.world.now_us


# Groups


def no_generation(patch: Patch) -> None:
    original = Group._member_error

    def error(self: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        return original(self, member_id, group_instance_id, self.generation_id)

    patch.setattr(Group, "_member_error", error)


def commit_of_an_earlier_generation_is_late(script: Script) -> None:
    script.produce("a")
    one, other = (Member(name, script, "group", PLAIN, count=0) for name in ("one", "other"))
    script.let(one, "JoinGroup", one._join)
    joining = other.loop.start(other.until_done("JoinGroup", other._join))
    script.wait(0.5)
    script.let(one, "JoinGroup", one._join)
    script.wait_until(joining.done)
    assert one._generation == other._generation
    one._generation -= 1
    with suppress(Failed):
        script.let(one, "OffsetCommit", one._commit)


def any_partition_is_free(patch: Patch) -> None:
    patch.setattr(StoredGroup, "is_free", lambda self, topic_id, partition: True)


def member_joins_while_another_has_everything(script: Script) -> None:
    one, other = (ConsumerMember(name, script, "group", PLAIN, count=0) for name in ("one", "other"))
    for member in (one, other, one, other):
        script.let(member, "ConsumerGroupHeartbeat", member._beat)
        script.wait(0.5)
    assert len(one._owned) == len(other._owned) == 1


def epochs_of_members_are_not_compared(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "_epoch_error", lambda self, member_id, epoch: ErrorCode.NONE)


def commit_in_an_earlier_epoch_is_late(script: Script) -> None:
    """And it is an older offset, which the next owner reads."""
    one, other = (ConsumerMember(name, script, "group", [P], count=0) for name in ("one", "other"))
    script.let(one, "ConsumerGroupHeartbeat", one._beat)
    before = one._member_id, one._generation
    one.positions[P] = 5
    script.let(one, "OffsetCommit", one._commit)
    script.let(other, "ConsumerGroupHeartbeat", other._beat)
    script.let(one, "ConsumerGroupHeartbeat", one._beat)
    owner = one if one._owned else other
    script.let(owner, "OffsetFetch", lambda: owner._fetch_positions([P]))
    one.positions[P] = 3
    with suppress(Failed):
        script.let(one, "OffsetCommit", lambda: one.commit_as(*before, [P]))
    script.let(owner, "OffsetFetch", lambda: owner._fetch_positions([P]))


def share_members(script: Script, *names: str) -> list[ShareMember]:
    """Return members of a share group that reads one partition from the start."""
    admin = Admin("admin", script, [], count=0, replication_factor=BROKERS)
    setting = admin.loop.start(admin.change_group(SHARE_GROUP, "share.auto.offset.reset", "earliest"))
    script.wait_until(setting.done)
    script.wait(0.5)
    script.history.lock_us, script.history.delivery_count_max = LOCK_MS * 1000, 5
    return [ShareMember(name, script, SHARE_GROUP, [P], count=0) for name in names]


def poll_shared(script: Script, member: ShareMember, opinion: int | None) -> None:
    """Let a member send a heartbeat and fetch, and have an opinion of what it gets."""

    async def poll() -> None:
        await member._beat_if_due()
        while not await member._poll():
            await member._beat_if_due()

    member._opinion = lambda: opinion  # type: ignore[method-assign]
    script.let(member, "ShareFetch", poll)


def records_are_released_without_end(patch: Patch) -> None:
    original = Deliveries._end
    patch.setattr(
        Deliveries,
        "_end",
        lambda self, run, state, limits: original(self, run, state, replace(limits, delivery_count_max=99)),
    )


def record_is_released_again_and_again(script: Script) -> None:
    script.produce("a")
    (member,) = share_members(script, "one")
    for _ in range(4 * script.history.delivery_count_max):  # about half of them ask the leader of the record
        poll_shared(script, member, RELEASE)


def acknowledgements_are_not_stored(patch: Patch) -> None:
    patch.setattr(SharedPartitions, "_store", lambda self, shared: resolved(None))


def leader_dies_after_a_record_was_accepted(script: Script) -> None:
    script.produce("a")
    (member,) = share_members(script, "one")
    leader = script.leader(P)
    for _ in range(2):
        poll_shared(script, member, ACCEPT)
    script.leave(leader)
    script.wait_until(lambda: script.leader(P) not in (leader, -1))
    member.forget_cluster()
    for _ in range(2):
        poll_shared(script, member, ACCEPT)


def locks_expire_at_once(patch: Patch) -> None:
    original = Deliveries.acquire

    def acquire(self: Deliveries, *arguments: Any) -> Any:
        *others, limits, now_ms = arguments
        return original(self, *others, replace(limits, lock_duration_ms=1), now_ms)

    patch.setattr(Deliveries, "acquire", acquire)


def members_fetch_while_a_record_is_locked(script: Script) -> None:
    members = share_members(script, "one", "two", "three", "four")
    for _ in range(2):
        script.wait(1.1)
        for member in members:
            poll_shared(script, member, None)
    one, other = (member for member in members if P in member._assigned)
    script.produce("a")
    for member in (one, other, one):
        poll_shared(script, member, None)


def released_records_are_done(patch: Patch) -> None:
    patch.setitem(deliveries._STATES, AcknowledgeType.RELEASE, RecordState.ACKNOWLEDGED)


def group_reads_to_the_end_after_a_release(script: Script) -> None:
    script.produce("a")
    (member,) = share_members(script, "one")
    for opinion in (RELEASE, ACCEPT):
        poll_shared(script, member, opinion)
    script.history.share_groups[SHARE_GROUP] = [P]
    script.let_run(ShareMember("last", script, SHARE_GROUP, [P], until_end=True))


# Writes of the controller


def unfenced_writes(patch: Patch) -> None:
    original = FencedStore.__init__

    def begin(self: FencedStore, *arguments: Any) -> None:
        original(self, *arguments)
        self._fence = Check(paths.CONTROLLER_EPOCH, ANY_VERSION)

    patch.setattr(FencedStore, "__init__", begin)


def write_of_a_replaced_controller_is_late(script: Script) -> None:
    """A controller writes an ISR over a cut link to ZooKeeper, and another one is elected and writes too."""
    old, leader, other = script.controller(), script.leader(P), PLAIN[1]
    host = script.cluster.machines[old].host
    state = script.state(P)
    members = [BrokerState(broker_id=it, broker_epoch=-1) for it in state.isr[:2]]
    assert leader in state.isr[:2]
    script.cluster.network.cut(host, ZOOKEEPER)
    late = script.actor.loop.start(script.request_isr(leader, members, state.leader_epoch, state.partition_epoch))
    script.wait(0.1)
    script.depose_controller()
    script.wait_until(lambda: script.controller_or_none() not in (None, old))
    script.wait(0.5)
    state = script.state(other)
    in_another_order = [BrokerState(broker_id=it, broker_epoch=-1) for it in state.isr[::-1]]
    script.do(
        script.request_isr(state.leader, in_another_order, state.leader_epoch, state.partition_epoch, partition=other)
    )
    assert script.state(other).controller_epoch == 2
    script.cluster.network.mend(host, ZOOKEEPER)
    script.wait_until(late.done)


def configurations_without_a_controller(patch: Patch) -> None:
    patch.setattr("broker.settings.config_changes.change_overrides", partial(change_overrides, needs_controller=False))


def configuration_is_changed_while_there_is_no_controller(script: Script) -> None:
    """No controller can be elected for a moment, because its epoch was overwritten by hand."""
    tree = script.cluster.zookeeper.tree
    store = script.cluster.zookeeper.new_store("operator", script.actor.loop, ZooKeeperSettings("zookeeper:2181"))
    script.do(store.open())
    epoch = tree.entries[paths.CONTROLLER_EPOCH].data
    script.do(store.set(paths.CONTROLLER_EPOCH, b"overwritten"))
    script.do(store.delete(paths.CONTROLLER))
    script.wait(0.5)
    assert script.controller_or_none() is None
    change = AlterableConfig(name="retention.ms", config_operation=0, value="86400000")
    resource = AlterConfigsResource(resource_type=2, resource_name=P.topic, configs=[change])
    response = script.ask(1, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    if response.responses[0].error_code != ErrorCode.NOT_CONTROLLER:
        script._note("only the latest controller writes states", "a configuration was written without a controller")
    script.do(store.set(paths.CONTROLLER_EPOCH, epoch))
    script.do(store.close())
    script.wait_until(lambda: script.controller_or_none() is not None, limit_s=60)


def dropped_replicas_stay(patch: Patch) -> None:
    patch.setattr(AssignedReplicas, "stop_dropped_replicas", lambda self, request: iter(()))


def leader_is_dropped_while_it_is_away(script: Script) -> None:
    """The replica of a leader that is separated from the cluster is moved to others; then it comes back."""
    leader = script.leader(P)
    others = script.others(leader)
    script.isolate(leader)
    script.wait_until(lambda: script.leader(P) not in (leader, -1))
    script.wait_until(lambda: script.controller_or_none() not in (leader, None))
    assert script.move(P, others) == ErrorCode.NONE
    script.wait(1.0)
    assert leader not in script.states.assignment(P)
    script.rejoin(leader)
    script.wait(10.0)
    if script.produce("a", broker=leader, acks=1).acked_us is not None:
        script._note("I9 a deposed leader acknowledges nothing", f"broker {leader}, which has no replica any more", P)


def logs_fail_quietly(patch: Patch) -> None:
    patch.setattr(LostLogs, "_log_went_offline", lambda self, log: self._replicas.log_went_offline(log))


def log_of_a_leader_fails_alone(script: Script) -> None:
    """A shortage has interrupted a change of its files; the log directory works."""
    leader = script.leader(P)
    script.replica(P, leader).log.take_offline()
    script.wait(3.0)
    if script.produce("a").acked_us is None:
        script._note("no client is stuck", f"broker {leader} leads with a log that is offline", P)
    script.leave(leader)
    script.cluster.start(leader)


# Topics


def deletion_does_not_wait(patch: Patch) -> None:
    """Let a deletion be complete although replicas could not be deleted, because their broker is away."""
    original = topic_deletion.next_step
    over = {ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE}

    async def step(context: Any, pause: Any) -> DeletionStep:
        planned = await original(context, pause)
        finished = [
            topic
            for topic in context.topics_to_delete
            if {context.replica_state(it) for it in context.replicas_of(context.partitions_of(topic))} <= over
        ]
        return replace(planned, finished=tuple(sorted({*planned.finished, *finished})))

    patch.setattr("controller.active.deletions.next_step", step)


def topic_is_deleted_while_a_broker_is_away(script: Script) -> None:
    admin = Admin("admin", script, [], count=0, replication_factor=BROKERS)
    extra = TopicPartition("extra", 0)
    script.do(admin.create(extra.topic, 1))
    script.wait_until(lambda: extra in script.states.latest and len(script.state(extra).isr) == BROKERS)
    away = script.others(script.leader(extra), script.controller())[0]
    script.leave(away)
    script.do(admin.delete(extra.topic))
    script.wait(2.0)
    script.cluster.start(away)
    script.wait_until(lambda: script.cluster.is_running(away))
    script.wait(2.0)


def existing_topics_are_overwritten(patch: Patch) -> None:
    original = topic_nodes.write_new_topic

    async def write(multi: Any, name: str, topic: Any, overrides: dict[str, str]) -> None:
        try:
            await original(multi, name, topic, overrides)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await multi([SetData(paths.topic_path(name), paths.encode_topic(topic))])

    patch.setattr(topic_nodes, "write_new_topic", write)


def two_brokers_create_the_same_topic(script: Script) -> None:
    """Both need the topic of committed offsets at the same time, and neither is the controller, which would create it
    for both. Later another controller reads its node.
    """
    request = FindCoordinatorRequest(key="group", key_type=GROUP)
    brokers = script.others(script.controller())
    script.cluster.zookeeper.become_unavailable()  # so that neither writes before the other has asked
    asked = [script.actor.loop.start(script.actor.ask(broker, request, 3, fresh=True)) for broker in brokers]
    script.wait(0.5)
    script.cluster.zookeeper.become_available()
    script.wait_until(lambda: all(task.done() for task in asked))
    script.wait(1.0)
    script.elect_controller(script.others(script.controller())[0])
    script.cluster.zookeeper.expire(script.cluster.machines[script.controller()].host)
    script.wait(8.0)


# The doors of a broker


def no_leader_epoch(patch: Patch) -> None:
    original = AssignedReplicas._apply

    def apply(self: AssignedReplicas, topic: str, topic_id: Any, state: Any, live_leaders: Any) -> ErrorCode:
        partition = self._replicas.find(topic, state.partition_index)
        if partition is not None and state.leader_epoch < partition.leader_epoch:
            partition.leader_epoch = -1
            partition.leadership = replace(partition.leadership, partition_epoch=-1)
        return original(self, topic, topic_id, state, live_leaders)

    patch.setattr(AssignedReplicas, "_apply", apply)


def state_of_an_earlier_epoch_is_late(script: Script) -> None:
    """The preferred leader leads again when a follower hears that another broker led while it was away."""
    leader = script.leader(P)
    script.cluster.zookeeper.expire(script.cluster.machines[leader].host)
    script.wait_until(lambda: script.leader(P) not in (leader, -1))
    between = script.state(P)
    script.wait_until(lambda: script.leader(P) == leader and len(script.state(P).isr) == 3)
    (follower,) = script.others(leader, between.leader)
    script.send_state(follower, between)
    script.produce("a")
    script.wait(8.0)


def no_leader_epoch_of_stops(patch: Patch) -> None:
    original = AssignedReplicas._stop

    def stop(self: AssignedReplicas, topic: str, state: Any, now_ms: int) -> ErrorCode:
        state.leader_epoch = -1
        return original(self, topic, state, now_ms)

    patch.setattr(AssignedReplicas, "_stop", stop)


def request_to_delete_replicas_is_late(script: Script) -> None:
    """A request from an earlier epoch arrives: it deletes all replicas but the leader's."""
    first = script.leader(P)
    epoch = script.state(P).leader_epoch
    script.cluster.zookeeper.expire(script.cluster.machines[first].host)
    script.wait_until(lambda: script.leader(P) not in (first, -1) and len(script.state(P).isr) == 3)
    script.produce("a")
    leader = script.leader(P)
    for other in script.others(leader):
        script.stop_replica(other, controller_epoch=script.controller_epoch(), leader_epoch=epoch)
    script.leave(leader)
    script.wait(8.0)
    script.wait_until(lambda: script.leader(P) not in (leader, -1), limit_s=15)
    script.produce("b")


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


def no_topic_id(patch: Patch) -> None:
    patch.setattr("broker.replica.assigned_replicas._require_same_topic", lambda log, topic_id: None)


def state_of_a_deleted_topic_is_late(script: Script) -> None:
    """A follower hears of a later epoch of an earlier topic with the same name."""
    leader = script.leader(P)
    follower = script.others(leader)[0]
    state = script.state(P)
    script.send_state(
        follower, replace(state, leader=-1, leader_epoch=1000, partition_epoch=1000), topic_id=UUID(int=9)
    )
    script.produce("a", acks=1)


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


# Reassignments


def any_replica_is_dropped(patch: Patch) -> None:
    patch.setattr("controller.active.transitions.plan_departure", lambda context, current, staying: LeadershipPlan())


def move_is_cancelled_while_only_added_replicas_are_in_sync(script: Script) -> None:
    """Of the replicas from before the move none has the last record when the move is cancelled."""
    before = script.states.assignment(P)
    first, second = script.others(*before)
    script.elect_controller(first)
    script.isolate(second, store=False)
    assert script.move(P, [first, second, before[0]]) == ErrorCode.NONE
    script.wait_until(lambda: not script.is_out_of_sync(P, first))
    script.prefer()
    script.lead_with(P, first)
    for broker in before:
        script.cut(first, broker)
    script.produce("late", acks=1)
    script.wait_until(lambda: script.state(P).isr == (first,))
    script.mend(first, second)
    script.wait_until(lambda: sorted(script.state(P).isr) == sorted([first, second]))
    assert script.produce("a").acked_us is not None
    script.move(P, None)
    script.wait(1.0)


def no_log_is_set_aside(patch: Patch) -> None:
    patch.setattr(AssignedReplicas, "_set_aside_stray", lambda *_: None)


def topic_is_created_again_where_a_dropped_replica_left_its_log(script: Script) -> None:
    """A partition moves off a broker that is away, so the deletion of the topic does not reach that broker's log."""
    admin = Admin("admin", script, [], count=0, replication_factor=BROKERS)
    extra = TopicPartition("extra", 0)
    script.do(admin.create(extra.topic, 1))
    script.wait_until(lambda: extra in script.states.latest and len(script.state(extra).isr) == BROKERS)
    away = script.others(script.leader(extra), script.controller())[0]
    script.leave(away)
    script.wait(1)
    script.move(extra, script.others(away))
    script.wait(1)
    script.cluster.start(away)
    script.wait_until(lambda: script.cluster.is_running(away))
    script.wait(2)
    script.do(admin.delete(extra.topic))
    script.wait(2)
    script.do(admin.create(extra.topic, 1))
    script.wait(2)


# Waits


def appends_wake_no_follower(patch: Patch) -> None:
    patch.setattr(Appends, "_wake_readers", lambda *_: None)


def followers_wait_when_a_record_comes(script: Script) -> None:
    script.wait(2.0)
    script.produce("a", acks=1)
    script.wait(2.0)


def commits_wake_no_reader(patch: Patch) -> None:
    """Let a higher high watermark complete the appends that wait for it, and nothing else."""
    original = ReplicaManager._put_into_effect

    def put_into_effect(self: ReplicaManager, partition: Partition, effects: Any) -> None:
        original(self, partition, [effect for effect in effects if effect is not Effect.HIGH_WATERMARK_ADVANCED])
        self.produce_purgatory.check_and_complete((partition.topic, partition.partition))

    patch.setattr(ReplicaManager, "_put_into_effect", put_into_effect)


def followers_do_not_wait_for_the_high_watermark(patch: Patch) -> None:
    patch.setattr(Fetch, "_known_high_watermark", lambda *_: None)


def begin_fetch(script: Script, partition: TopicPartition, *, is_committed: bool = False) -> None:
    """Let a consumer wait for records at the end of a partition."""
    reader = Consumer("waiting reader", script, [partition], is_committed=is_committed)
    state = script.state(partition)
    reader._leaders[partition] = state.leader, state.leader_epoch
    reader.positions[partition] = script.replica(partition, state.leader).log.log_end_offset
    reader.loop.start(reader.poll(state.leader, [partition], max_wait_ms=3000))
    script.wait(0.5)


def consumer_waits_when_a_record_is_committed(script: Script) -> None:
    script.produce("a")
    script.wait(2.0)
    begin_fetch(script, P)
    script.produce("b")
    script.wait(4.0)


def aborts_and_commits_wake_no_consumer(patch: Patch) -> None:
    """Let a fetch of committed records see nothing while it waits."""
    original = AwaitedPartition.bytes_available

    def available(self: AwaitedPartition, bytes_wanted: int) -> int | None:
        found = original(self, bytes_wanted)
        return 0 if found and self.isolation is FetchIsolation.LAST_STABLE_OFFSET else found

    patch.setattr(AwaitedPartition, "bytes_available", available)


def consumer_waits_when_a_transaction_ends(script: Script) -> None:
    for value in ("a", "b"):
        script.produce(value, partition=SOURCE)
        script.wait(2.0)
        for target in TARGETS if value == "b" else ():
            begin_fetch(script, target, is_committed=True)
        script.let_run(Copier("copier", script, SOURCE, TARGETS, count=1))
    script.wait(4.0)


# Deleted records


def deletions_wait_for_no_follower(patch: Patch) -> None:
    patch.setattr(Partition, "low_watermark", lambda self, is_live: self.log.log_start_offset)


def delete_all(script: Script) -> None:
    admin = Admin("admin", script, [P], count=0, replication_factor=BROKERS)
    script.do(admin.delete_records(P, 1.0))


def leader_dies_after_a_deletion_that_followers_do_not_hear_of(script: Script) -> None:
    leader = script.leader(P)
    script.produce("a")
    script.wait(2.0)
    for follower in script.others(leader):
        script.cut(leader, follower)
    delete_all(script)
    script.leave(leader)
    script.wait_until(lambda: script.leader(P) not in (leader, -1))
    script.consume(P, script.leader(P), script.state(P).leader_epoch)


def followers_keep_their_log_start(patch: Patch) -> None:
    original = Partition.append_fetched

    def append(self: Partition, *arguments: Any, leader_log_start_offset: int, **terms: Any) -> Any:
        return original(self, *arguments, leader_log_start_offset=0, **terms)

    patch.setattr(Partition, "append_fetched", append)


def records_are_deleted(script: Script) -> None:
    script.produce("a")
    script.wait(2.0)
    delete_all(script)
    script.consume(P, script.leader(P), script.state(P).leader_epoch)


def reads_begin_anywhere(patch: Patch) -> None:
    original = LogReader.read_or_slice

    def read(self: LogReader, wanted: Wanted) -> Any:
        start, self._state.log_start_offset = self._state.log_start_offset, 0
        try:
            return original(self, wanted)
        finally:
            self._state.log_start_offset = start

    patch.setattr(LogReader, "read_or_slice", read)


# Fetch sessions


def ids_of_topics_are_not_compared(patch: Patch) -> None:
    original = _Reader.locate

    def locate(self: Any, wanted: FetchPartition) -> Any:
        found = original(self, wanted)
        if found[2] is not ErrorCode.INCONSISTENT_TOPIC_ID:
            return found
        assert wanted.topic is not None
        return wanted, self._services.replica_manager.find(wanted.topic, wanted.partition), ErrorCode.NONE

    patch.setattr(_Reader, "locate", locate)


def session_reader(script: Script, partition: TopicPartition) -> Consumer:
    """Return a consumer that has read a partition to its end."""
    reader_ = Consumer("r", script, [partition], is_committed=False, version=IDS_VERSION, has_sessions=True)
    script.let(reader_, "Metadata", lambda: reader_.leader_of(partition))
    for _ in range(3):
        poll_once(script, reader_, partition)
    return reader_


def poll_once(script: Script, reader_: Consumer, partition: TopicPartition) -> None:
    """Poll with the metadata that the consumer has."""

    async def poll() -> None:
        with suppress(Retry):
            await reader_.poll(reader_._leaders[partition][0], [partition], max_wait_ms=0)

    task = reader_.loop.start(poll())
    script.wait_until(task.done)
    task.result()


def topic_is_created_again_below_a_fetch_session(script: Script) -> None:
    admin = Admin("admin", script, [], count=0, replication_factor=1)
    extra = TopicPartition("extra", 0)
    script.do(admin.create(extra.topic, 1))
    script.wait(1)
    reader_ = session_reader(script, extra)
    script.do(admin.delete(extra.topic))
    script.wait(1)
    script.do(admin.create(extra.topic, 1))
    script.wait(1)
    script.produce("a", partition=extra, broker=1)
    poll_once(script, reader_, extra)


def changes_are_no_news_for_consumers(patch: Patch) -> None:
    original = FetchPartition.note_event

    def note_event(self: FetchPartition) -> bool:
        return self.session is not None and self.session.is_follower and original(self)

    patch.setattr(FetchPartition, "note_event", note_event)


def session_goes_on_after_an_append(script: Script) -> None:
    script.produce("a")
    reader_ = session_reader(script, P)
    script.produce("b")
    script.wait(2)
    poll_once(script, reader_, P)


# Settings and static members


def changes_of_topics_are_not_applied(patch: Patch) -> None:
    patch.setattr(Partition, "reconfigure", lambda self, config: None)


def setting_is_changed(script: Script) -> None:
    script.do(
        Admin("admin", script, [P], count=0, replication_factor=BROKERS).change_setting(P.topic, SEGMENT_BYTES, "777")
    )
    script.wait(1)


def replaced_members_are_served(patch: Patch) -> None:
    original = Group.commit

    def commit(self: Group, member_id: str, group_instance_id: str | None, *arguments: Any, **terms: Any) -> Any:
        member = self._roster.static_member(group_instance_id)
        return original(self, member_id if member is None else member.member_id, None, *arguments, **terms)

    patch.setattr(Group, "commit", commit)


def static_member_begins_anew(script: Script) -> None:
    script.let_run(Member("m", script, "group", [P], count=30, instance_id="static"))


GUARDS = [
    Guard(
        "a replaced static member is refused",
        replaced_members_are_served,
        static_member_begins_anew,
        (REPLACED,),
    ),
    Guard(
        "a partition is given to a member once the one before has given it up",
        any_partition_is_free,
        member_joins_while_another_has_everything,
        ("a partition of a group has one owner at a time",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "the member epoch of a commit",
        epochs_of_members_are_not_compared,
        commit_in_an_earlier_epoch_is_late,
        ("a member that was fenced or moved on commits nothing",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "the member epoch of a commit keeps later offsets",
        epochs_of_members_are_not_compared,
        commit_in_an_earlier_epoch_is_late,
        ("committed offsets never go back",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "a record that was delivered too often is archived",
        records_are_released_without_end,
        record_is_released_again_and_again,
        ("a record is delivered no more often than allowed",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "acknowledgements of share groups are stored before the response",
        acknowledgements_are_not_stored,
        leader_dies_after_a_record_was_accepted,
        ("a record that a share group is done with is not delivered again",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "a record is locked until its time is over",
        locks_expire_at_once,
        members_fetch_while_a_record_is_locked,
        ("a record is locked for one member at a time",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "a released record is available again",
        released_records_are_done,
        group_reads_to_the_end_after_a_release,
        ("a share group is done with every record in the end",),
        properties=tuple(NEWER_GROUPS.items()),
    ),
    Guard(
        "changed settings are applied",
        changes_of_topics_are_not_applied,
        setting_is_changed,
        (SETTINGS,),
    ),
    Guard(
        "a fetch by id reads no other topic",
        ids_of_topics_are_not_compared,
        topic_is_created_again_below_a_fetch_session,
        ("a record is in one partition",),
        brokers=1,
    ),
    Guard(
        "changes are news for fetch sessions",
        changes_are_no_news_for_consumers,
        session_goes_on_after_an_append,
        (SILENT,),
    ),
    Guard(
        "coordinators refuse an older instance of a producer",
        coordinators_serve_older_instances,
        older_instance_goes_on,
        ("a fenced instance of a transactional producer is acknowledged nothing",),
    ),
    Guard(
        "DeleteRecords waits for all live replicas",
        deletions_wait_for_no_follower,
        leader_dies_after_a_deletion_that_followers_do_not_hear_of,
        ("deleted records stay deleted",),
    ),
    Guard(
        "a follower adopts the log start of its leader",
        followers_keep_their_log_start,
        records_are_deleted,
        ("replicas begin where their leader begins",),
    ),
    Guard(
        "no read begins below the log start",
        reads_begin_anywhere,
        records_are_deleted,
        ("deleted records stay deleted",),
    ),
    Guard(
        "an append wakes followers",
        appends_wake_no_follower,
        followers_wait_when_a_record_comes,
        (WOKEN,),
    ),
    Guard(
        "a commit wakes readers",
        commits_wake_no_reader,
        consumer_waits_when_a_record_is_committed,
        (WOKEN,),
    ),
    Guard(
        "a commit wakes followers that do not know of it",
        followers_do_not_wait_for_the_high_watermark,
        consumer_waits_when_a_record_is_committed,
        (WOKEN,),
    ),
    Guard(
        "the end of a transaction wakes consumers",
        aborts_and_commits_wake_no_consumer,
        consumer_waits_when_a_transaction_ends,
        (WOKEN,),
    ),
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
        "min.insync.replicas holds the high watermark",
        held_by_no_min_isr,
        consumer_reads_from_the_only_in_sync_replica,
        ("visible means stored by min.insync.replicas",),
    ),
    Guard(
        "replicas that join count before the controller confirms",
        joining_replicas_do_not_count,
        leader_does_not_hear_of_an_expansion,
        ("I4 no acknowledged record is lost",),
    ),
    Guard(
        "a leader that missed epochs forgets the positions of followers",
        positions_stay_over_missed_epochs,
        leader_does_not_hear_that_another_led,
        ("I4 no acknowledged record is lost",),
    ),
    Guard(
        "replicas join the ISR from the start of the leader's epoch",
        joins_at_the_high_watermark,
        new_leader_has_an_old_high_watermark,
        ("I4 no acknowledged record is lost",),
    ),
    Guard(
        "broker epoch of a fetch",
        no_fence_of_earlier_registrations,
        late_fetch_of_an_earlier_registration,
        ("I4 no acknowledged record is lost",),
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
        "epoch of a leader that restarted without a controller",
        restarted_leaders_keep_their_epoch,
        all_restart_before_an_election_and_the_leader_has_lost_a_record,
        ("I2 log matching", "I3 in-sync replicas are equal below the high watermark"),
    ),
    Guard(
        "registration of replicas that join the ISR",
        no_registration_check,
        restarted_follower_is_reported_as_complete,
        ("I4 no acknowledged record is lost",),
    ),
    Guard(
        "members that a leader reports",
        no_check_of_reported_members,
        leader_reports_no_members,
        ("I8 ISR is never empty and holds the leader",),
    ),
    Guard(
        "the last in-sync replica stays",
        last_member_leaves,
        last_in_sync_replica_dies,
        ("I8 ISR is never empty and holds the leader",),
    ),
    Guard(
        "replicas that are about to join hold the high watermark",
        caught_up_replicas_do_not_count,
        follower_is_to_join_while_records_arrive,
        ("I12 replicas are complete after healing",),
    ),
    Guard(
        "followers are assigned replicas",
        anyone_may_fetch_as_a_follower,
        unassigned_replica_fetches,
        ("no client is stuck",),
        brokers=5,
    ),
    Guard(
        "offset and epoch of a part of a fetch response",
        late_responses_count,
        response_of_the_epoch_before_is_late,
        ("I12 replicas are complete after healing",),
    ),
    Guard(
        "truncation where the epochs diverge",
        no_divergence,
        deposed_leader_returns_with_another_record,
        ("I3 in-sync replicas are equal below the high watermark", "I4 no acknowledged record is lost"),
    ),
    Guard(
        "truncation asks again where an epoch is unknown",
        leaders_answer_is_final,
        logs_diverge_in_two_epochs,
        ("I12 replicas are complete after healing", "I3 in-sync replicas are equal below the high watermark"),
        (("unclean.leader.election.enable", "true"),),
    ),
    Guard(
        "sequence numbers of idempotent producers",
        no_duplicate_check,
        producer_sends_each_batch_twice,
        ("I6 order and uniqueness per producer",),
    ),
    Guard(
        "committed readers read below the last stable offset",
        committed_readers_read_to_the_high_watermark,
        transactions_while_a_reader_polls,
        ("no aborted read", "no read before the commit", "I7 the high watermark is monotonic and bounds reads"),
    ),
    Guard(
        "epoch of a transactional producer",
        no_producer_epoch,
        zombie_writes_into_the_transaction_of_its_successor,
        ("transactions are atomic", "no aborted read"),
        (("transaction.partition.verification.enable", "false"),),  # the coordinator would refuse it as well
    ),
    Guard(
        "an end of version 2 raises the epoch",
        ends_raise_no_epoch,
        batch_of_an_ended_transaction_is_late,
        (LATE_BATCH,),
        ((ENABLE_VERSION_2, "true"),),
    ),
    Guard(
        "epoch of the coordinator that writes a marker",
        no_coordinator_epoch,
        marker_of_a_replaced_coordinator_is_late,
        ("transactions are atomic", "no aborted read"),
    ),
    Guard(
        "a coordinator begins anew in an epoch before which another may have led",
        coordinator_keeps_its_epoch,
        coordinator_does_not_hear_of_another,
        ("no client is stuck",),
    ),
    Guard(
        "a coordinator serves only what all in-sync replicas have",
        coordinators_do_not_wait,
        coordinator_dies_with_what_it_alone_has,
        ("transactions are atomic",),
        brokers=5,
    ),
    Guard(
        "generation of a group",
        no_generation,
        commit_of_an_earlier_generation_is_late,
        ("no commit of an earlier generation",),
    ),
    Guard(
        "each write of the controller checks its epoch",
        unfenced_writes,
        write_of_a_replaced_controller_is_late,
        ("only the latest controller writes states",),
    ),
    Guard(
        "configurations are written only while there is a controller",
        configurations_without_a_controller,
        configuration_is_changed_while_there_is_no_controller,
        ("only the latest controller writes states",),
    ),
    Guard(
        "a replica that was dropped while its broker was away is stopped",
        dropped_replicas_stay,
        leader_is_dropped_while_it_is_away,
        ("I9 a deposed leader acknowledges nothing",),
    ),
    Guard(
        "the controller hears of a log that fails alone",
        logs_fail_quietly,
        log_of_a_leader_fails_alone,
        ("no client is stuck",),
    ),
    Guard(
        "a deletion waits for brokers that are away",
        deletion_does_not_wait,
        topic_is_deleted_while_a_broker_is_away,
        ("a deleted topic leaves nothing",),
    ),
    Guard(
        "an existing topic is not created again",
        existing_topics_are_overwritten,
        two_brokers_create_the_same_topic,
        ("only the latest controller writes states", "I12 replicas are complete after healing", "no client is stuck"),
    ),
    Guard(
        "leader epoch of LeaderAndIsr",
        no_leader_epoch,
        state_of_an_earlier_epoch_is_late,
        ("I12 replicas are complete after healing",),
    ),
    Guard(
        "leader epoch of StopReplica",
        no_leader_epoch_of_stops,
        request_to_delete_replicas_is_late,
        ("I4 no acknowledged record is lost",),
    ),
    Guard(
        "topic id of LeaderAndIsr",
        no_topic_id,
        state_of_a_deleted_topic_is_late,
        ("I12 replicas are complete after healing",),
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
    Guard(
        "the only in-sync replicas are not dropped",
        any_replica_is_dropped,
        move_is_cancelled_while_only_added_replicas_are_in_sync,
        ("I8 ISR is never empty and holds the leader", "I4 no acknowledged record is lost"),
        brokers=5,
    ),
    Guard(
        "logs of earlier topics are set aside",
        no_log_is_set_aside,
        topic_is_created_again_where_a_dropped_replica_left_its_log,
        ("I12 replicas are complete after healing",),
    ),
]


def violated(guard: Guard) -> list[str]:
    script = Script(properties=dict(guard.properties), brokers=guard.brokers)
    with script.world:
        script.begin()
        guard.case(script)
        return [violation.rule for violation in script.end()]


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.name for guard in GUARDS])
def test_case_breaks_no_rule(guard: Guard) -> None:
    assert violated(guard) == []


BROKEN_BY_HISTORIES = {rule for rule, _ in BROKEN}
WITHOUT_GUARDS = [
    pytest.param(guard, id=guard.name, marks=pytest.mark.soak if BROKEN_BY_HISTORIES.issuperset(guard.rules) else ())
    for guard in GUARDS
]


@pytest.mark.parametrize("guard", WITHOUT_GUARDS)
def test_case_is_caught_without_its_guard(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.remove(monkeypatch)
    assert set(violated(guard)) & set(guard.rules)
