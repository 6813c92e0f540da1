"""OffsetCommit: what each version stores, and what is refused one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.groups.batches import COMMIT_STEP_SIZE, CommittingProducer, StoredForm, commit_batch, commit_batch_in_slices
from broker.groups.machine.records import OffsetAndMetadata
from broker.handlers import offset_commit
from broker.loop.driver import start
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.records.compression import Compression
from tests.broker.groups.served import Served, codes, versions_of
from tests.broker.groups.support import join_request, sync_request
from tests.storage.builders import Steps, pause, steps_of

VERSIONS = versions_of(OffsetCommitRequest)
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def request(*partitions: tuple[str, int, int], metadata: str | None = "m", **values: Any) -> OffsetCommitRequest:
    """A commit of (topic, partition, offset)."""
    return OffsetCommitRequest(
        group_id=values.pop("group_id", "g"),
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for topic, index, offset in partitions
        ],
        **values,
    )


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_consumer_without_a_group_commits(version: int) -> None:
    served = await Served.up()
    sent = request(("t", 0, 5), ("t", 1, 6), ("t", 2, 7), ("nosuch", 0, 8))
    for topic in sent.topics:
        topic.partitions[0].committed_leader_epoch = 3 if version >= 6 else -1
    response = await served.ask(offset_commit, sent, version)
    assert codes(response.topics) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.NONE,
        ("t", 2): UNKNOWN_TOPIC,
        ("nosuch", 0): UNKNOWN_TOPIC,
    }
    stored = served.coordinator.offsets.of("g").get(("t", 0))
    assert stored is not None
    assert (stored.offset, stored.metadata, stored.leader_epoch) == (5, "m", 3 if version >= 6 else -1)
    assert (stored.commit_timestamp_ms, stored.expire_timestamp_ms) == (served.here.clock.now_ms(), -1)


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_member_commits(version: int) -> None:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a")))
    start(served.coordinator.sync("g", sync_request("a-1", 1)))
    for member_id, generation_id, error in (
        ("a-1", 1, ErrorCode.NONE),
        ("a-1", 9, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        sent = request(("t", 0, 5), member_id=member_id, generation_id_or_member_epoch=generation_id)
        assert codes((await served.ask(offset_commit, sent, version)).topics) == {("t", 0): error}


async def test_null_metadata_is_none() -> None:
    served = await Served.up()
    await served.ask(offset_commit, request(("t", 0, 5), metadata=None), 9)
    stored = served.coordinator.offsets.of("g").get(("t", 0))
    assert stored is not None
    assert stored.metadata == ""


async def test_version_1_has_timestamps() -> None:
    served = await Served.up()
    sent = request(("t", 0, 5), ("t", 1, 6))
    sent.topics[0].partitions[0].commit_timestamp = 1234
    await served.ask(offset_commit, sent, 1)
    offsets = served.coordinator.offsets.of("g").committed
    assert offsets["t", 0].value.commit_timestamp_ms == 1234
    assert offsets["t", 1].value.commit_timestamp_ms == served.here.clock.now_ms()


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_versions_2_to_4_have_a_time_to_live(version: int) -> None:
    served = await Served.up()
    await served.ask(offset_commit, request(("t", 0, 5), retention_time_ms=1000), version)
    stored = served.coordinator.offsets.of("g").get(("t", 0))
    assert stored is not None
    assert stored.expire_timestamp_ms == served.here.clock.now_ms() + 1000
    await served.ask(offset_commit, request(("t", 0, 5), retention_time_ms=2**63 - 1), version)
    stored = served.coordinator.offsets.of("g").get(("t", 0))
    assert stored is not None
    assert stored.expire_timestamp_ms == 2**63 - 1


async def test_long_metadata_is_refused_beside_the_unknown() -> None:
    served = await Served.up()
    sent = request(("t", 0, 5), ("t", 1, 6), ("nosuch", 0, 1))
    sent.topics[0].partitions[0].committed_metadata = "x" * 5000
    assert codes((await served.ask(offset_commit, sent, 9)).topics) == {
        ("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ("t", 1): ErrorCode.NONE,
        ("nosuch", 0): UNKNOWN_TOPIC,
    }


async def test_a_commit_of_unknown_partitions_alone_makes_no_group() -> None:
    served = await Served.up()
    assert codes((await served.ask(offset_commit, request(("nosuch", 0, 1)), 9)).topics) == {
        ("nosuch", 0): UNKNOWN_TOPIC
    }
    assert (await served.ask(offset_commit, request(), 9)).topics == []
    assert served.coordinator.inspection.group("g") is None


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_commit_waits_for_the_log(version: int) -> None:
    served = await Served.up()
    served.here.log.holds = True
    waiting = served.send(offset_commit, request(("t", 0, 5), ("nosuch", 0, 1)), version)
    assert isinstance(waiting, asyncio.Future)
    served.here.log.release(error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert codes((await waiting).topics) == {
        ("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ("nosuch", 0): UNKNOWN_TOPIC,
    }


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_group_of_another_coordinator_gets_not_coordinator(version: int) -> None:
    served = await Served.up()
    served.coordinator.partitions.resign(0)
    response = await served.ask(offset_commit, request(("t", 0, 5), ("nosuch", 0, 1)), version)
    assert codes(response.topics)["t", 0] == ErrorCode.NOT_COORDINATOR


async def test_version_0_stores_where_consumers_of_0_8_look() -> None:
    served = await Served.up()
    sent = request(("t", 0, 5), ("nosuch", 0, 1))
    assert codes((await served.ask(offset_commit, sent, 0)).topics) == {
        ("t", 0): ErrorCode.NONE,
        ("nosuch", 0): UNKNOWN_TOPIC,
    }
    assert served.here.legacy.offsets == {("g", "t", 0): 5}
    assert served.coordinator.inspection.group("g") is None
    long = request(("t", 0, 5), metadata="x" * 5000)
    assert codes((await served.ask(offset_commit, long, 0)).topics) == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    served.here.legacy.error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert codes((await served.ask(offset_commit, request(("t", 0, 6)), 0)).topics) == {
        ("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR
    }


MANY = 2 * COMMIT_STEP_SIZE + 7


async def served_many() -> Served:
    served = await Served.up()
    served.add_topic("many", MANY)
    return served


def commit_of_many(**values: Any) -> OffsetCommitRequest:
    """Of every partition of `many`, and of some that are not there; the metadata of one is too long."""
    sent = request(*(("many", index, 7 * index) for index in range(MANY + 3)), **values)
    sent.topics[5].partitions[0].committed_metadata = "m" * 5000
    return sent


async def test_a_commit_of_thousands_is_one_batch_and_lets_others_have_their_turn() -> None:
    served = await served_many()
    before = served.here.log.end_offset(0)
    turns = 0
    waiting = served.send(offset_commit, commit_of_many(), 8)
    while not waiting.done():
        turns += 1
        assert served.here.log.end_offset(0) in (before, before + MANY - 1), "all of it or nothing"
        await asyncio.sleep(0)
    assert turns >= 2 * 2
    found = codes((await waiting).topics)
    assert {partition: code for partition, code in found.items() if code} == {
        ("many", 5): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        **{("many", index): UNKNOWN_TOPIC for index in range(MANY, MANY + 3)},
    }
    offsets = served.coordinator.offsets.of("g")
    assert {partition: value.value.offset for partition, value in offsets.committed.items()} == {
        ("many", index): 7 * index for index in range(MANY) if index != 5
    }
    served.coordinator.partitions.resign(0)
    await served.here.lead()  # read back from the log
    assert len(served.coordinator.offsets.of("g").committed) == MANY - 1


async def test_large_commit_is_checked_when_it_is_appended() -> None:
    served = await served_many()
    waiting = served.send(offset_commit, commit_of_many(), 8)
    await asyncio.sleep(0)
    start(served.coordinator.join("g", join_request("a")))  # now the group has members, and the sender is none
    assert set(codes((await waiting).topics).values()) == {ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC}
    assert served.coordinator.offsets.of("g").is_empty
    refused = await served.ask(offset_commit, commit_of_many(generation_id_or_member_epoch=3, group_id="h"), 8)
    assert set(codes(refused.topics).values()) == {ErrorCode.ILLEGAL_GENERATION, UNKNOWN_TOPIC}


async def test_large_commit_fails_when_the_coordinator_moves() -> None:
    served = await served_many()
    waiting = served.send(offset_commit, commit_of_many(), 8)
    await asyncio.sleep(0)
    served.coordinator.partitions.resign(0)
    assert set(codes((await waiting).topics).values()) == {ErrorCode.NOT_COORDINATOR}


async def test_a_client_that_hangs_up_in_between_has_committed_nothing() -> None:
    served = await served_many()
    waiting = served.send(offset_commit, commit_of_many(), 8)
    await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(2 * MANY // COMMIT_STEP_SIZE + 10):  # more turns than the whole commit would take
        await asyncio.sleep(0)
    assert waiting.cancelled()
    assert served.coordinator.offsets.of("g").is_empty


@pytest.mark.parametrize("count", [1, COMMIT_STEP_SIZE, COMMIT_STEP_SIZE + 1])
@pytest.mark.parametrize("producer", [None, CommittingProducer(5, 3)])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_batch_that_is_built_in_slices_is_the_same(
    count: int, producer: CommittingProducer | None, compression: Compression
) -> None:
    offsets = {
        ("t", index): OffsetAndMetadata(offset=index, leader_epoch=-1, metadata="m", commit_timestamp_ms=5)
        for index in range(count)
    }
    turns, batch = whole(
        steps_of(commit_batch_in_slices("g", offsets, producer, 1_700_000_000_000, StoredForm(compression), pause))
    )
    assert batch == commit_batch("g", offsets, producer, 1_700_000_000_000, StoredForm(compression))
    assert turns == (count - 1) // COMMIT_STEP_SIZE


def whole(building: Steps[bytes]) -> tuple[int, bytes]:
    turns = 0
    while True:
        try:
            next(building)
        except StopIteration as finished:
            return turns, finished.value
        turns += 1
