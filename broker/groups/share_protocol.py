"""Share groups (KIP-932): heartbeats of their members, and the states of the partitions that they read.

Owns: which group a heartbeat reaches, when the state of a partition begins and ends, and the start offsets that
administrators see and move. Must not know: what a heartbeat does (`broker.groups.machine.share`), what is delivered, or
the layouts of requests.

Methods raise KafkaError when the group cannot be served here now, and GROUP_ID_NOT_FOUND if it is no share group.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from base.pause import Pause, through
from broker.coordination.background import BackgroundTasks, Unfinished
from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.member import JOINING
from broker.groups.machine.consumer.topics import Topics
from broker.groups.machine.share.group import ShareGroup
from broker.groups.partition import CoordinatedGroup
from broker.groups.runner import GroupRunner
from broker.loop.promise import Promise
from broker.share.machine.records import ShareKey
from broker.share.machine.stored_states import NO_START
from broker.share.parts import ShareParts
from protocol.errors import ErrorCode, KafkaError

FIRST_PAUSE_MS, PAUSE_MS_MAX = 20, 1000
PREPARATION_PAUSES_MS: Final = (10, 20, 40, 80, 160, 320, 320)

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")


class StartOffset(NamedTuple):
    """Where a share group is in a partition; -1 if it has not begun to read it."""

    start_offset: int
    leader_epoch: int
    error_code: ErrorCode = ErrorCode.NONE


class ShareProtocol:
    """Serves the share groups of one broker."""

    def __init__(
        self,
        groups: HostedGroups,
        runner: GroupRunner,
        topics: Callable[[], Topics],
        pause: Pause,
        sleep_ms: Callable[[int], Awaitable[None]],
        parts: ShareParts,
    ) -> None:
        self._groups = groups
        self._runner = runner
        self._topics = topics
        self._pause = pause
        self._sleep_ms = sleep_ms
        self._parts = parts
        self._tasks = BackgroundTasks(logger)
        self._initializing: set[ShareGroup] = set()

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        return self._tasks.cancel()

    async def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatResult:
        """Serve a heartbeat."""
        if request.epoch == JOINING and request.topic_names is not None:
            await self._prepare(group_id, request.topic_names)
        group = self._groups.find_named(group_id)
        if group is None or group.machine.is_dead:
            if request.epoch != JOINING:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = self._groups.add_share_group(group_id)
        machine = _share_group(group)
        ticket: Promise[HeartbeatResult] = Promise()
        machine.consumer_heartbeat(request, self._topics(), ticket, self._runner.moment())
        self._runner.settle(group, f"heartbeat of {request.member_id}")
        return await ticket

    async def _prepare(self, group_id: str, names: Iterable[str]) -> None:
        """Begin the states of topics, so that a member that joins gets their partitions at once and not the next time.

        If that takes too long, the member joins without them.
        """
        group, topics, missing = self._groups.find_named(group_id), self._topics(), dict[str, tuple[UUID, int]]()
        machine = None if group is None or group.machine.is_dead else _share_group(group)
        async for name in through(names, self._pause):
            topic = topics.find(name)
            if topic is not None and (machine is None or not machine.has_states(topic)):
                missing[name] = topic.topic_id, topic.partition_count
        if not missing:
            return
        group = self._groups.find_named(group_id)
        if group is None or group.machine.is_dead:
            group = self._groups.add_share_group(group_id)
        machine = _share_group(group)
        for pause_ms in PREPARATION_PAUSES_MS:
            try:
                await self._begin_states(group, machine, missing)
            except KafkaError:
                await self._sleep_ms(pause_ms)
            else:
                return

    def follow_up(self, group: CoordinatedGroup) -> None:
        """Begin the states of partitions that members subscribe to, and end those of deleted topics."""
        machine, topics = _share_group(group), self._topics()
        if machine.is_dead or machine in self._initializing or machine.is_looked_after(topics):
            return
        if machine.missing_states() or machine.outlived_states(topics):
            self._initializing.add(machine)
            self._tasks.start(self._follow_topics(group, machine))

    def topics_deleted(self) -> None:
        """End the states of deleted topics in groups without members as well."""
        for group in self._groups:
            if isinstance(group.machine, ShareGroup):
                self.follow_up(group)

    async def _follow_topics(self, group: CoordinatedGroup, machine: ShareGroup) -> None:
        pause_ms = FIRST_PAUSE_MS
        try:
            while self._groups.is_hosted(group) and not machine.is_dead:
                missing, outlived = machine.missing_states(), machine.outlived_states(self._topics())
                if not missing and not outlived:
                    return
                try:
                    await self._delete_states(group, machine, outlived)
                    await self._begin_states(group, machine, missing)
                except KafkaError as error:
                    logger.info("Share group %s: states wait: %s", machine.group_id, error.code.name)
                    await self._sleep_ms(pause_ms)
                    pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
        finally:
            self._initializing.discard(machine)

    async def _begin_states(
        self, group: CoordinatedGroup, machine: ShareGroup, missing: Mapping[str, tuple[UUID, int]]
    ) -> None:
        """Begin the states of topics. Raises KafkaError if one cannot be stored; the others count then."""
        await self._parts.states.partitions.ensure_topic()
        for name, (topic_id, count) in missing.items():
            keys = [ShareKey(machine.group_id, topic_id, number) for number in range(count)]
            async for key in through(keys, self._pause):
                await self._parts.states.initialize(key, 0)
            if machine.is_dead:
                return
            for key in keys:
                self._parts.states.state_of(key)  # raises if somebody has deleted it since
            machine.states_initialized(topic_id, name, count)
            self._settle(group, f"states of {name}")

    async def _delete_states(self, group: CoordinatedGroup, machine: ShareGroup, topic_ids: Iterable[UUID]) -> None:
        """End the states of topics. Raises KafkaError if that cannot be stored."""
        for topic_id in topic_ids:
            keys = [ShareKey(machine.group_id, topic_id, number) for number in machine.initialized[topic_id].partitions]
            async for key in through(keys, self._pause):
                self._parts.partitions.reset([key])
                await self._parts.states.delete(key)
                self._parts.partitions.reset([key])
            if not machine.is_dead:
                machine.states_deleted([topic_id])
                self._settle(group, "states deleted")

    def _settle(self, group: CoordinatedGroup, reason: str) -> None:
        """Store what has changed. Raises KafkaError if the log refuses that."""
        if code := self._runner.settle(group, reason):
            raise KafkaError(code)

    # Administrators

    async def delete_states(self, group_id: str) -> None:
        """End all states of an empty share group that is about to be deleted. Raises KafkaError: NON_EMPTY_GROUP."""
        group, machine = self._require(group_id, must_be_empty=True)
        await self._delete_states(group, machine, list(machine.initialized))

    def start_offset(self, group_id: str, topic: str, number: int) -> StartOffset:
        """Return where a group is in a partition."""
        found = self._topics().find(topic)
        if found is None or not 0 <= number < found.partition_count:
            return StartOffset(NO_START, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            state = self._parts.states.state_of(ShareKey(group_id, found.topic_id, number))
        except KafkaError as error:
            is_unread = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return StartOffset(NO_START, 0, ErrorCode.NONE if is_unread else error.code)
        return StartOffset(state.start_offset, state.leader_epoch)

    def known_partitions(self, group_id: str) -> dict[str, list[int]]:
        """Return the partitions that a group reads, by topic."""
        _, machine = self._require(group_id, must_be_empty=False)
        return {each.topic_name: list(each.partitions) for each in machine.initialized.values()}

    async def move(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], ErrorCode]:
        """Let an empty group begin at other offsets, by topic and partition; return a code for each.

        A group that does not exist is created. Raises KafkaError: NON_EMPTY_GROUP.
        """
        present = self._groups.find_named(group_id)
        if present is None or present.machine.is_dead:
            self._groups.add_share_group(group_id)
        group, machine = self._require(group_id, must_be_empty=True)
        topics, codes = self._topics(), dict[tuple[str, int], ErrorCode]()
        missing = {}
        async for name, _ in through(offsets, self._pause):
            found = topics.find(name)
            if found is not None and len(_numbers(machine, found.topic_id)) < found.partition_count:
                missing[name] = found.topic_id, found.partition_count
        await self._begin_states(group, machine, missing)
        async for (name, number), offset in through(offsets.items(), self._pause):
            found = topics.find(name)
            if found is None or not 0 <= number < found.partition_count:
                codes[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            codes[name, number] = await self._move(ShareKey(group_id, found.topic_id, number), offset)
        return codes

    async def _move(self, key: ShareKey, offset: int) -> ErrorCode:
        self._parts.partitions.reset([key])
        try:
            state = self._parts.states.state_of(key)
            await self._parts.states.initialize(key, state.state_epoch + 1, offset)
        except KafkaError as error:
            return error.code
        finally:
            self._parts.partitions.reset([key])
        return ErrorCode.NONE

    async def forget(self, group_id: str, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Forget what an empty group has read of topics; return a code for each. Raises KafkaError: NON_EMPTY_GROUP."""
        group, machine = self._require(group_id, must_be_empty=True)
        ids = {each.topic_name: topic_id for topic_id, each in machine.initialized.items()}
        codes = {}
        async for name in through(topics, self._pause):
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name in ids:
                try:
                    await self._delete_states(group, machine, [ids[name]])
                    codes[name] = ErrorCode.NONE
                except KafkaError as error:
                    codes[name] = error.code
        return codes

    def _require(self, group_id: str, *, must_be_empty: bool) -> tuple[CoordinatedGroup, ShareGroup]:
        group = self._groups.find_named(group_id)
        if group is None or group.machine.is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        machine = _share_group(group)
        if must_be_empty and machine.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group, machine


def _share_group(group: CoordinatedGroup) -> ShareGroup:
    machine = group.machine
    if not isinstance(machine, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {machine.group_id} is not a share group.")
    return machine


def _numbers(machine: ShareGroup, topic_id: UUID) -> list[int]:
    states = machine.initialized.get(topic_id)
    return [] if states is None else states.partitions
