"""OffsetCommit on one connection after others that were good: each is decided and stored for itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.replicated_log import ReplicatedLog
from protocol.api import APIS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.schema import ZERO_UUID
from tests.support.in_process import InProcessBroker, running_broker

FIRST_VERSION_WITH_EPOCH = 6


@pytest.fixture
async def coordinating(served: InProcessBroker) -> InProcessBroker:
    """A broker that coordinates groups, with the topics t and u."""
    await begin_to_coordinate(served)
    return served


async def begin_to_coordinate(broker: InProcessBroker) -> None:
    for topic in ("t", "u"):
        await broker.create_topic(topic, 2)
    await until_it_coordinates(broker)


async def until_it_coordinates(broker: InProcessBroker) -> None:
    await broker.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
    async with asyncio.timeout(10):
        while (  # noqa: ASYNC110 - no event says when the partition is loaded
            await broker.ask(OffsetFetchRequest(group_id="g", topics=[]), 7)
        ).error_code:
            await asyncio.sleep(0.01)


async def commit(
    broker: InProcessBroker,
    offset: int,
    version: int = 8,
    *,
    group: str = "g",
    topic: str = "t",
    index: int = 0,
    metadata: str | None = "",
    **more: Any,
) -> int:
    """The error code."""
    partition = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=3 if version >= FIRST_VERSION_WITH_EPOCH else -1,
        committed_metadata=metadata,
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    response = await broker.ask(OffsetCommitRequest(group_id=group, topics=topics, **more), version)
    ((responded, codes),) = [
        (one.name, [(it.partition_index, it.error_code) for it in one.partitions]) for one in response.topics
    ]
    assert (responded, [it[0] for it in codes]) == (topic, [index])
    code: int = codes[0][1]
    return code


async def stored(broker: InProcessBroker, group: str = "g", topic: str = "t", index: int = 0) -> tuple[int, int, str]:
    """Offset, leader epoch and metadata."""
    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[index])]
    (found,) = (await broker.ask(OffsetFetchRequest(group_id=group, topics=wanted), 7)).topics[0].partitions
    return found.committed_offset, found.committed_leader_epoch, found.metadata


@pytest.mark.parametrize("version", list(APIS[8].versions)[1:])
async def test_commits_that_repeat_are_all_stored(coordinating: InProcessBroker, version: int) -> None:
    epoch = 3 if version >= FIRST_VERSION_WITH_EPOCH else -1
    for offset in (5, 1 << 40, 0, 7):
        assert await commit(coordinating, offset, version, metadata="m") == ErrorCode.NONE
        assert await stored(coordinating) == (offset, epoch, "m")


async def test_commits_that_differ_in_one_thing_do_not_mix(coordinating: InProcessBroker) -> None:
    assert await commit(coordinating, 1, metadata="m") == ErrorCode.NONE
    others: list[dict[str, Any]] = [
        {"group": "h"},
        {"index": 1},
        {"topic": "u"},
        {"metadata": None},
        {"version": 4, "retention_time_ms": 5_000_000},
    ]
    for offset, other in enumerate(others, 2):
        assert await commit(coordinating, offset, **other) == ErrorCode.NONE
    assert await stored(coordinating, "h") == (2, 3, "")
    assert await stored(coordinating, index=1) == (3, 3, "")
    assert await stored(coordinating, topic="u") == (4, 3, "")
    assert await stored(coordinating) == (6, -1, "")


async def test_a_repeated_commit_gets_the_error_of_its_moment(coordinating: InProcessBroker) -> None:
    """A member appears, after which only members may commit; then the topic goes."""
    assert [await commit(coordinating, offset) for offset in range(2)] == [ErrorCode.NONE] * 2
    join = JoinGroupRequest(
        member_id="",
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert not (await coordinating.ask(join, 2)).error_code
    assert await commit(coordinating, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=10_000)
    assert not (await coordinating.ask(deletion)).responses[0].error_code
    assert await commit(coordinating, 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_commit_whose_append_fails_later_stores_nothing(
    coordinating: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(coordinating, 1)
    appended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(ReplicatedLog, "append", lambda *_: appended)
    waiting = asyncio.ensure_future(commit(coordinating, 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    appended.set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert await waiting == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await stored(coordinating) == (1, 3, "")


async def test_commits_are_on_disk_before_their_responses_with_flush_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "broker", {"log.flush.interval.messages": "1"}) as broker:
        await begin_to_coordinate(broker)
        logs = [log for log in broker.services.log_manager.logs() if log.topic == "__consumer_offsets"]
        synced: list[int] = []

        async def commit_and_look(offset: int) -> None:
            assert await commit(broker, offset) == ErrorCode.NONE
            synced.append(sum(log.durability.recovery_point for log in logs))

        await asyncio.gather(*map(commit_and_look, range(20)))
        assert all(count >= number for number, count in enumerate(synced, 1))
        assert await stored(broker) == (19, 3, "")
