"""A member of a consumer group: joins, reads what it is assigned, commits, leaves or dies, and joins again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.clients.base import GROUP, Failed, Retry, Surroundings
from tests.sim.clients.consumer import Consumer
from tests.sim.history import Assignment, Commit, CommittedRead, Partition
from tests.sim.rules import OFFSETS

LEAVES: Final = 0.05
RESTARTS: Final = 0.15
REBALANCED = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


REPLACED: Final = "a static member that was replaced commits nothing"


class Member(Consumer):
    """Polls and commits `count` times. With an `instance_id` it is a static member, which does not leave.

    Instead it begins anew at times, as a process that was restarted, and gets another member id.
    """

    commit_version = 7
    """Of OffsetCommit."""

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
        super().__init__(name, around, partitions, is_committed=True)
        self._instance_id = instance_id
        self._earlier_id = ""
        self._group = group
        self._count = count
        self._member_id = ""
        self._generation = -1
        self._owned: list[Partition] = []
        self._rounds = 0
        self._commits = 0

    async def run(self) -> None:
        done = 0
        while done < self._count:
            try:
                await self.until_done("JoinGroup", self._join)
                await self.until_done("OffsetFetch", self._read_positions)
                await self._commit_as_earlier()
                while done < self._count:
                    await self.think(0.8)
                    await self.until_done("Heartbeat", self._beat)
                    await self._poll_owned()
                    await self.until_done("OffsetCommit", self._commit)
                    done += 1
                    if self._instance_id is not None and self.random.random() < RESTARTS:
                        self._earlier_id, self._member_id = self._member_id, ""
                        break
                    if self._instance_id is None and self.random.random() < LEAVES:
                        await self._leave()
                        break
            except Failed as error:
                self.history.counts[f"member: {error.code.name}"] += 1
                if error.code not in REBALANCED:
                    self.note_anomaly("unexpected error", f"group {self._group}: {error.code.name}")
                    await self.back_off()
                if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    self._member_id = ""
        await self._leave()
        self.doing = "finished"

    async def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=4000,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="sim",
            protocols=[JoinGroupRequestProtocol(name="round robin", metadata=b"")],
        )
        response = await self.ask_coordinator(GROUP, self._group, request, 5)
        error = self.expect(response.error_code, ErrorCode.MEMBER_ID_REQUIRED)
        self._member_id = response.member_id
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            raise Retry(error.name)
        self._generation = response.generation_id
        members = sorted(member.member_id for member in response.members)
        plans: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
        for number, partition in enumerate(self.partitions):
            if members:
                plans[members[number % len(members)]].append((partition.topic, partition.index))
        assignments = [
            SyncGroupRequestAssignment(member_id=member, assignment=json.dumps(plan).encode())
            for member, plan in plans.items()
        ]
        request_assignment = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            assignments=assignments,
        )
        response = await self.ask_coordinator(GROUP, self._group, request_assignment, 3)
        self.expect(response.error_code)
        owned = json.loads(bytes(response.assignment) or b"[]")
        self._owned = [Partition(topic, index) for topic, index in owned]
        # A static member has other member ids in one generation.
        member = self._instance_id or self._member_id
        self.history.assignments.append(
            Assignment(self._group, member, self._generation, tuple(self._owned), self.now_us())
        )
        self.history.counts["group generations joined"] += 1

    async def _read_positions(self) -> None:
        if not self._owned:
            return
        topics = [
            OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.index])
            for partition in self._owned
        ]
        broker = await self.coordinator(GROUP, self._group)
        asked_us = self.now_us()
        request = OffsetFetchRequest(group_id=self._group, topics=topics, require_stable=True)
        response = await self.ask_coordinator(GROUP, self._group, request, 7)
        self.expect(response.error_code)
        self.note_positions(response.topics, broker, asked_us)

    def note_positions(self, topics: Sequence[Any], broker: int, asked_us: int) -> None:
        """Continue from the committed offsets that `broker` has returned. Raises Retry."""
        for topic in topics:
            for found in topic.partitions:
                self.expect(found.error_code)
                partition = Partition(topic.name, found.partition_index)
                self.history.committed_reads.append(
                    CommittedRead(self._group, partition, found.committed_offset, broker, asked_us, self.now_us())
                )
                self.positions[partition] = max(found.committed_offset, 0)
        self._rounds += 1
        self.reading_as = f"{self.name}.{self._rounds}"  # a new position may precede what it has read

    async def _poll_owned(self) -> None:
        """Poll once, without waiting for a leader that is gone."""
        for partition in self._owned:
            self.doing = f"Fetch {partition}"
            try:
                await self.leader_of(partition)
                await self.poll(self.source_of(partition), [partition], max_wait_ms=100)
            except Retry:
                self.forget_cluster()

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        self.expect((await self.ask_coordinator(GROUP, self._group, request, 3)).error_code)

    async def _commit(self) -> None:
        if self._owned:
            await self.commit_as(self._member_id, self._generation, self._owned)

    async def commit_as(self, member_id: str, generation: int, partitions: Sequence[Partition]) -> None:
        """Commit the positions of partitions in the name of a member, in a generation or a member epoch.

        Raises Retry, Failed.
        """
        topics = []
        commits = []
        self._commits += 1
        token = f"<{self.name}/{self._commits}>"
        for partition in partitions:
            position = OffsetCommitRequestPartition(
                partition_index=partition.index, committed_offset=self.positions[partition], committed_metadata=token
            )
            topics.append(OffsetCommitRequestTopic(name=partition.topic, partitions=[position]))
            commits.append(
                Commit(self._group, member_id, generation, partition, self.positions[partition], self.now_us())
            )
        self.history.commits += commits
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self._instance_id,
            topics=topics,
        )
        response = await self.ask_coordinator(GROUP, self._group, request, self.commit_version)
        for topic in response.topics:
            for found in topic.partitions:
                self.expect(found.error_code)
        copies = self.around.copies_of_commit(token)
        for commit in commits:
            commit.acked_us = self.now_us()
            commit.stored_by = copies
        self.history.counts["acknowledged commits"] += len(commits)

    async def _commit_as_earlier(self) -> None:
        """Commit once as the process that this one has replaced, if it is one that was restarted."""
        earlier, self._earlier_id = self._earlier_id, ""
        if not earlier or not self._owned or earlier == self._member_id:
            return
        partition = self._owned[0]
        position = OffsetCommitRequestPartition(
            partition_index=partition.index,
            committed_offset=self.positions[partition],
            committed_metadata=f"<{self.name} before>",
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=earlier,
            group_instance_id=self._instance_id,
            topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[position])],
        )
        try:
            response = await self.ask_coordinator(GROUP, self._group, request, 7)
        except Retry:
            return
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        self.history.counts[f"commits of replaced members: {code.name}"] += 1
        if code is ErrorCode.NONE:
            self.note_anomaly(REPLACED, f"{self._instance_id} as {earlier}", OFFSETS)

    async def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=self._group, member_id=self._member_id)
        try:
            await self.ask_coordinator(GROUP, self._group, request, 2)
        except Retry:
            self.forget_cluster()
        self._member_id = ""
