"""Removal of offsets and groups: on request, with their topic, or when they expire.

Owns: what may be removed, the tombstones that follow, and the slices in which thousands are removed. Must not know: the
rule by which offsets expire (`broker.groups.machine.offsets`), or what members may do.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from base.clock import Clock
from base.topic_partition import TopicPartition
from broker.coordination.background import BackgroundTasks, PeriodicTask, Unfinished, rest_of
from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.records import offset_key
from broker.groups.machine.subscription import CONSUMER_PROTOCOL_TYPE
from broker.groups.partition import CoordinatedGroup
from broker.groups.runner import GroupRunner
from broker.groups.settings import CoordinatorSettings
from broker.loop.driver import Running
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

T = TypeVar("T")

SLICE_SIZE = 500
"""Offsets that are removed before other requests get their turn: a few milliseconds."""
INSPECTED_SLICE_SIZE = 20_000
"""Offsets that are only inspected before other requests get their turn: also a few milliseconds."""


class Removal:
    """Removes offsets and groups of one broker."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        groups: HostedGroups,
        runner: GroupRunner,
        timer: Timer,
        clock: Clock,
        sliced_work: SlicedWork,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._runner = runner
        self._clock = clock
        self._sliced_work = sliced_work
        self._tasks = BackgroundTasks(logger)
        self._expiry = PeriodicTask(
            timer, clock, self._tasks, settings.offsets_retention_check_interval_ms, self.expire_offsets
        )
        self.expiration_count = 0
        self.deletion_count = 0

    def start(self) -> None:
        """Start the periodic check for expired offsets."""
        self._expiry.start()

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        self._expiry.stop()
        return self._tasks.cancel()

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete offsets of partitions that no member of the group reads (KIP-496); one code for each partition.

        Raises KafkaError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP if it is not known what the members of
        the group read, or if the group cannot be served here now (see `LedPartitions.require`).
        """
        group = self._groups.find_named(group_id)
        if group is None or group.machine.is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.machine.is_in_use and group.machine.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        order = group.partition.next_order  # now: the work may begin in a later turn, after other commits

        async def delete() -> dict[TopicPartition, ErrorCode]:
            codes: dict[TopicPartition, ErrorCode] = {}
            async for piece in self._pieces_in_turns(partitions):
                codes |= {partition: _deletion_error(group, partition[0]) for partition in piece}
                unread = [partition for partition in piece if not codes[partition]]
                self._remove_untouched(group, unread, order)
            return codes

        return await self._run_to_end(delete())

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete an empty group with all its offsets (KIP-229). The group exists as a dead one until they are removed.

        Raises KafkaError if the group cannot be served here now (see `LedPartitions.require`).
        """
        group = self._groups.find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return group.machine.delete() or await self._run_to_end(self._remove_dead_group(group))

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Remove the offsets of deleted topics, except those that are committed after this call."""
        orders = {partition.number: partition.next_order for partition in self._groups.partitions}

        async def delete() -> None:
            pause = self._sliced_work.pause
            inspected = 0
            for group in self._groups:
                known = group.offsets.partitions()
                inspected += 1 + len(known)
                deleted = [partition for partition in known if partition[0] in topics]
                if deleted and group.partition.number in orders:
                    await self._remove_in_slices(group, deleted, orders[group.partition.number])
                if inspected >= INSPECTED_SLICE_SIZE:
                    inspected = 0
                    await pause()

        self._tasks.go_on(self._sliced_work.start(delete()))

    async def expire_offsets(self) -> None:
        """Remove expired offsets, and groups that have neither members nor offsets left."""
        inspected = 0
        for group in self._groups:
            known = list(group.offsets.committed)
            for piece in _pieces(known) or [known]:
                if not self._groups.is_hosted(group) or group.machine.is_dead:
                    break
                self.expiration_count += self._expire_offsets_of(group, piece)
                inspected += 1 + len(piece)
                if inspected >= SLICE_SIZE:
                    inspected = 0
                    await self._sliced_work.pause()

    def _expire_offsets_of(self, group: CoordinatedGroup, partitions: Sequence[TopicPartition]) -> int:
        is_expired = group.machine.expiry_rule(self._clock.now_ms(), self._settings.offsets_retention_ms)
        expired = [] if is_expired is None else group.offsets.expired(is_expired, partitions)
        return self._remove_offsets(group, expired)

    async def _remove_in_slices(
        self, group: CoordinatedGroup, partitions: Sequence[TopicPartition], order: int
    ) -> None:
        async for piece in self._pieces_in_turns(partitions):
            self._remove_untouched(group, piece, order)

    async def _pieces_in_turns(self, partitions: Sequence[TopicPartition]) -> AsyncIterator[Sequence[TopicPartition]]:
        for number, piece in enumerate(_pieces(partitions)):
            if number:
                await self._sliced_work.pause()
            yield piece

    def _remove_untouched(self, group: CoordinatedGroup, partitions: Iterable[TopicPartition], order: int) -> None:
        """Remove offsets, except those committed at `order` or later. Has no effect on a group that is gone."""
        if self._groups.is_hosted(group) and not group.machine.is_dead:
            self._remove_offsets(group, group.offsets.untouched_since(order, partitions))

    def _remove_offsets(self, group: CoordinatedGroup, partitions: Iterable[TopicPartition]) -> int:
        """Remove offsets, and the group if nothing is left of it; return the number of offsets removed."""
        removed = group.offsets.remove(partitions)
        self.deletion_count += len(removed)
        machine = group.machine
        if machine.is_unused and group.offsets.is_empty:
            machine.delete()
            self._groups.drop(group, removed)
        elif removed:
            self._append_tombstones(group, removed)
        return len(removed)

    async def _remove_dead_group(self, group: CoordinatedGroup) -> ErrorCode:
        """Remove the offsets of a dead group, and then the group.

        In this order, because the tombstones of this group would follow a commit to a new group of the same id in the
        log, and remove it.
        """
        pause = self._sliced_work.pause
        *pieces, last = _pieces(group.offsets.partitions()) or [[]]
        for piece in pieces:
            if not self._groups.is_hosted(group):
                return ErrorCode.NOT_COORDINATOR
            self._append_tombstones(group, group.offsets.remove(piece))
            await pause()
        if not self._groups.is_hosted(group):
            return ErrorCode.NOT_COORDINATOR
        self._groups.drop(group, group.offsets.remove(last))
        return ErrorCode.NONE

    def _append_tombstones(self, group: CoordinatedGroup, removed: Iterable[TopicPartition]) -> None:
        keys = [offset_key(group.machine.group_id, *each) for each in removed]
        self._runner.append_tombstones(group.partition, keys)

    async def _run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that has to be finished once it was begun, even if the client disconnects."""
        running = self._sliced_work.start(work)
        return await self._tasks.run_to_end(rest_of(running)) if isinstance(running, Running) else running


def _deletion_error(group: CoordinatedGroup, topic: str) -> ErrorCode:
    is_read = group.machine.is_in_use and group.machine.is_subscribed_to(topic)
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE


def _pieces(partitions: Sequence[TopicPartition]) -> list[Sequence[TopicPartition]]:
    return [partitions[start : start + SLICE_SIZE] for start in range(0, len(partitions), SLICE_SIZE)]
