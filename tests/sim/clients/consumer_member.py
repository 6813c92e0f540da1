"""A member of a group of the consumer protocol (KIP-848): the coordinator assigns, and heartbeats do all the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.sim.clients.base import GROUP, Failed, Retry, Surroundings
from tests.sim.clients.member import LEAVES, RESTARTS, Member
from tests.sim.history import Claim, Partition, Release

VERSION: Final = 0
"""Of its heartbeats: the coordinator chooses the member id."""
JOINING: Final = 0
LEAVING: Final = -1
LEFT_FOR_A_WHILE: Final = -2
SESSION_MS: Final = 6000
"""`group.consumer.session.timeout.ms` of the brokers."""
REBALANCE_MS: Final = 8000
"""Longer than a session: a member that does not hear of a revocation loses its session before that time is up."""
DIES: Final = 0.05
"""How often a dynamic member is gone without a word, and begins anew."""
SENDS_LATE: Final = 0.2
"""How often it commits once more in its epoch before."""
LOST: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""After these a member gives up all that it has, and joins again."""
EXPECTED: Final = LOST | {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID}


def partitions_by_id(partitions: Iterable[Partition], ids: dict[str, UUID]) -> list[TopicPartitions]:
    """Return partitions in the form of a heartbeat."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.index)
    return [TopicPartitions(topic_id=ids[topic], partitions=numbers) for topic, numbers in by_topic.items()]


class ConsumerMember(Member):
    """Polls and commits `count` times, and moves to its assignment: it revokes first, and confirms that afterwards."""

    commit_version = 9

    def __init__(
        self,
        name: str,
        around: Surroundings,
        group: str,
        partitions: Sequence[Partition],
        *,
        count: int,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(name, around, group, partitions, count=count, instance_id=instance_id)
        self._says_all = True
        """Whether the next heartbeat repeats everything, because the coordinator may not have got the one before."""
        self._reported: list[Partition] = []
        self._before: tuple[str, int] | None = None
        """The member id and epoch that it had before."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._member_id, self._generation = "", JOINING

    async def run(self) -> None:
        done = 0
        while done < self._count:
            try:
                await self.until_done("ConsumerGroupHeartbeat", self._beat)
                await self.think(0.8)
                await self._poll_owned()
                await self.until_done("OffsetCommit", self._commit)
                await self._commit_late()
                done += 1
                if self.random.random() < (LEAVES if self._instance_id is None else RESTARTS):
                    await self._leave()
                elif self._instance_id is None and self.random.random() < DIES:
                    self._lose_everything()
                    self._begin_anew()
            except Failed as error:
                await self._recover(error)
        await self._leave()
        self.doing = "finished"

    async def _recover(self, error: Failed) -> None:
        self.history.counts[f"consumer protocol: {error.code.name}"] += 1
        if error.code not in EXPECTED:
            self.note_anomaly("unexpected error", f"group {self._group}: {error.code.name}")
        if error.code not in LOST:
            await self.back_off()
            return
        self._lose_everything()
        if error.code is ErrorCode.FENCED_MEMBER_EPOCH:
            self._generation = JOINING
        else:
            self._begin_anew()

    # Heartbeats

    async def _beat(self) -> None:
        """Send a heartbeat, and move to what the response assigns. Raises Retry, Failed."""
        if not self.topic_ids.keys() >= {partition.topic for partition in self.partitions}:
            await self.refresh(sorted({partition.topic for partition in self.partitions}))
        is_full, self._says_all = self._says_all or self._generation == JOINING, True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._generation,
            instance_id=self._instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=sorted({it.topic for it in self.partitions}) if is_full else None,
            topic_partitions=(
                partitions_by_id(self._owned, self.topic_ids) if is_full or self._reported != self._owned else None
            ),
        )
        reported = list(self._owned)
        broker, asked_us = await self.coordinator(GROUP, self._group), self.now_us()
        response = await self.ask_coordinator(GROUP, self._group, request, VERSION)
        self.expect(response.error_code)
        self._says_all, self._reported = False, reported
        self._member_id = response.member_id or self._member_id
        if response.member_epoch != self._generation:
            self._before = (self._member_id, self._generation) if self._generation > JOINING else self._before
            self.history.counts["member epochs"] += 1
        self._generation = response.member_epoch
        assigned = self._owned if response.assignment is None else self._named(response.assignment)
        kept = [partition for partition in self._owned if partition in assigned]
        added = [partition for partition in assigned if partition not in self._owned]
        self.history.claims.append(
            Claim(
                self._group,
                self._member_id,
                self._instance_id or self._member_id,
                self._generation,
                (*kept, *added),
                broker,
                asked_us,
                self.now_us(),
                asked_us + SESSION_MS * 1000,
            )
        )
        if kept != self._owned:
            await self._revoke([partition for partition in self._owned if partition not in kept])
        self._owned = [*kept, *added]
        if added:
            await self.until_done("OffsetFetch", lambda: self._fetch_positions(added))
        if self._reported != self._owned:
            await self.until_done("ConsumerGroupHeartbeat", self._beat)

    def _named(self, assignment: Any) -> list[Partition]:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return [
            Partition(names[topic.topic_id], number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        ]

    async def _revoke(self, revoked: Sequence[Partition]) -> None:
        """Commit once more what is to be given up, and give it up."""
        self.history.counts["revoked partitions"] += len(revoked)
        try:
            await self.until_done("OffsetCommit", self._commit)
        finally:
            self._release(revoked)

    def _release(self, partitions: Sequence[Partition]) -> None:
        self.history.releases.append(Release(self._group, self._member_id, tuple(partitions), self.now_us()))

    def _lose_everything(self) -> None:
        self._release(self._owned)
        self._owned = []
        self._says_all = True

    # Offsets

    async def _fetch_positions(self, partitions: Sequence[Partition]) -> None:
        topics = [OffsetFetchRequestTopics(name=it.topic, partition_indexes=[it.index]) for it in partitions]
        group = OffsetFetchRequestGroup(
            group_id=self._group, member_id=self._member_id, member_epoch=self._generation, topics=topics
        )
        broker, asked_us = await self.coordinator(GROUP, self._group), self.now_us()
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        (found,) = (await self.ask_coordinator(GROUP, self._group, request, 9)).groups
        self.expect(found.error_code)
        self.note_positions(found.topics, broker, asked_us)

    async def _commit_late(self) -> None:
        """Commit once in an epoch that is over, as a request that was under way for long."""
        before, self._before = self._before, None
        if before is None or not self._owned or self.random.random() >= SENDS_LATE:
            return
        try:
            await self.commit_as(*before, self._owned[:1])
        except (Retry, Failed) as refusal:
            self.history.counts[f"late commits: {refusal}"] += 1

    # The end

    async def _leave(self) -> None:
        """Give up everything and leave; a static member only for a while."""
        epoch = LEAVING if self._instance_id is None else LEFT_FOR_A_WHILE
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=epoch, instance_id=self._instance_id
        )
        if self._generation > JOINING:
            self._before = self._member_id, self._generation
        self._lose_everything()
        try:
            await self.ask_coordinator(GROUP, self._group, request, VERSION)
        except Retry:
            self.forget_cluster()
        self._begin_anew()
