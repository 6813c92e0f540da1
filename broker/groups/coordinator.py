"""The group coordinator: the groups of the `__consumer_offsets` partitions that this broker leads.

Owns: which groups are here, their timers, who waits for what, and the order store-then-show: what a group or an offset
has become is seen by others only after its record is in the log of all in-sync replicas. Must not know: request layouts
and versions (the handlers'), membership rules (`group`), which commit wins (`offsets`), or how the log replicates.

Everything runs on one event loop, and a group's machine is never left between two steps, so a group needs no lock. Two
rules keep that true: an append is issued in the same step that decided on it, so that the log has the order of the
decisions; and its result goes back into the machine as an event of its own, which may find the group changed.

Methods raise KafkaError when the group cannot be served here now, in this order: INVALID_GROUP_ID,
COORDINATOR_NOT_AVAILABLE (stopping), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (its
partition could not be loaded).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from broker.cluster.internal_topics import GROUP_METADATA_TOPIC
from broker.coordination.coordinator_log import CoordinatorLog, PartitionState, append_now, replay, when_appended
from broker.coordination.partitioner import partition_for
from broker.groups.batches import (
    COMMIT_APPEND_ERRORS,
    GROUP_APPEND_ERRORS,
    CommittingProducer,
    commit_batch,
    commit_batch_in_slices,
    group_batch,
    tombstone_batches,
)
from broker.groups.events import (
    AnswerJoin,
    AnswerSync,
    AssignmentStored,
    Effect,
    JoinAnswer,
    JoinRequest,
    Moment,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.group import Group
from broker.groups.loading import ReplayedPartition
from broker.groups.member import NEVER
from broker.groups.offsets import GroupOffsets, Offsets, TopicPartition, expiry_rule
from broker.groups.partition import CoordinatedGroup, OffsetsPartition
from broker.groups.ports import LegacyOffsets
from broker.groups.records import group_key, offset_key
from broker.groups.settings import CoordinatorSettings
from broker.groups.states import GroupState
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from broker.loop.clock import Clock
from broker.loop.slices import SlicedWork, Slices
from broker.loop.timer import Timer, TimerHandle
from protocol.errors import ErrorCode, KafkaError, Malformed

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

T = TypeVar("T")

SLICE_SIZE = 500
"""Groups built, or offsets removed, before other requests get their turn: a few milliseconds."""
LOOKED_AT_SLICE_SIZE = 20_000
"""Offsets only looked at before other requests get their turn: a few milliseconds too."""
LOAD_TIMES_KEPT = 50
"""One for each partition of a topic of the default size, for the metrics."""


NOTHING_REFUSED: Mapping[TopicPartition, ErrorCode] = MappingProxyType({})


class Committer(NamedTuple):
    """Who commits. Nobody in particular: an administrator, or a consumer that assigns partitions itself."""

    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1


class CommitAnswer(NamedTuple):
    """How a commit went: `error` for every partition that is not in `refused`."""

    error: ErrorCode
    refused: Mapping[TopicPartition, ErrorCode] = NOTHING_REFUSED


_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class

COMMITTED = CommitAnswer(ErrorCode.NONE)


class GroupCoordinator:
    """The coordinator of one broker."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        log: CoordinatorLog,
        timer: Timer,
        clock: Clock,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
        legacy_offsets: LegacyOffsets,
        sliced_work: SlicedWork,
    ) -> None:
        """`ensure_internal_topic(name)` creates the topic unless it exists, and raises KafkaError when it cannot."""
        self.settings = settings
        self.legacy_offsets = legacy_offsets
        self._log = log
        self._timer = timer
        self._clock = clock
        self._ensure_internal_topic = ensure_internal_topic
        self._sliced_work = sliced_work
        self._partitions: dict[int, OffsetsPartition] = {}
        self._groups: dict[str, CoordinatedGroup] = {}
        """The groups of all active partitions."""
        self._is_stopping = False
        self._expiry_timer: TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._unfinished: set[asyncio.Future[Any]] = set()
        """What was begun and is done in slices."""
        self.commit_count = 0
        self.expiration_count = 0
        self.deletion_count = 0
        self.completed_rebalance_count = 0
        self.load_times_ms: deque[int] = deque(maxlen=LOAD_TIMES_KEPT)

    # The life of the coordinator

    def start(self) -> None:
        """Begin to look for expired offsets at intervals."""
        self._schedule_expiry()

    async def stop(self) -> None:
        """Stop serving: whoever waits is sent to look for another coordinator."""
        self._is_stopping = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        tasks: list[asyncio.Future[Any]] = [
            each.loading for each in self._partitions.values() if each.loading is not None
        ]
        for task in (*self._unfinished, *([] if self._expiring is None else [self._expiring])):
            task.cancel()
            tasks.append(task)
        for partition in list(self._partitions):
            self.resign(partition)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ensure_topic(self) -> int:
        """Create `__consumer_offsets` unless it exists, and return its partition count.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) when it is not there yet, for example because too few brokers are.
        """
        count = self._log.partition_count()
        if count is None:
            try:
                await self._ensure_internal_topic(GROUP_METADATA_TOPIC)
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            count = self._log.partition_count()
        if count is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return count

    def partition_count(self) -> int | None:
        """The partition count of `__consumer_offsets`; None while it does not exist."""
        return self._log.partition_count()

    # Leadership of partitions

    def become_leader(self, number: int, leader_epoch: int) -> None:
        """This broker leads a partition now: load it, unless it is here already."""
        current = self._partitions.get(number)
        if current is not None:
            current.leader_epoch = max(current.leader_epoch, leader_epoch)
            return
        partition = self._partitions[number] = OffsetsPartition(number, leader_epoch)
        partition.loading = asyncio.get_running_loop().create_task(self._load(partition))
        partition.loading.add_done_callback(_log_failure)

    def resign(self, number: int, leader_epoch: int | None = None) -> None:
        """Another broker leads the partition now, or none. An epoch older than the current leadership is ignored."""
        partition = self._partitions.get(number)
        if partition is None or (leader_epoch is not None and leader_epoch < partition.leader_epoch):
            return
        del self._partitions[number]
        if partition.loading is not None:
            partition.loading.cancel()
        for group_id, group in partition.groups.items():
            del self._groups[group_id]
            group.machine.resign()
            self._settle(group, "the coordinator moved")
            _disarm(group)

    # Requests of members

    def join(self, group_id: str, request: JoinRequest) -> JoinAnswer | Awaitable[JoinAnswer]:
        """A member joins; the answer comes with the generation."""
        _require_name(group_id)
        group = self._find(group_id)
        timeout_min_ms, timeout_max_ms = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        if not timeout_min_ms <= request.session_timeout_ms <= timeout_max_ms:
            return JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        if group is None:
            if request.member_id:
                return JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            group = self._add_group(group_id)
        ticket: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        group.machine.join(request, ticket, self._moment())
        self._settle(group, request.reason or f"join of {request.member_id or request.generated_member_id}")
        return ticket.result() if ticket.done() else ticket

    def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer | Awaitable[SyncAnswer]:
        """A member asks for its assignment; the answer comes once the leader's is stored.

        While the group is being loaded the answer is REBALANCE_IN_PROGRESS: the phase the member is in is lost, and old
        clients do not know the code for loading here.
        """
        _require_name(group_id)
        try:
            group = self._find(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        if group is None:
            return SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
        ticket: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        group.machine.sync(request, ticket, self._moment())
        self._settle(group, f"sync of {request.member_id}")
        return ticket.result() if ticket.done() else ticket

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """A member lives. While the group is being loaded that is taken on trust."""
        _require_name(group_id)
        try:
            group = self._find(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return ErrorCode.NONE
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error_code = group.machine.heartbeat(member_id, group_instance_id, generation_id, self._moment())
        self._arm(group)
        return error_code

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]], reason: str = "") -> list[ErrorCode]:
        """Members, by (member id, instance id), leave; one code for each."""
        _require_name(group_id)
        group = self._find(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        moment = self._moment()
        codes = [group.machine.leave(member_id, instance_id, moment) for member_id, instance_id in members]
        self._settle(group, reason or "members left")
        return codes

    # Offsets

    def commit(
        self, group_id: str, committer: Committer, offsets: Offsets, producer: CommittingProducer | None = None
    ) -> CommitAnswer | Awaitable[CommitAnswer]:
        """Store offsets, of a `producer`'s transaction if one is given; `offsets` is the coordinator's from now on.

        Offsets whose metadata is too long are refused by themselves.
        """
        moment = self._moment()
        group = self._find_for_commit(group_id, committer, moment, is_transactional=producer is not None)
        if isinstance(group, ErrorCode):
            return CommitAnswer(group)
        refused = self._refuse_long_metadata(offsets)
        if not offsets:
            return CommitAnswer(ErrorCode.NONE, refused)
        batch = commit_batch(group_id, offsets, producer, moment.now_ms, self.settings.compression)
        return self._store_offsets(group, offsets, producer, refused, bytearray(batch))

    def commit_in_slices(
        self, group_id: str, committer: Committer, offsets: Offsets
    ) -> Slices[CommitAnswer | Awaitable[CommitAnswer]]:
        """`commit` of thousands of offsets. Who may commit is decided in the last step, in which they are appended."""
        self._find(group_id)
        refused = self._refuse_long_metadata(offsets)
        batch = b""
        if offsets:
            batch = yield from commit_batch_in_slices(
                group_id, offsets, None, self._clock.now_ms(), self.settings.compression
            )
            yield
        group = self._find_for_commit(group_id, committer, self._moment(), is_transactional=False)
        if isinstance(group, ErrorCode):
            return CommitAnswer(group)
        if not offsets:
            return CommitAnswer(ErrorCode.NONE, refused)
        return self._store_offsets(group, offsets, None, refused, bytearray(batch))

    def _find_for_commit(
        self, group_id: str, committer: Committer, moment: Moment, *, is_transactional: bool
    ) -> CoordinatedGroup | ErrorCode:
        """The group, if the committer may commit now; one that does not exist yet is made."""
        group = self._find(group_id)
        if group is None:
            if committer.generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            group = self._add_group(group_id)
        error = group.machine.commit(
            committer.member_id,
            committer.group_instance_id,
            committer.generation_id,
            moment,
            is_transactional=is_transactional,
        )
        self._arm(group)
        return error or group

    def offsets(self, group_id: str) -> GroupOffsets:
        """The offsets of a group, to look at; of a group that does not exist there are none."""
        group = self._find(group_id)
        return GroupOffsets() if group is None or group.machine.state is GroupState.DEAD else group.offsets

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode] | Awaitable[dict[TopicPartition, ErrorCode]]:
        """Delete what no member of the group reads; one code for each partition.

        Raises KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP when what its members read cannot be known.
        """
        _require_name(group_id)
        group = self._find(group_id)
        if group is None or group.machine.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        machine = group.machine
        is_in_use = machine.state is not GroupState.EMPTY
        if is_in_use and machine.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        codes = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if is_in_use and machine.is_subscribed_to(partition[0])
            else ErrorCode.NONE
            for partition in partitions
        }
        deletable = [partition for partition, code in codes.items() if not code]

        def delete() -> Slices[dict[TopicPartition, ErrorCode]]:
            yield from self._remove_in_slices(group, deletable, group.partition.next_order)
            return codes

        return self._see_through(delete())

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Topics exist no more: neither do offsets in them, unless they are committed after this."""
        orders = {number: partition.next_order for number, partition in self._partitions.items()}

        def delete() -> Slices[None]:
            looked_at = 0
            for group in list(self._groups.values()):
                known = group.offsets.partitions()
                looked_at += 1 + len(known)
                gone = [partition for partition in known if partition[0] in topics]
                if gone and group.partition.number in orders:
                    yield from self._remove_in_slices(group, gone, orders[group.partition.number])
                if looked_at >= LOOKED_AT_SLICE_SIZE:
                    looked_at = 0
                    yield

        self._see_through(delete())

    def end_transaction(self, number: int, producer_id: int, *, is_committed: bool) -> None:
        """A producer's marker is in the log of partition `number`: its pending offsets there count, or are dropped."""
        partition = self._partitions.get(number)
        if partition is None:
            return
        if partition.state is PartitionState.LOADING:
            partition.early_markers.append((producer_id, is_committed))
            return
        for group_id in partition.groups_by_producer.pop(producer_id, ()):
            group = partition.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, is_committed=is_committed)

    # Administration

    def groups(self) -> tuple[ErrorCode, list[Group]]:
        """The groups that are here, to look at; COORDINATOR_LOAD_IN_PROGRESS when more may be on the way."""
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_loading = any(each.state is PartitionState.LOADING for each in self._partitions.values())
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        machines = (group.machine for group in self._groups.values())
        return code, [machine for machine in machines if machine.state is not GroupState.DEAD]

    def group(self, group_id: str) -> Group | None:
        """A group, to look at; None when it does not exist."""
        group = self._find(group_id)
        return None if group is None else group.machine

    def delete_group(self, group_id: str) -> ErrorCode | Awaitable[ErrorCode]:
        """Delete an empty group with all its offsets. Until they are gone it is there as a dead one."""
        group = self._find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return group.machine.delete() or self._see_through(self._bury(group))

    async def expire_offsets(self) -> None:
        """Remove offsets that have outlived their use, and groups that nothing is left of."""
        looked_at = 0
        for group in list(self._groups.values()):
            known = list(group.offsets.committed)
            for piece in _pieces(known) or [known]:
                if not self._is_here(group) or group.machine.state is GroupState.DEAD:
                    break
                self.expiration_count += self._expire_offsets_of(group, piece)
                looked_at += 1 + len(piece)
                if looked_at >= SLICE_SIZE:
                    looked_at = 0
                    await asyncio.sleep(0)

    def count_by_state(self) -> dict[GroupState, int]:
        """How many groups are in each state, for the metrics."""
        counts = dict.fromkeys(GroupState, 0)
        for group in self._groups.values():
            counts[group.machine.state] += 1
        return counts

    def offset_count(self) -> int:
        """How many offsets are kept, for the metrics."""
        return sum(len(group.offsets.committed) for group in self._groups.values())

    # Finding and dropping groups

    def _find(self, group_id: str) -> CoordinatedGroup | None:
        """The group; None when it does not exist but would be here. Raises KafkaError when it cannot be served here."""
        group = self._groups.get(group_id)
        if group is None:
            self._partition_of(group_id)
        return group

    def _partition_of(self, group_id: str) -> OffsetsPartition:
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        count = self._log.partition_count()
        partition = None if count is None else self._partitions.get(partition_for(group_id, count))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.state is PartitionState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if partition.state is PartitionState.FAILED:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition

    def _add_group(self, group_id: str) -> CoordinatedGroup:
        partition = self._partition_of(group_id)
        machine = Group(group_id, self.settings.group, self._moment())
        group = CoordinatedGroup(machine, GroupOffsets(), partition, machine.state)
        self._groups[group_id] = partition.groups[group_id] = group
        return group

    def _drop(self, group: CoordinatedGroup, removed: Sequence[TopicPartition]) -> None:
        """A group has died here: it leaves nothing in the log."""
        machine, partition = group.machine, group.partition
        assert machine.state is GroupState.DEAD
        keys = [offset_key(machine.group_id, *each) for each in removed]
        if machine.generation_id > 0:  # else it was never more than a store of offsets, and has no record
            keys.append(group_key(machine.group_id))
        del self._groups[machine.group_id]
        del partition.groups[machine.group_id]
        _disarm(group)
        self._append_tombstones(partition, keys)

    def _is_here(self, group: CoordinatedGroup) -> bool:
        return self._groups.get(group.machine.group_id) is group

    def _bury(self, group: CoordinatedGroup) -> Slices[ErrorCode]:
        """A group has died here: forget its offsets, and it when they are gone.

        Only then: a commit to a new group of that name would be followed in the log by the tombstones of this one.
        """
        *pieces, last = _pieces(group.offsets.partitions()) or [[]]
        for piece in pieces:
            removed = group.offsets.remove(piece)
            self._append_tombstones(group.partition, [offset_key(group.machine.group_id, *each) for each in removed])
            yield
            if not self._is_here(group):
                return ErrorCode.NOT_COORDINATOR
        self._drop(group, group.offsets.remove(last))
        return ErrorCode.NONE

    def _remove_in_slices(
        self, group: CoordinatedGroup, partitions: Sequence[TopicPartition], order: int
    ) -> Slices[None]:
        """Forget offsets but those committed at `order` or later."""
        for number, piece in enumerate(_pieces(partitions)):
            if number:
                yield
            if not self._is_here(group) or group.machine.state is GroupState.DEAD:
                return
            self._remove_offsets(group, group.offsets.untouched_since(order, piece))

    def _see_through(self, work: Slices[T]) -> T | Awaitable[T]:
        """Do work that has to be finished once it was begun, even if nobody waits for its result any more."""
        begun = self._sliced_work.run(work)
        if not isinstance(begun, asyncio.Future):
            return begun
        self._unfinished.add(begun)
        begun.add_done_callback(self._unfinished.discard)
        begun.add_done_callback(_log_failure)
        return asyncio.shield(begun)

    def _remove_offsets(self, group: CoordinatedGroup, partitions: Iterable[TopicPartition]) -> int:
        removed = group.offsets.remove(partitions)
        self.deletion_count += len(removed)
        machine = group.machine
        if machine.is_unused and group.offsets.is_empty:
            machine.delete()
            self._drop(group, removed)
        elif removed:
            self._append_tombstones(group.partition, [offset_key(machine.group_id, *each) for each in removed])
        return len(removed)

    def _expire_offsets_of(self, group: CoordinatedGroup, partitions: Sequence[TopicPartition]) -> int:
        machine = group.machine
        is_expired = expiry_rule(
            machine.state,
            machine.protocol_type,
            machine.subscribed_topics,
            machine.state_timestamp_ms,
            self._clock.now_ms(),
            self.settings.offsets_retention_ms,
        )
        expired = [] if is_expired is None else group.offsets.expired(is_expired, partitions)
        return self._remove_offsets(group, expired)

    def _schedule_expiry(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + self.settings.offsets_retention_check_interval_ms
        self._expiry_timer = self._timer.schedule(deadline_ms, self._start_expiry)

    def _start_expiry(self) -> None:
        if self._expiring is None or self._expiring.done():
            self._expiring = asyncio.ensure_future(self.expire_offsets())
            self._expiring.add_done_callback(_log_failure)
        self._schedule_expiry()

    # Performing what a machine decided

    def _moment(self) -> Moment:
        return _new_tuple(Moment, (self._clock.monotonic_ms(), self._clock.now_ms()))

    def _settle(self, group: CoordinatedGroup, reason: str) -> None:
        """Perform what the last event of a group's machine caused."""
        machine = group.machine
        if machine.state is not group.last_state:
            logger.info(
                "Group %s: %s to %s, generation %d, %d members (%s)",
                machine.group_id, group.last_state.value, machine.state.value, machine.generation_id,
                len(machine.members), reason,
            )  # fmt: skip
            group.last_state = machine.state
        for effect in machine.take_effects():
            self._perform(group, effect)
        self._arm(group)

    def _perform(self, group: CoordinatedGroup, effect: Effect) -> None:
        if isinstance(effect, AnswerJoin | AnswerSync):
            assert isinstance(effect.ticket, asyncio.Future)
            if not effect.ticket.done():  # else its client is gone
                effect.ticket.set_result(effect.answer)
        else:
            self._store_group(group, effect)

    def _store_group(self, group: CoordinatedGroup, effect: StoreGroup) -> None:
        machine = group.machine
        batch = group_batch(machine.group_id, effect.value, self._clock.now_ms(), self.settings.compression)

        def finish(error: ErrorCode) -> None:
            if error:
                logger.warning("Group %s: generation %d was not stored: %s", machine.group_id,
                               effect.value.generation_id, error.name)  # fmt: skip
            machine.stored(effect.outcome, GROUP_APPEND_ERRORS.get(error, error), self._moment())
            self._settle(group, f"generation stored: {error.name}")

        if isinstance(effect.outcome, AssignmentStored):
            self.completed_rebalance_count += 1
        group.partition.take_order()
        self._append(group.partition, batch, finish)

    def _arm(self, group: CoordinatedGroup) -> None:
        """Have the group woken up in time. A wake-up that has become too early is left: `advance` finds nothing due."""
        wake_at_ms = group.machine.wake_at_ms
        if wake_at_ms < group.armed_ms:
            if group.timer is not None:
                group.timer.cancel()
            group.armed_ms = wake_at_ms
            group.timer = self._timer.schedule(wake_at_ms, lambda: self._wake(group))

    def _wake(self, group: CoordinatedGroup) -> None:
        group.armed_ms = NEVER
        group.timer = None
        group.machine.advance(self._moment())
        self._settle(group, "time passed")

    # Appending

    def _refuse_long_metadata(self, offsets: Offsets) -> Mapping[TopicPartition, ErrorCode]:
        size_max = self.settings.offset_metadata_size_max
        refused = [
            each
            for each, value in offsets.items()
            if value.metadata and _java_length(value.metadata, size_max) > size_max
        ]
        for partition in refused:
            del offsets[partition]
        return dict.fromkeys(refused, ErrorCode.OFFSET_METADATA_TOO_LARGE) if refused else NOTHING_REFUSED

    def _store_offsets(
        self,
        group: CoordinatedGroup,
        offsets: Offsets,
        producer: CommittingProducer | None,
        refused: Mapping[TopicPartition, ErrorCode],
        batch: bytearray,
    ) -> CommitAnswer | Awaitable[CommitAnswer]:
        partition, kept, count = group.partition, group.offsets, len(offsets)
        order = partition.take_order()
        try:
            awaited = self._log.append(partition.number, batch, self.settings.commit_timeout_ms)
        except KafkaError as error:
            return CommitAnswer(COMMIT_APPEND_ERRORS.get(error.code, error.code), refused)
        if producer is not None:
            if awaited is None:
                kept.put_in_transaction(producer.producer_id, order, offsets)
            else:
                kept.begin_in_transaction(producer.producer_id, order, offsets)
            partition.groups_by_producer.setdefault(producer.producer_id, set()).add(group.machine.group_id)
        elif awaited is None:
            kept.put(order, offsets)
        else:
            kept.begin(order, offsets)
        if awaited is None:
            self.commit_count += count
            return CommitAnswer(ErrorCode.NONE, refused) if refused else COMMITTED
        waiter: asyncio.Future[CommitAnswer] = asyncio.get_running_loop().create_future()

        def finish(error: ErrorCode) -> None:
            if producer is None:
                kept.fail(order) if error else kept.succeed(order)
            elif error:
                kept.fail_in_transaction(producer.producer_id, order)
            else:
                kept.succeed_in_transaction(producer.producer_id, order)
            if not error:
                self.commit_count += count
            if not waiter.done():  # else its client is gone
                waiter.set_result(CommitAnswer(COMMIT_APPEND_ERRORS.get(error, error), refused))

        when_appended(awaited, finish)
        return waiter.result() if waiter.done() else waiter

    def _append_tombstones(self, partition: OffsetsPartition, keys: Sequence[bytes]) -> None:
        """Nobody waits: what is forgotten here and still in the log expires once more after the next load."""

        def finish(error: ErrorCode) -> None:
            if error:
                logger.error("Partition %d: tombstones were not stored: %s", partition.number, error.name)

        for batch in tombstone_batches(keys, self._clock.now_ms(), self.settings.compression):
            self._append(partition, batch, finish)

    def _append(self, partition: OffsetsPartition, batch: bytes, finish: Callable[[ErrorCode], None]) -> None:
        append_now(self._log, partition.number, batch, self.settings.commit_timeout_ms, finish)

    # Loading

    async def _load(self, partition: OffsetsPartition) -> None:
        started_ms = self._clock.monotonic_ms()
        replayed = ReplayedPartition()
        try:
            partition.next_order = self._log.end_offset(partition.number)
            await replay(self._log, partition.number, self.settings.load_buffer_size, replayed.replay)
            groups = await self._build_groups(partition, replayed)
        except (KafkaError, Malformed) as error:
            partition.state = PartitionState.FAILED
            logger.error("Partition %d of %s was not loaded: %s", partition.number, GROUP_METADATA_TOPIC, error)
            return
        except Exception:
            partition.state = PartitionState.FAILED
            logger.exception("Partition %d of %s was not loaded", partition.number, GROUP_METADATA_TOPIC)
            return
        self._activate(partition, groups)
        await self._resume(list(groups.values()))
        partition.loading = None
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        self.load_times_ms.append(elapsed_ms)
        if groups:
            logger.info("Loaded %d groups of partition %d in %d ms", len(groups), partition.number, elapsed_ms)

    async def _build_groups(
        self, partition: OffsetsPartition, replayed: ReplayedPartition
    ) -> dict[str, CoordinatedGroup]:
        groups = {}
        moment = self._moment()
        for number, group_id in enumerate(replayed.group_ids()):
            value = replayed.groups.get(group_id)
            if value is None:
                machine = Group(group_id, self.settings.group, moment)
            else:
                machine = Group.restored(group_id, value, self.settings.group, moment)
            offsets = replayed.offsets.get(group_id, GroupOffsets())
            for producer_id in offsets.open_transactions():
                partition.groups_by_producer.setdefault(producer_id, set()).add(group_id)
            groups[group_id] = CoordinatedGroup(machine, offsets, partition, machine.state)
            if number % SLICE_SIZE == 0:
                await asyncio.sleep(0)
        return groups

    def _activate(self, partition: OffsetsPartition, groups: dict[str, CoordinatedGroup]) -> None:
        partition.groups = groups
        partition.state = PartitionState.ACTIVE
        self._groups.update(groups)
        for producer_id, is_committed in partition.early_markers:
            self.end_transaction(partition.number, producer_id, is_committed=is_committed)
        partition.early_markers.clear()

    async def _resume(self, groups: Iterable[CoordinatedGroup]) -> None:
        """Let sessions run. A member that shows itself before its group's turn comes has begun another already."""
        for number, group in enumerate(groups, 1):
            if self._is_here(group):
                group.machine.resume(self._moment())
                self._settle(group, "loaded")
            if number % SLICE_SIZE == 0:
                await asyncio.sleep(0)


def _require_name(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _disarm(group: CoordinatedGroup) -> None:
    if group.timer is not None:
        group.timer.cancel()


def _java_length(text: str, size_max: int) -> int:
    """The length of a text in UTF-16 units, which is what limits are compared with; short ones are only estimated."""
    return len(text) if 2 * len(text) <= size_max else len(text.encode("utf-16-be", "surrogatepass")) // 2


def _pieces(partitions: Sequence[TopicPartition]) -> list[Sequence[TopicPartition]]:
    return [partitions[start : start + SLICE_SIZE] for start in range(0, len(partitions), SLICE_SIZE)]


def _log_failure(task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("A task of the group coordinator failed", exc_info=error)
