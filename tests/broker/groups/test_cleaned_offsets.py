"""The broker's own cleaner works on `__consumer_offsets`: what a restart finds in what it left is what was there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.members import join_alone

DEADLINE_S = 30
GROUPS = [f"group-{number}" for number in range(5)]
DELETED, MEMBERS = "deleted", "members"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.delete.retention.ms": "0",
}


async def coordinating(broker: InProcessBroker) -> None:
    """Return when the coordinator has loaded its groups."""
    await broker.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
    async with asyncio.timeout(DEADLINE_S):
        while (  # noqa: ASYNC110 - no event says when the partition is loaded
            await broker.ask(OffsetFetchRequest(group_id="g", topics=[]), 7)
        ).error_code:
            await asyncio.sleep(0.01)


async def commit(broker: InProcessBroker, group: str, offset: int) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset + index, committed_metadata="m" * index
        )
        for index in range(3)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    response = await broker.ask(OffsetCommitRequest(group_id=group, member_id="", topics=topics), 7)
    assert {partition.error_code for partition in response.topics[0].partitions} == {ErrorCode.NONE}


async def all_there_is(broker: InProcessBroker) -> object:
    offsets = {}
    for group in (*GROUPS, DELETED):
        response = await broker.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
        offsets[group] = [
            (partition.partition_index, partition.committed_offset, partition.metadata)
            for topic in response.topics
            for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]
    (group,) = (await broker.ask(DescribeGroupsRequest(groups=[MEMBERS]), 1)).groups
    members = [(member.member_id, member.member_assignment) for member in group.members]
    return offsets, group.group_state, members


def size_of_log(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "__consumer_offsets-0").glob("*.log"))


async def test_a_cleaned_log_loads_like_the_uncleaned_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running_broker(folder, SETTINGS) as broker:
        await broker.create_topic("t", 3)
        await coordinating(broker)
        await join_alone(broker, MEMBERS, metadata=b"subscription", assignment=b"everything")
        await commit(broker, DELETED, 1)
        for offset in range(200):
            for group in GROUPS:
                await commit(broker, group, offset)
        deleted = await broker.ask(DeleteGroupsRequest(groups_names=[DELETED]), 1)
        assert [result.error_code for result in deleted.results] == [ErrorCode.NONE]
        for offset in range(200, 400):
            await commit(broker, GROUPS[0], offset)
        expected = await all_there_is(broker)
        async with asyncio.timeout(DEADLINE_S):
            while size_of_log(folder) > 2 * int(SETTINGS["offsets.topic.segment.bytes"]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    async with running_broker(folder, SETTINGS) as broker:
        await coordinating(broker)
        assert await all_there_is(broker) == expected
    offsets = [(index, 199 + index, "m" * index) for index in range(3)]
    assert expected[0] == {  # type: ignore[index]
        **dict.fromkeys(GROUPS, offsets),
        GROUPS[0]: [(index, 399 + index, "m" * index) for index in range(3)],
        DELETED: [],
    }
