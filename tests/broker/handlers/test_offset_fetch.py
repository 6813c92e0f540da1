"""OffsetFetch: where errors stand in each version, and that no offset is no error."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.groups.batches import CommittingProducer
from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.offset_commits import Committer
from broker.handlers import offset_fetch
from broker.loop.driver import start
from broker.network.connection import Buffers
from broker.requests import dispatch
from broker.requests.dispatch import RequestDispatcher
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.groups.served import Served, versions_of
from tests.support.in_process import running_broker

VERSIONS = versions_of(OffsetFetchRequest)
ASKED = {"t": [0, 1], "nosuch": [0]}


def request(version: int, topics: dict[str, list[int]] | None, **values: Any) -> OffsetFetchRequest:
    if version < 8:
        wanted = None if topics is None else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ]  # fmt: skip
        return OffsetFetchRequest(group_id="g", topics=wanted, **values)
    return OffsetFetchRequest(groups=[group("g", topics)], **values)


def group(group_id: str, topics: dict[str, list[int]] | None) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None if topics is None else [
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ],
    )  # fmt: skip


Shown = dict[tuple[str, int], tuple[int, int, str | None, int]]


def shown(response: Any, version: int) -> tuple[int, Shown]:
    """(error of the group, (offset, epoch, metadata, error) by partition)."""
    group = response.groups[0] if version >= 8 else response
    return group.error_code, {
        (topic.name, each.partition_index): (
            each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code,
        )
        for topic in group.topics
        for each in topic.partitions
    }  # fmt: skip


def commit(served: Served, topic: str, partition: int, offset: int, producer: CommittingProducer | None = None) -> None:
    value = OffsetAndMetadata(offset=offset, leader_epoch=3, metadata="m", commit_timestamp_ms=0)
    start(served.coordinator.offsets.commit("g", Committer(), {(topic, partition): value}, producer))


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_partition_without_a_commit_has_offset_minus_one(version: int) -> None:
    served = await Served.up()
    commit(served, "t", 0, 5)
    response = await served.ask(offset_fetch, request(version, ASKED), version)
    nothing = (-1, -1, "", ErrorCode.NONE)
    epoch = 3 if version >= 5 else -1
    assert shown(response, version) == (
        ErrorCode.NONE,
        {("t", 0): (5, epoch, "m", ErrorCode.NONE), ("t", 1): nothing, ("nosuch", 0): nothing},
    )


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_missing_group_has_no_offsets(version: int) -> None:
    served = await Served.up()
    response = await served.ask(offset_fetch, request(version, {"t": [0]}), version)
    assert shown(response, version) == (ErrorCode.NONE, {("t", 0): (-1, -1, "", ErrorCode.NONE)})


@pytest.mark.parametrize("version", VERSIONS[2:])
async def test_all_offsets_of_a_group_are_returned_without_topics(version: int) -> None:
    served = await Served.up()
    for topic, partition in (("t", 0), ("u", 0), ("t", 1)):
        commit(served, topic, partition, partition + 5)
    error, found = shown(await served.ask(offset_fetch, request(version, None), version), version)
    assert not error
    assert {partition: offset for partition, (offset, *_) in found.items()} == {
        ("t", 0): 5, ("t", 1): 6, ("u", 0): 5,
    }  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_error_of_a_group_is_in_the_field_of_the_version(version: int) -> None:
    served = await Served.up()
    served.coordinator.partitions.resign(0)
    response = await served.ask(offset_fetch, request(version, {"t": [0]}), version)
    at_partition = {("t", 0): (-1, -1, "", ErrorCode.NOT_COORDINATOR)}
    assert shown(response, version) == ((0, at_partition) if version < 2 else (ErrorCode.NOT_COORDINATOR, {}))


@pytest.mark.parametrize("version", VERSIONS[7:])
async def test_offset_in_an_open_transaction_is_unstable(version: int) -> None:
    served = await Served.up()
    commit(served, "t", 0, 5)
    commit(served, "t", 1, 6)
    commit(served, "t", 0, 9, CommittingProducer(7, 0))
    sent = request(version, {"t": [0, 1]}, require_stable=True)
    assert shown(await served.ask(offset_fetch, sent, version), version)[1] == {
        ("t", 0): (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
        ("t", 1): (6, 3, "m", ErrorCode.NONE),
    }
    sent = request(version, {"t": [0]})
    assert shown(await served.ask(offset_fetch, sent, version), version)[1]["t", 0][0] == 5


@pytest.mark.parametrize("version", VERSIONS[8:])
async def test_each_requested_group_has_its_own_result(version: int) -> None:
    served = await Served.up()
    commit(served, "t", 0, 5)
    sent = OffsetFetchRequest(groups=[group("g", None), group("other", {"t": [0]}), group("third", None)])
    response = await served.ask(offset_fetch, sent, version)
    assert [(each.group_id, each.error_code, len(each.topics)) for each in response.groups] == [
        ("g", 0, 1), ("other", 0, 1), ("third", 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [7, 9])
async def test_large_response_is_built_in_slices(version: int) -> None:
    served = await Served.up()
    value = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)
    partitions = [(topic, index) for topic in ("t", "u") for index in range(2 * offset_fetch.STEP_SIZE)]
    start(served.coordinator.offsets.commit("g", Committer(), dict.fromkeys(partitions, value)))
    response = served.send(offset_fetch, request(version, None), version)
    assert isinstance(response, asyncio.Future)
    assert list(shown(await response, version)[1]) == partitions


@pytest.mark.parametrize("version", [7, 9])
async def test_offsets_of_many_topics_are_those_of_one_moment(version: int) -> None:
    """Between two moments a transaction may commit offsets, of which half would be seen."""
    served = await Served.up()
    value = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)
    partitions = [(f"t{number}", 0) for number in range(offset_fetch.STEP_SIZE)]
    start(served.coordinator.offsets.commit("g", Committer(), dict.fromkeys(partitions, value)))
    response = served.send(offset_fetch, request(version, None), version)
    assert list(shown(response, version)[1]) == partitions


async def test_version_0_reads_where_consumers_of_0_8_store() -> None:
    served = await Served.up()
    served.here.legacy.offsets["g", "t", 0] = 5
    nothing = (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert shown(await served.ask(offset_fetch, request(0, ASKED), 0), 0)[1] == {
        ("t", 0): (5, -1, "", ErrorCode.NONE),
        ("t", 1): nothing,
        ("nosuch", 0): nothing,
    }
    served.here.legacy.error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert shown(await served.ask(offset_fetch, request(0, {"t": [0]}), 0), 0)[1] == {
        ("t", 0): (-1, -1, "", ErrorCode.UNKNOWN_SERVER_ERROR)
    }


async def test_large_response_is_encoded_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding: set[threading.Thread] = set()

    def framed(self: RequestDispatcher, *arguments: Any) -> Buffers:
        buffers = encode_in_dispatcher(self, *arguments)
        encoding.add(threading.current_thread())
        return buffers

    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", 2)
        await broker.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
        wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        question = OffsetFetchRequest(group_id="g", topics=wanted)
        async with asyncio.timeout(10):
            while (  # noqa: ASYNC110 - no event says when the partition is loaded
                expected := await broker.ask(question, 7)
            ).error_code:
                await asyncio.sleep(0.01)
        encode_in_dispatcher = RequestDispatcher._framed
        monkeypatch.setattr(RequestDispatcher, "_framed", framed)
        monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 4)
        assert await broker.ask(question, 7) == expected
    assert len(encoding) == 1
    assert threading.main_thread() not in encoding


@pytest.mark.parametrize("topics", [None, {"t": list(range(offset_fetch.STEP_SIZE + 10))}], ids=["all", "named"])
@pytest.mark.parametrize("version", [7, 9])
async def test_commit_between_the_steps_of_a_response_does_not_change_it(
    version: int, topics: dict[str, list[int]] | None
) -> None:
    served = await Served.up()
    partitions = range(offset_fetch.STEP_SIZE + 10)

    def commit_all(offset: int) -> None:
        value = OffsetAndMetadata(offset=offset, leader_epoch=3, metadata="m", commit_timestamp_ms=0)
        start(served.coordinator.offsets.commit("g", Committer(), {("t", each): value for each in partitions}, None))

    commit_all(5)
    response = served.send(offset_fetch, request(version, topics), version)
    assert isinstance(response, asyncio.Future), "it takes several steps"
    commit_all(6)
    _, found = shown(await response, version)
    assert {offset for offset, *_ in found.values()} == {5}
