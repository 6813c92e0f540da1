"""Move partitions and replicas from state to state: plan, persist, send.

Owns the order of these three and the actions of each transition (docs/controller.md lists them). Must not know why a
transition is wanted.

Invariants: the state in the context changes only after the store holds the corresponding data; requests about a change
leave only after the store holds it, in one batch per call.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from base.pause import Pause, through
from base.topic_partition import TopicPartition, partition_name
from controller.active.broker_channels import ControlRequest
from controller.active.fenced_store import FencedStore
from controller.active.requests import RequestBatch
from controller.machine.context import ControllerContext
from controller.machine.effects import ChangeLeadership, SendEffect, SendLeaderAndIsr, SendMetadata, SendStopReplica
from controller.machine.leadership import (
    ElectionReason,
    LeadershipPlan,
    plan_departure,
    plan_elections,
    plan_first_leaders,
    plan_new_epochs,
    plan_removal_from_isr,
)
from controller.machine.model import NO_LEADER, Leadership, PartitionReplica
from controller.machine.partition_states import PartitionState
from controller.machine.replica_states import ReplicaState
from controller.machine.settings import ControllerSettings, ControllerStatistics
from protocol.messages.update_metadata import UpdateMetadataRequest

logger = logging.getLogger("state.change.logger")

UNCLEAN_ELECTION = "unclean.leader.election.enable"

# Another writer writes a partition state once per change, so this many lost races in a row mean a defect.
ATTEMPTS_MAX = 10

_Plan = Callable[[Mapping[TopicPartition, Leadership]], Awaitable[LeadershipPlan]]


class Transitions:
    def __init__(
        self,
        controller_id: int,
        context: ControllerContext,
        store: FencedStore,
        send: Callable[[int, ControlRequest], None],
        settings: ControllerSettings,
        statistics: ControllerStatistics,
        pause: Pause,
    ) -> None:
        self._controller_id = controller_id
        self._context = context
        self._pause = pause
        self._store = store
        self._send = send
        self._statistics = statistics
        self._batch = RequestBatch(context, controller_id, settings.inter_broker_listener_name)
        self.settings = settings
        self.metadata_requests = 0
        """How many UpdateMetadata requests were sent in this term."""

    def reconfigure(self, settings: ControllerSettings) -> None:
        """Apply changed settings from now on."""
        self.settings = settings

    async def send_all_metadata(self, broker_ids: Iterable[int]) -> None:
        """Send the live brokers and the states of all partitions; the brokers forget other partitions.

        If a node of the store could not be decoded, they keep them: a topic that cannot be read is not deleted.
        """
        partitions = tuple(self._context.leaderships)
        self._batch.add(SendMetadata(tuple(broker_ids), partitions, is_full=not self._store.has_undecodable))
        await self._flush()

    async def send_metadata(self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Send the live brokers, and the states of `partitions`."""
        self._batch.add(SendMetadata(tuple(broker_ids), tuple(partitions)))
        await self._flush()

    async def send_states(self, broker_id: int, partitions: Iterable[tuple[TopicPartition, bool]]) -> None:
        """Send one broker the present states of those of `partitions` whose replica on it is started.

        Each partition comes with whether the replica is new.
        """
        async for partition, is_new in through(partitions, self._pause):
            state = self._context.replica_state(PartitionReplica(partition, broker_id))
            if state in (ReplicaState.NEW, ReplicaState.ONLINE) and partition in self._context.leaderships:
                self._batch.add(SendLeaderAndIsr((broker_id,), partition, is_new))
        await self._flush()

    # -- partitions ------------------------------------------------------------------------------------------------

    async def move_partitions(self, partitions: Iterable[TopicPartition], target: PartitionState) -> None:
        """Move partitions to a state that needs no election: NEW, OFFLINE or NON_EXISTENT."""
        assert target is not PartitionState.ONLINE, "ONLINE requires an election: call elect"
        for partition in await self._movable_partitions(partitions, target):
            self._context.move_partition(partition, target)

    async def elect(
        self, partitions: Iterable[TopicPartition], reason: ElectionReason, *, unclean_forced: bool = False
    ) -> dict[TopicPartition, str]:
        """Move partitions online by electing leaders; return the partitions for which that failed, with the reason.

        A partition that never had a leader gets its first one, whatever the `reason`.
        """
        new: list[TopicPartition] = []
        others: list[TopicPartition] = []
        async for it in through(await self._movable_partitions(partitions, PartitionState.ONLINE), self._pause):
            (new if self._context.partition_state(it) is PartitionState.NEW else others).append(it)
        failures, found = await self._elect_first(new)

        async def plan(current: Mapping[TopicPartition, Leadership]) -> LeadershipPlan:
            allowed = await self._topics_unclean_allowed(current, reason, unclean_forced)
            return await self._planned(current, lambda one: plan_elections(self._context, one, reason, allowed))

        changed, failed = await self._change([*found, *others], plan)
        async for partition in through(changed, self._pause):
            self._context.move_partition(partition, PartitionState.ONLINE)
        await self._flush()
        failures |= failed
        for partition, why in failures.items():
            logger.warning("cannot elect a leader for %s: %s", partition_name(partition), why)
        return failures

    async def _elect_first(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, str], list[TopicPartition]]:
        """Create states. Return the failures, and the partitions that already have a state in the store."""
        plan = LeadershipPlan()
        async for partition in through(partitions, self._pause):
            plan.add(plan_first_leaders(self._context, [partition]))
        written = await self._store.change_leadership(plan.changes)
        await self._apply(plan.changes, written.leaderships)
        async for partition in through(written.leaderships, self._pause):
            self._context.move_partition(partition, PartitionState.ONLINE)
        return plan.failures, written.conflicts

    async def renew_epochs(self, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions a new leader epoch under the same leader, and send it to all their replicas."""

        async def plan(current: Mapping[TopicPartition, Leadership]) -> LeadershipPlan:
            return await self._planned(current, lambda one: plan_new_epochs(self._context, one))

        _, failures = await self._change(list(partitions), plan)
        await self._flush()
        for partition, why in failures.items():
            logger.error("cannot renew the leader epoch of %s: %s", partition_name(partition), why)

    async def keep_only(self, partition: TopicPartition, staying: Sequence[int]) -> str | None:
        """Remove all other replicas from ISR and leadership, so that they can be deleted.

        `staying` is in order of preference for a new leader. Returns None if no other replica leads or is in sync now,
        else why a record could be lost or the partition would have no leader; then nothing was changed.
        """

        async def plan(current: Mapping[TopicPartition, Leadership]) -> LeadershipPlan:
            return await self._planned(current, lambda one: plan_departure(self._context, one, {partition: staying}))

        _, failures = await self._change([partition], plan)
        await self._flush()
        return failures.get(partition)

    async def change_isr(
        self, changes: Sequence[ChangeLeadership]
    ) -> tuple[Collection[TopicPartition], Collection[TopicPartition]]:
        """Write the ISR that leaders reported and send it to all brokers.

        Returns the partitions written, and those whose state another writer changed. These are not retried: the leader
        must refresh its state first.
        """
        written = await self._store.change_leadership(changes)
        await self._apply(changes, written.leaderships)
        await self._flush()
        return written.leaderships.keys(), written.conflicts

    async def _movable_partitions(
        self, partitions: Iterable[TopicPartition], target: PartitionState
    ) -> list[TopicPartition]:
        movable = []
        async for partition in through(partitions, self._pause):
            if self._context.can_move_partition(partition, target):
                movable.append(partition)
            else:
                state = self._context.partition_state(partition)
                logger.error("%s cannot go from %s to %s", partition_name(partition), state.value, target.value)
        return movable

    async def _topics_unclean_allowed(
        self, current: Mapping[TopicPartition, Leadership], reason: ElectionReason, forced: bool
    ) -> set[str]:
        """Return the topics that allow an unclean election, among those where no in-sync replica is online."""
        if reason is not ElectionReason.OFFLINE:
            return set()
        stuck = {
            partition[0]
            for partition, leadership in current.items()
            if not any(self._context.is_replica_online(replica, partition) for replica in leadership.state.isr)
        }
        if forced or not stuck:
            return stuck
        overrides = await self._store.read_topic_overrides(stuck)
        default = str(self.settings.unclean_leader_election_enable)
        # A topic whose overrides cannot be read may forbid it.
        return {it for it, found in overrides.items() if found.get(UNCLEAN_ELECTION, default).strip().lower() == "true"}

    # -- replicas --------------------------------------------------------------------------------------------------

    async def move_replicas(self, replicas: Iterable[PartitionReplica], target: ReplicaState) -> None:
        """Move replicas to `target`, with the actions of the transition."""
        movable = []
        async for replica in through(replicas, self._pause):
            if self._context.can_move_replica(replica, target):
                movable.append(replica)
            else:
                state = self._context.replica_state(replica)
                logger.error(
                    "replica %d of %s cannot go from %s to %s",
                    replica.broker_id,
                    partition_name(replica.partition),
                    state.value,
                    target.value,
                )
        if target is ReplicaState.OFFLINE:
            await self._stop(movable)
        async for replica in through(movable, self._pause):
            for effect in self._effects_of(replica, target):
                self._batch.add(effect)
            if target is ReplicaState.NON_EXISTENT:
                assignment = self._context.assignment(replica.partition)
                self._context.put_assignment(replica.partition, assignment.without(replica.broker_id))
            self._context.move_replica(replica, target)
        await self._flush()

    def _effects_of(self, replica: PartitionReplica, target: ReplicaState) -> Iterable[SendEffect]:
        """Yield what to send to the replica's broker, for every target but OFFLINE."""
        has_leader = replica.partition in self._context.leaderships
        is_started = self._context.replica_state(replica) is not ReplicaState.NEW
        if target is ReplicaState.NEW and has_leader:
            yield SendLeaderAndIsr((replica.broker_id,), replica.partition, is_new=True)
        elif target is ReplicaState.ONLINE and has_leader and is_started:
            yield SendLeaderAndIsr((replica.broker_id,), replica.partition)
        elif target is ReplicaState.DELETION_STARTED:
            yield SendStopReplica(replica, delete=True)

    async def _stop(self, replicas: Sequence[PartitionReplica]) -> None:
        """Stop replicas, remove them from the ISR, and send the new states to all brokers."""
        by_broker: dict[int, list[TopicPartition]] = {}
        async for replica in through(replicas, self._pause):
            self._batch.add(SendStopReplica(replica, delete=False))
            by_broker.setdefault(replica.broker_id, []).append(replica.partition)
        for broker_id, partitions in by_broker.items():
            await self._remove_from_isr(broker_id, partitions)

    async def _remove_from_isr(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        async def plan(current: Mapping[TopicPartition, Leadership]) -> LeadershipPlan:
            return await self._planned(current, lambda one: plan_removal_from_isr(self._context, one, broker_id))

        led = [partition for partition in partitions if partition in self._context.leaderships]
        changed, failures = await self._change(led, plan)
        unchanged = tuple(
            it for it in partitions if it not in changed and not self._context.is_partition_to_be_deleted(it)
        )
        if unchanged:
            self._batch.add(SendMetadata(tuple(self._context.live_brokers), unchanged))
        for partition, why in failures.items():
            name = partition_name(partition)
            logger.error("cannot remove broker %d from the in-sync replicas of %s: %s", broker_id, name, why)

    async def _planned(
        self,
        current: Mapping[TopicPartition, Leadership],
        plan_one: Callable[[Mapping[TopicPartition, Leadership]], LeadershipPlan],
    ) -> LeadershipPlan:
        plan = LeadershipPlan()
        async for partition, leadership in through(current.items(), self._pause):
            plan.add(plan_one({partition: leadership}))
        return plan

    # -- the three steps -------------------------------------------------------------------------------------------

    async def _change(
        self, partitions: Sequence[TopicPartition], plan: _Plan
    ) -> tuple[set[TopicPartition], dict[TopicPartition, str]]:
        """Read the states, plan, persist; repeat for partitions that another writer changed in between.

        Returns the partitions changed, and the failures with their reasons.
        """
        changed: set[TopicPartition] = set()
        failures: dict[TopicPartition, str] = {}
        waiting = list(partitions)
        for _ in range(ATTEMPTS_MAX):
            if not waiting:
                return changed, failures
            current = await self._store.read_leaderships(waiting)
            self._context.leaderships |= current
            failures |= {partition: "it has no readable state" for partition in waiting if partition not in current}
            planned = await plan(current)
            failures |= planned.failures
            written = await self._store.change_leadership(planned.changes)
            await self._apply(planned.changes, written.leaderships)
            self._statistics.unclean_leader_elections += len(planned.unclean & written.leaderships.keys())
            changed |= written.leaderships.keys()
            waiting = written.conflicts
        failures |= dict.fromkeys(waiting, f"another writer changed its state during each of {ATTEMPTS_MAX} attempts")
        return changed, failures

    async def _apply(self, changes: Iterable[ChangeLeadership], written: Mapping[TopicPartition, Leadership]) -> None:
        """Apply to the context what the store now holds, and add the requests for the brokers to the batch."""
        self._context.leaderships |= written
        async for change in through(changes, self._pause):
            self._go_offline_without_leader(change.partition)
            # A topic that is being deleted is left out: UpdateMetadata has already removed it from the brokers.
            if change.partition in written:
                logger.info(
                    "[Controller id=%d epoch=%d] Changed partition %s to state %s",
                    self._controller_id,
                    self._context.epoch,
                    partition_name(change.partition),
                    written[change.partition],
                )
            if change.partition in written and not self._context.is_partition_to_be_deleted(change.partition):
                self._batch.add(SendLeaderAndIsr(change.recipients, change.partition))
                self._batch.add(SendLeaderAndIsr(change.new_recipients, change.partition, is_new=True))

    def _go_offline_without_leader(self, partition: TopicPartition) -> None:
        """Move a partition that has lost its leader offline: only such partitions are elected again."""
        is_online = self._context.partition_state(partition) is PartitionState.ONLINE
        if is_online and self._context.leaderships[partition].state.leader == NO_LEADER:
            self._context.move_partition(partition, PartitionState.OFFLINE)

    async def _flush(self) -> None:
        for broker_id, request in await self._batch.drain(self._pause):
            self.metadata_requests += isinstance(request, UpdateMetadataRequest)
            self._send(broker_id, request)
