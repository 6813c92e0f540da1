"""Share groups (KIP-932): heartbeats of their members, and the states of the partitions that they read.

Owns: which group a heartbeat reaches, when the state of a partition begins and ends, and the start offsets that
administrators see and move. Must not know: what a heartbeat does (`broker.groups.machine.share`), what is delivered, or
the layouts of requests.

Methods raise KafkaError when the group cannot be served here now, and GROUP_ID_NOT_FOUND if it is no share group.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from base.pause import Pause, through
from broker.coordination.background import BackgroundTasks, Unfinished
from broker.coordination.turns import Turns
from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.member import JOINING
from broker.groups.machine.consumer.topics import Topic, Topics
from broker.groups.machine.share.group import ShareGroup
from broker.groups.partition import CoordinatedGroup
from broker.groups.runner import GroupRunner
from broker.loop.promise import Promise
from broker.share.machine.records import ShareKey
from broker.share.machine.state_calls import FIRST_EPOCH, Call, Delete, Initialize, ReadSummary
from broker.share.machine.stored_states import NO_START, ShareState
from broker.share.parts import ShareParts
from protocol.errors import ErrorCode, KafkaError

FIRST_PAUSE_MS, PAUSE_MS_MAX = 20, 1000
PATIENCE_MS: Final = 1000
"""How long a call is repeated while a share coordinator is not available: a member that joins may wait for it."""
CALLS_MAX: Final = 500
"""Calls that are under way at the same time for one group."""

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")


class StartOffset(NamedTuple):
    """Where a share group is in a partition; -1 if it has not begun to read it."""

    start_offset: int
    leader_epoch: int
    error_code: ErrorCode = ErrorCode.NONE


UNKNOWN_PARTITION: Final = StartOffset(NO_START, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_BEGUN: Final = StartOffset(NO_START, 0)


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
        self._turns: Turns[ShareGroup] = Turns()
        """What begins, moves or ends states of a group runs one after the other."""
        self._following: set[ShareGroup] = set()
        self._sure: WeakKeyDictionary[ShareGroup, set[UUID]] = WeakKeyDictionary()
        """The topics of which this coordinator has begun the states. Of others, an unfinished deletion by the one
        before may have ended some."""

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        return self._tasks.cancel()

    async def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatResult:
        """Serve a heartbeat."""
        if request.epoch == JOINING and request.topic_names is not None:
            await self._prepare(group_id, request.topic_names)
        group = self._groups.find_to_join(group_id)
        if group is None:
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

        If that takes too long, the member joins without them. While the group is being deleted, it waits.
        """
        is_prepared = False
        while not is_prepared:
            group, machine = self._begun(group_id)
            async with self._turns.of(machine):
                if not machine.is_dead:
                    is_prepared = True
                    with suppress(KafkaError):
                        await self._begin_missing(group, machine, names)

    async def _begin_missing(self, group: CoordinatedGroup, machine: ShareGroup, names: Iterable[str]) -> None:
        """Begin the states that topics lack. Raises KafkaError if one cannot be stored; the others count then."""
        topics, sure = self._topics(), self._sure.get(machine, set())
        missing = {
            name: topic
            async for name in through(names, self._pause)
            if (topic := topics.find(name)) is not None and not (topic.topic_id in sure and machine.has_states(topic))
        }
        await self._begin_states(group, machine, missing)

    def _begun(self, group_id: str) -> tuple[CoordinatedGroup, ShareGroup]:
        """Return a group, which is created unless it exists."""
        group = self._groups.find_to_join(group_id)
        if group is None:
            group = self._groups.add_share_group(group_id)
        return group, _share_group(group)

    def follow_up(self, group: CoordinatedGroup) -> None:
        """Begin the states of partitions that members subscribe to, and end those of deleted topics."""
        machine, topics = _share_group(group), self._topics()
        if machine.is_dead or machine in self._following or machine.is_looked_after(topics):
            return
        if machine.missing_states() or machine.outlived_states(topics):
            self._following.add(machine)
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
                try:
                    async with self._turns.of(machine):
                        missing, outlived = machine.missing_states(), machine.outlived_states(self._topics())
                        if not missing and not outlived:
                            return
                        await self._end_states(group, machine, outlived)
                        await self._begin_states(group, machine, missing)
                except KafkaError as error:
                    logger.info("Share group %s: states wait: %s", machine.group_id, error.code.name)
                    await self._sleep_ms(pause_ms)
                    pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
        finally:
            self._following.discard(machine)

    async def _begin_states(self, group: CoordinatedGroup, machine: ShareGroup, missing: Mapping[str, Topic]) -> None:
        """Begin the states of topics. Raises KafkaError if one cannot be stored; the others count then."""
        if missing:
            await self._parts.states.partitions.ensure_topic()
        for name, topic in missing.items():
            keys = [ShareKey(machine.group_id, topic.topic_id, number) for number in range(topic.partition_count)]
            for result in await self._called(group, [Initialize(key, FIRST_EPOCH) for key in keys]):
                if isinstance(result, KafkaError):
                    raise result
            self._sure.setdefault(machine, set()).add(topic.topic_id)
            if not machine.has_states(topic):
                machine.states_initialized(topic.topic_id, name, topic.partition_count)
                self._settle(group, f"states of {name}")

    async def _end_states(self, group: CoordinatedGroup, machine: ShareGroup, topic_ids: Iterable[UUID]) -> None:
        """End the states of topics. Raises KafkaError if that cannot be stored."""
        for topic_id in topic_ids:
            self._sure.get(machine, set()).discard(topic_id)
            keys = [ShareKey(machine.group_id, topic_id, number) for number in machine.initialized[topic_id].partitions]
            with self._superseded(keys):
                for result in await self._called(group, [Delete(key) for key in keys]):
                    if isinstance(result, KafkaError):
                        raise result
            machine.states_deleted([topic_id])
            self._settle(group, "states deleted")

    @contextmanager
    def _superseded(self, keys: Sequence[ShareKey]) -> Iterator[None]:
        """Load partitions again that this broker leads: their states are about to change. Other leaders are fenced."""
        self._parts.partitions.reset(keys)
        try:
            yield
        finally:
            self._parts.partitions.reset(keys)

    async def _called(self, group: CoordinatedGroup, calls: Sequence[Call]) -> list[ShareState | KafkaError]:
        """Make calls, some at the same time, and return their results.

        Raises KafkaError: NOT_COORDINATOR if the coordinator has moved, which then makes such calls.
        """
        results: list[ShareState | KafkaError] = []
        for start in range(0, len(calls), CALLS_MAX):
            piece = calls[start : start + CALLS_MAX]
            begun = [self._parts.links.call(call, PATIENCE_MS) async for call in through(piece, self._pause)]
            async for each in through(begun, self._pause):
                try:
                    results.append(await each)
                except KafkaError as error:
                    results.append(error)
            if not self._groups.is_hosted(group):
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return results

    def _settle(self, group: CoordinatedGroup, reason: str) -> None:
        """Store what has changed. Raises KafkaError if the log refuses that."""
        if code := self._runner.settle(group, reason):
            raise KafkaError(code)

    # Administrators

    async def delete(self, group_id: str, remove: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        """End all states of an empty share group, then `remove` it; return the code of that. Raises KafkaError."""
        _, machine = self._require_empty(group_id)
        async with self._turns.of(machine):
            group, machine = self._require_empty(group_id)
            await self._end_states(group, machine, list(machine.initialized))
            return await remove()

    async def start_offsets(self, group_id: str, topic: str, numbers: Sequence[int]) -> list[StartOffset]:
        """Return where a group is in partitions of a topic. If one of them does not exist, it has not begun."""
        group, found = self._find(group_id), self._topics().find(topic)
        if group is None or found is None:
            return [NOT_BEGUN] * len(numbers)
        _share_group(group)
        known, pause = range(found.partition_count), self._pause
        asked = [
            ReadSummary(ShareKey(group_id, found.topic_id, number))
            async for number in through(numbers, pause)
            if number in known
        ]
        results = iter(await self._called(group, asked))
        return [
            _start_offset(next(results)) if number in known else UNKNOWN_PARTITION
            async for number in through(numbers, pause)
        ]

    def known_partitions(self, group_id: str) -> dict[str, list[int]]:
        """Return the partitions that a group reads, by topic; none of a group that does not exist."""
        group = self._find(group_id)
        if group is None:
            return {}
        return {each.topic_name: list(each.partitions) for each in _share_group(group).initialized.values()}

    async def move(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], ErrorCode]:
        """Let an empty group begin at other offsets, by topic and partition; return a code for each.

        A group that does not exist is created. Raises KafkaError: NON_EMPTY_GROUP.
        """
        _, machine = self._begun(group_id)
        async with self._turns.of(machine):
            group, machine = self._require_empty(group_id)
            topics = self._topics()
            codes: dict[tuple[str, int], ErrorCode] = {}
            wanted: dict[tuple[str, int], ShareKey] = {}
            names: dict[str, None] = {}
            async for name, number in through(offsets, self._pause):
                found = topics.find(name)
                if found is None or not 0 <= number < found.partition_count:
                    codes[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    wanted[name, number] = ShareKey(group_id, found.topic_id, number)
                    names[name] = None
            await self._begin_missing(group, machine, names)
            moved = await self._moved(group, [(key, offsets[place]) for place, key in wanted.items()])
        return codes | dict(zip(wanted, moved, strict=True))

    async def _moved(self, group: CoordinatedGroup, places: Sequence[tuple[ShareKey, int]]) -> list[ErrorCode]:
        """Begin states anew at other offsets; return a code for each."""
        with self._superseded([key for key, _ in places]):
            found = await self._called(group, [ReadSummary(key) for key, _ in places])
            anew = [
                Initialize(key, state.state_epoch + 1, offset)
                for (key, offset), state in zip(places, found, strict=True)
                if isinstance(state, ShareState)
            ]
            results = iter(await self._called(group, anew))
        return [_code(next(results) if isinstance(state, ShareState) else state) for state in found]

    async def forget(self, group_id: str, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Forget what an empty group has read of topics; return a code for each. Raises KafkaError: NON_EMPTY_GROUP."""
        _, machine = self._require_empty(group_id)
        codes = {}
        async with self._turns.of(machine):
            group, machine = self._require_empty(group_id)
            ids = {each.topic_name: topic_id for topic_id, each in machine.initialized.items()}
            async for name in through(topics, self._pause):
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if name in ids:
                    try:
                        await self._end_states(group, machine, [ids[name]])
                        codes[name] = ErrorCode.NONE
                    except KafkaError as error:
                        codes[name] = error.code
        return codes

    def _find(self, group_id: str) -> CoordinatedGroup | None:
        """Return a group, of any type, that is not dead."""
        group = self._groups.find_named(group_id)
        return None if group is None or group.machine.is_dead else group

    def _require_empty(self, group_id: str) -> tuple[CoordinatedGroup, ShareGroup]:
        group = self._find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        machine = _share_group(group)
        if machine.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group, machine


def _share_group(group: CoordinatedGroup) -> ShareGroup:
    machine = group.machine
    if not isinstance(machine, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {machine.group_id} is not a share group.")
    return machine


def _start_offset(result: ShareState | KafkaError) -> StartOffset:
    if isinstance(result, KafkaError):
        return StartOffset(NO_START, 0, result.code)
    return StartOffset(result.start_offset, result.leader_epoch)


def _code(result: ShareState | KafkaError) -> ErrorCode:
    return result.code if isinstance(result, KafkaError) else ErrorCode.NONE
