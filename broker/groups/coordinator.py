"""The group coordinator: the requests of members, and the parts that serve all others.

Owns: which event of a group's machine a member's request is, and who waits for its result. Must not know: request
layouts and versions (the handlers'), membership rules (`broker.groups.machine.group`), or how effects are performed
(`broker.groups.runner`).

Everything runs on one event loop, and a group's machine is never left between two steps, so a group needs no lock.

Methods raise KafkaError when the group cannot be served here now: INVALID_GROUP_ID, then the errors of
`LedPartitions.require` in their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from base.clock import Clock
from broker.coordination.background import ended, sleep
from broker.coordination.coordinator_log import CoordinatorLog
from broker.groups.hosted_groups import HostedGroups
from broker.groups.inspection import GroupInspection
from broker.groups.machine.events import JoinRequest, JoinResult, SyncRequest, SyncResult
from broker.groups.machine.subscription import SHARE_PROTOCOL_TYPE
from broker.groups.offset_commits import OffsetCommits
from broker.groups.partition import CoordinatedGroup
from broker.groups.removal import Removal
from broker.groups.runner import GroupRunner
from broker.groups.settings import CoordinatorSettings
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups.consumer_protocol import ConsumerProtocol
    from broker.groups.machine.consumer.topics import Topics
    from broker.groups.share_protocol import ShareProtocol
    from broker.share.on_demand import ShareOnDemand


class GroupCoordinator:
    """The coordinator of one broker."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        log: CoordinatorLog,
        timer: Timer,
        clock: Clock,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
        sliced_work: SlicedWork,
        topics: Callable[[], Topics],
        share_parts: ShareOnDemand,
    ) -> None:
        """`ensure_internal_topic(name)` creates the topic unless it exists, and raises KafkaError if it cannot.

        `share_parts()` returns where the progress of share groups is kept.
        """
        self.settings = settings
        self.runner = GroupRunner(settings, log, timer, clock, self._follow_up)
        self._groups = HostedGroups(settings, log, self.runner, clock, ensure_internal_topic)
        self.partitions = self._groups.partitions
        self.offsets = OffsetCommits(settings, log, clock, self._groups, self.runner)
        self.removal = Removal(settings, self._groups, self.runner, timer, clock, sliced_work)
        self.inspection = GroupInspection(self._groups)
        self._topics = topics
        self._sliced_work = sliced_work
        self._sleep = partial(sleep, timer, clock)
        self._share_parts = share_parts
        self._consumers: ConsumerProtocol | None = None
        self._shares: ShareProtocol | None = None

    def _follow_up(self, group: CoordinatedGroup) -> None:
        self.consumers.follow_up(group)
        if group.machine.protocol_type == SHARE_PROTOCOL_TYPE:
            self.shares.follow_up(group)

    @property
    def consumers(self) -> ConsumerProtocol:
        """The members of the consumer protocol."""
        if self._consumers is None:
            from broker.groups.consumer_protocol import ConsumerProtocol  # on demand: no start waits for these modules

            self._consumers = ConsumerProtocol(
                self.settings, self._groups, self.runner, self._topics, self._sliced_work
            )
        return self._consumers

    @property
    def shares(self) -> ShareProtocol:
        """The members of share groups."""
        if self._shares is None:
            from broker.groups.share_protocol import ShareProtocol  # on demand, as above

            self._shares = ShareProtocol(
                self._groups, self.runner, self._topics, self._sliced_work.pause, self._sleep, self._share_parts()
            )
        return self._shares

    def start(self) -> None:
        """Start the periodic work."""
        self.removal.start()

    async def stop(self) -> None:
        """Stop serving: requests that wait get NOT_COORDINATOR, so that clients look for another coordinator."""
        protocols = [each for each in (self._consumers, self._shares) if each is not None]
        cancelled = [*self.removal.stop(), *(future for each in protocols for future in each.stop())]
        cancelled += await self._share_parts.stop()
        await self.partitions.stop()
        await ended(cancelled)

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Join a member to the group; the result is known when the next generation is formed."""
        group = self._groups.find_to_join(group_id)
        timeout_min_ms, timeout_max_ms = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        if not timeout_min_ms <= request.session_timeout_ms <= timeout_max_ms:
            return JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        if group is None:
            if request.member_id:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            group = self._groups.add(group_id)
        else:
            self._groups.begin_classic_if_unused(group)
        ticket: Promise[JoinResult] = Promise()
        group.machine.join(request, ticket, self.runner.moment())
        self.runner.settle(group, request.reason or f"join of {request.member_id or request.generated_member_id}")
        return await ticket

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Return the assignment of a member, once the leader's assignment is stored.

        While the group is being loaded the result is REBALANCE_IN_PROGRESS: the phase of the rebalance is lost, and old
        clients do not expect COORDINATOR_LOAD_IN_PROGRESS here.
        """
        try:
            group = self._groups.find_named(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        if group is None:
            return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        ticket: Promise[SyncResult] = Promise()
        group.machine.sync(request, ticket, self.runner.moment())
        self.runner.settle(group, f"sync of {request.member_id}")
        return await ticket

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete an empty group with all that is stored of it. Raises KafkaError if it cannot be served here now."""
        group = self._groups.find(group_id)
        if group is not None and group.machine.protocol_type == SHARE_PROTOCOL_TYPE and not group.machine.is_dead:
            return await self.shares.delete(group_id, partial(self.removal.delete_group, group_id))
        return await self.removal.delete_group(group_id)

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Remove what groups have stored of deleted topics."""
        self.removal.topics_deleted(topics)
        if topics and self.settings.serves_share_groups:
            self.shares.topics_deleted()

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Keep the session of a member alive. While the group is being loaded, every heartbeat succeeds."""
        try:
            group = self._groups.find_named(group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return ErrorCode.NONE
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error_code = group.machine.heartbeat(member_id, group_instance_id, generation_id, self.runner.moment())
        self.runner.arm(group)
        return error_code

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]], reason: str = "") -> list[ErrorCode]:
        """Remove members, given by (member id, instance id); return one code for each."""
        group = self._groups.find_named(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        moment = self.runner.moment()
        codes = [group.machine.leave(member_id, instance_id, moment) for member_id, instance_id in members]
        self.runner.settle(group, reason or "members left")
        return codes
