"""The groups that this broker coordinates: those of the active partitions of `__consumer_offsets`.

Owns: which groups exist here, from loading or the first request to their removal or the loss of the partition. Must not
know: what members or administrators may do, or when an offset is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from base.clock import Clock
from base.topic_partition import TopicPartition
from broker.coordination.background import BackgroundTasks, next_turn
from broker.coordination.coordinator_log import CoordinatorLog
from broker.coordination.led_partitions import LedPartitions
from broker.groups.machine.events import Moment
from broker.groups.machine.group import Group
from broker.groups.machine.offsets import GroupOffsets
from broker.groups.machine.records import offset_key
from broker.groups.machine.subscription import CONSUMER_PROTOCOL_TYPE
from broker.groups.partition import CoordinatedGroup, OffsetsPartition
from broker.groups.runner import GroupRunner
from broker.groups.settings import CoordinatorSettings
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.internal_topics import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from broker.groups.loading import ReplayedPartition
    from broker.groups.machine.consumer.group import ConsumerGroup
    from broker.groups.machine.consumer.records import Change
    from broker.groups.machine.share.group import ShareGroup

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

SLICE_SIZE = 500
"""Groups that are built or resumed before other requests get their turn: a few milliseconds."""


class HostedGroups:
    """The groups of one broker by id."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        log: CoordinatorLog,
        runner: GroupRunner,
        clock: Clock,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._log = log
        self._runner = runner
        self._groups: dict[str, CoordinatedGroup] = {}
        self.partitions: LedPartitions[OffsetsPartition] = LedPartitions(
            GROUP_METADATA_TOPIC, log, clock, ensure_internal_topic, self, logger, reloads_in_new_epoch=False
        )

    def find(self, group_id: str) -> CoordinatedGroup | None:
        """Return a group; None if it does not exist, but would belong to this broker.

        Raises KafkaError if the group cannot be served here now (see `LedPartitions.require`).
        """
        group = self._groups.get(group_id)
        if group is None:
            self.partitions.require(group_id)
        return group

    def find_named(self, group_id: str) -> CoordinatedGroup | None:
        """As `find`, but an empty id raises KafkaError(INVALID_GROUP_ID)."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.find(group_id)

    def find_to_join(self, group_id: str) -> CoordinatedGroup | None:
        """As `find_named`, but a group that is being deleted raises KafkaError(COORDINATOR_NOT_AVAILABLE).

        Its offsets are removed in slices. Until the last one is, another group of this id would lose its own.
        """
        group = self.find_named(group_id)
        if group is not None and group.machine.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group {group_id} is being deleted.")
        return group

    def __iter__(self) -> Iterator[CoordinatedGroup]:
        """Iterate over the groups that exist now; groups may come and go during the iteration."""
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)

    def is_hosted(self, group: CoordinatedGroup) -> bool:
        """Return whether this very group still exists here, and not another one with its id."""
        return self._groups.get(group.machine.group_id) is group

    def add(self, group_id: str) -> CoordinatedGroup:
        """Create a group. Nothing of it is stored until its first generation or its first commit."""
        partition = self.partitions.require(group_id)
        machine = Group(group_id, self._settings.group, self._runner.moment())
        return self._add(CoordinatedGroup(machine, GroupOffsets(), partition, machine.state))

    def add_consumer_group(self, group_id: str) -> CoordinatedGroup:
        """Create a group of the consumer protocol."""
        from broker.groups.machine.consumer.group import ConsumerGroup  # on demand: no start waits for these modules

        partition = self.partitions.require(group_id)
        return self._add(
            CoordinatedGroup(ConsumerGroup(group_id, self._settings.consumer()), GroupOffsets(), partition)
        )

    def add_share_group(self, group_id: str) -> CoordinatedGroup:
        """Create a share group."""
        from broker.groups.machine.share.group import ShareGroup  # on demand, as above

        partition = self.partitions.require(group_id)
        return self._add(CoordinatedGroup(ShareGroup(group_id, self._settings.share()), GroupOffsets(), partition))

    def begin_classic_if_unused(self, group: CoordinatedGroup) -> None:
        """Make a classic group of one of the consumer protocol, if that has no members."""
        machine = group.machine
        if isinstance(machine, Group) or machine.protocol_type != CONSUMER_PROTOCOL_TYPE or machine.is_in_use:
            return
        self._runner.replace(group, Group(machine.group_id, self._settings.group, self._runner.moment()))
        self._runner.append_tombstones(group.partition, machine.record_keys())

    def _add(self, group: CoordinatedGroup) -> CoordinatedGroup:
        group_id = group.machine.group_id
        assert group_id not in self._groups
        self._groups[group_id] = group.partition.groups[group_id] = group
        return group

    def drop(self, group: CoordinatedGroup, removed: Sequence[TopicPartition]) -> None:
        """Forget a dead group, and append the tombstones of its `removed` offsets and of its metadata.

        The requests that still wait in it get their responses.
        """
        machine, partition = group.machine, group.partition
        assert machine.is_dead
        self._runner.settle(group, "removed")
        keys = [*(offset_key(machine.group_id, *each) for each in removed), *machine.record_keys()]
        del self._groups[machine.group_id]
        del partition.groups[machine.group_id]
        group.disarm()
        self._runner.append_tombstones(partition, keys)

    # The contents of a partition (`PartitionContents`)

    def new_partition(self, number: int, leader_epoch: int) -> OffsetsPartition:
        """Return an empty partition."""
        return OffsetsPartition(number, leader_epoch, BackgroundTasks(logger))

    async def read(self, partition: OffsetsPartition) -> int:
        """Replay the log into groups, and return their number."""
        from broker.coordination.replay import replay  # on demand: no start waits for these modules
        from broker.groups.loading import ReplayedPartition

        partition.next_order = self._log.end_offset(partition.number)
        replayed, _ = await replay(
            self._log, partition.number, self._settings.load_buffer_size, ReplayedPartition, GROUP_METADATA_TOPIC
        )
        partition.groups = await self._build_groups(partition, replayed)
        return len(partition.groups)

    async def activated(self, partition: OffsetsPartition) -> None:
        """Serve the groups of a loaded partition, and start their sessions."""
        self._groups.update(partition.groups)
        partition.apply_early_markers()
        await self._resume(list(partition.groups.values()))

    def unloaded(self, partition: OffsetsPartition) -> None:
        """Forget the groups; the requests that wait get NOT_COORDINATOR."""
        for group_id, group in partition.groups.items():
            del self._groups[group_id]
            group.machine.resign()
            self._runner.settle(group, "the coordinator moved")
            group.disarm()

    async def _build_groups(
        self, partition: OffsetsPartition, replayed: ReplayedPartition
    ) -> dict[str, CoordinatedGroup]:
        groups = {}
        moment = self._runner.moment()
        for number, group_id in enumerate(replayed.group_ids()):
            machine = self._build_machine(group_id, replayed, moment)
            offsets = replayed.offsets.get(group_id, GroupOffsets())
            for producer_id in offsets.open_transactions():
                partition.groups_by_producer.setdefault(producer_id, set()).add(group_id)
            groups[group_id] = CoordinatedGroup(machine, offsets, partition, machine.state)
            if number % SLICE_SIZE == 0:
                await next_turn()
        return groups

    def _build_machine(
        self, group_id: str, replayed: ReplayedPartition, moment: Moment
    ) -> Group | ConsumerGroup | ShareGroup:
        if (changes := replayed.changes.get(group_id)) is not None:
            group = self._restored(group_id, changes.values())
            if replayed.has_lost_members(group_id):
                group.expel()
            return group
        value = replayed.groups.get(group_id)
        if value is not None:
            try:
                return Group.restored(group_id, value, self._settings.group, moment)
            except Malformed as error:
                logger.error("the members of group %s are lost and join again: %s", group_id, error)
        return Group(group_id, self._settings.group, moment)

    def _restored(self, group_id: str, changes: Iterable[Change]) -> ConsumerGroup | ShareGroup:
        from broker.groups.machine.consumer.group import ConsumerGroup  # on demand, as above
        from broker.groups.machine.share.group import ShareGroup, are_of_share_group

        if are_of_share_group(changes):
            return ShareGroup.restored(group_id, changes, self._settings.share())
        return ConsumerGroup.restored(group_id, changes, self._settings.consumer())

    async def _resume(self, groups: Iterable[CoordinatedGroup]) -> None:
        """Start the sessions. A member that sent a request before its group's turn has started its own already."""
        for number, group in enumerate(groups, 1):
            if self.is_hosted(group):
                group.machine.resume(self._runner.moment())
                self._runner.settle(group, "loaded")
            if number % SLICE_SIZE == 0:
                await next_turn()
