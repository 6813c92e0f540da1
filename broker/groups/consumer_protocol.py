"""The consumer protocol (KIP-848): heartbeats of its members, and the computation of targets.

Owns: which group a heartbeat reaches, as it is created or converted, and when its targets are computed. Must not know:
what a heartbeat does (`broker.groups.machine.consumer`), or the layouts of requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.coordination.background import BackgroundTasks, Unfinished
from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.consumer.conversion import downgraded, upgraded
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.group import ConsumerGroup
from broker.groups.machine.consumer.member import JOINING
from broker.groups.machine.consumer.membership import Membership
from broker.groups.machine.consumer.topics import Topics
from broker.groups.machine.group import Group
from broker.groups.partition import CoordinatedGroup
from broker.groups.runner import GroupRunner
from broker.groups.settings import CoordinatorSettings
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from protocol.errors import ErrorCode, KafkaError

UPGRADES, DOWNGRADES = frozenset({"upgrade", "bidirectional"}), frozenset({"downgrade", "bidirectional"})
"""Values of `group.consumer.migration.policy`."""

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")


class ConsumerProtocol:
    """Serves the members of the consumer protocol of one broker."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        groups: HostedGroups,
        runner: GroupRunner,
        topics: Callable[[], Topics],
        sliced_work: SlicedWork,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._runner = runner
        self._topics = topics
        self._sliced_work = sliced_work
        self._tasks = BackgroundTasks(logger)
        self._computing: set[Membership] = set()
        """The groups whose targets are computed now: the computation itself goes on until they are those of now."""

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        return self._tasks.cancel()

    async def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatResult:
        """Serve a heartbeat. Raises KafkaError, also if the group cannot be served here now."""
        group = self._groups.find_to_join(group_id)
        if group is None:
            if request.epoch != JOINING:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = self._groups.add_consumer_group(group_id)
        topics, before = self._topics(), group.machine
        machine = self._upgraded(before, topics) if isinstance(before, Group) else before
        if not isinstance(machine, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        ticket: Promise[HeartbeatResult] = Promise()
        machine.consumer_heartbeat(request, topics, ticket, self._runner.moment())
        if machine is not before:
            group.replace(machine)
            machine.resume(self._runner.moment())
        if self._runner.settle(group, f"heartbeat of {request.member_id}") and isinstance(before, Group):
            group.replace(before)
            self._runner.arm(group)
        elif isinstance(before, Group):
            self._runner.give_way(before)
        return await ticket

    def _upgraded(self, group: Group, topics: Topics) -> ConsumerGroup:
        """Return a group of the consumer protocol in the place of a classic one. Raises KafkaError."""
        if group.is_in_use and self._settings.migration not in UPGRADES:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
        return upgraded(group, topics, self._settings.consumer())

    def follow_up(self, group: CoordinatedGroup) -> None:
        """Do what the last event calls for: compute targets, or go on as a classic group."""
        machine = group.machine
        if isinstance(machine, Group) or machine.is_dead:
            return
        if isinstance(machine, ConsumerGroup) and machine.is_classic and self._settings.migration in DOWNGRADES:
            self._downgrade(group, machine)
        elif machine.is_waited_for and machine not in self._computing and machine.is_refresh_due(self._topics()):
            self._tasks.go_on(self._sliced_work.start(self._refresh(group, machine)))

    def _downgrade(self, group: CoordinatedGroup, machine: ConsumerGroup) -> None:
        classic, value = downgraded(machine, self._settings.group, self._runner.moment())
        if not self._runner.store_conversion(group, value):
            self._runner.replace(group, classic)
            self._runner.settle(group, "no member of the consumer protocol is left")

    async def _refresh(self, group: CoordinatedGroup, machine: Membership) -> None:
        self._computing.add(machine)
        try:
            await self._refreshed(group, machine)
        finally:
            self._computing.discard(machine)

    async def _refreshed(self, group: CoordinatedGroup, machine: Membership) -> None:
        while machine.is_refresh_due(topics := self._topics()):
            failure: str | None = None
            try:
                await machine.refresh(topics, self._sliced_work.pause)
            except Exception as error:  # of an assignor's code
                logger.exception("Group %s: the targets cannot be computed", machine.group_id)
                failure = str(error) or type(error).__name__
            if machine.is_dead:
                return  # a record of it would follow the tombstones of its group
            for raised in machine.refreshed(self._runner.moment(), failure):
                logger.error("Group %s: a request that waited for targets failed", machine.group_id, exc_info=raised)
            if self._runner.settle(group, "targets computed") or failure is not None:
                return
