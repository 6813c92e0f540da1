"""Fetches without a session that wait: what ends the wait, and with which response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from base.file_slice import FileSlice
from broker.loop.promise import Promise
from broker.network.connection import Buffers
from broker.network.unsent_responses import ALLOWANCE_MIN
from broker.replica.partition import Partition
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import read_response_header, request_header
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID
from tests.support.in_process import InProcessBroker, reserved, running_broker
from tests.support.manual_clock import ManualClock

TOPIC = "t"
FOREVER_MS = 600_000


class Reader:
    """Appends to t-0 and reads it, one frame at a time."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.unsent = broker.services.unsent_responses
        self.purgatory = broker.services.replica_manager.fetch_purgatory

    @property
    def partition(self) -> Partition:
        found = self.broker.services.replica_manager.find(TOPIC, 0)
        assert found is not None
        return found

    def append(self, count: int, size: int = 10) -> None:
        """Within one call of the dispatcher, without the event loop."""
        records = build_batch([RecordData(timestamp=1, key=b"k", value=bytes(size)) for _ in range(count)])
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
        frame = request_header(0, 9, 0, "client") + b"".join(encode(request, 9))
        response = self.broker.dispatcher.dispatch(memoryview(bytearray(frame)), self.broker.channel)
        assert isinstance(response, list)

    def fetch(
        self,
        offset: int,
        *,
        version: int = 12,
        wait_ms: int = FOREVER_MS,
        bytes_min: int = 1,
        bytes_max: int = 1 << 20,
        leader_epoch: int = -1,
    ) -> Any:
        """Return what the dispatcher returns."""
        wanted = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=bytes_max, current_leader_epoch=leader_epoch
        )
        topic_id = self.partition.topic_id
        assert topic_id is not None
        by_id = version >= 13
        named = FetchTopic(topic="" if by_id else TOPIC, topic_id=topic_id if by_id else ZERO_UUID, partitions=[wanted])
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, topics=[named])
        frame = request_header(1, version, 7, "client") + b"".join(encode(request, version))
        return self.broker.dispatcher.dispatch(memoryview(bytearray(frame)), self.broker.channel)

    def parked(self, offset: int, **more: int) -> Promise[Buffers | None]:
        response = self.fetch(offset, **more)
        assert isinstance(response, Promise)
        assert not response.done()
        return response


def _bytes_of(piece: Any) -> bytes:
    return piece.read() if isinstance(piece, FileSlice) else bytes(piece)


def data_in(buffers: Buffers | None, version: int = 12) -> PartitionData:
    assert buffers is not None
    payload = b"".join(_bytes_of(piece) for piece in buffers)[4:]
    _, position = read_response_header(1, version, payload)
    response = decode(FetchResponse, version, payload, position)
    return response.responses[0].partitions[0]


@pytest.fixture
async def reader(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reader]:
    """Of a partition of twenty records. No slice of work is ever over, however busy the machine is."""
    async with running_broker(tmp_path / "data") as broker:
        monkeypatch.setattr(broker.services.sliced_work, "_monotonic_ms", ManualClock().monotonic_ms)
        await broker.create_topic(TOPIC)
        reading = Reader(broker)
        reading.append(20, 100)
        yield reading


@pytest.mark.parametrize("version", [10, 11, 12, 16])
@pytest.mark.parametrize(("count", "size"), [(1, 10), (3, 3000), (2, 70_000)])
async def test_parked_fetch_completes_within_the_append(reader: Reader, version: int, count: int, size: int) -> None:
    fetching = [reader.parked(20, version=version) for _ in range(2)]
    reader.append(count, size)
    assert all(one.done() for one in fetching), "within the call that appends"
    first, second = [data_in(one.result(), version) for one in fetching]
    assert first == second
    assert len(first.records or b"") > count * size
    assert not reader.purgatory.delayed_count


async def test_a_parked_fetch_waits_for_all_the_bytes_it_wants(reader: Reader) -> None:
    fetching = reader.parked(20, bytes_min=5000)
    for _ in range(4):
        reader.append(1, 1000)
        assert not fetching.done()
    reader.append(1, 1000)
    assert len(data_in(fetching.result()).records or b"") > 5000


async def test_a_fetch_that_wants_no_bytes_never_waits(reader: Reader) -> None:
    for _ in range(2):
        assert data_in(reader.fetch(20, bytes_min=0)).records == b""


async def test_a_fetch_with_nothing_to_read_waits_for_its_time(reader: Reader) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    empty = data_in(await reader.fetch(20, wait_ms=30))
    assert loop.time() - started >= 0.025, "what is left of 30 ms by clocks that count whole ones"
    assert (empty.error_code, empty.records) == (ErrorCode.NONE, b"")


async def test_a_fetch_with_an_old_leader_epoch_is_refused_at_the_end_of_the_log(reader: Reader) -> None:
    waiting = reader.parked(20, leader_epoch=0)
    waiting.cancel()
    partition = reader.partition
    partition.lead(replace(partition.leadership, leader_epoch=partition.leadership.leader_epoch + 1), 0)
    assert data_in(reader.fetch(20, leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_parked_fetch_of_a_topic_that_is_deleted_ends_with_an_error(reader: Reader) -> None:
    fetching = reader.parked(20)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)], timeout_ms=10_000)
    assert not (await reader.broker.ask(request)).responses[0].error_code
    async with asyncio.timeout(10):
        code = data_in(await fetching).error_code
    assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_parked_fetch_of_a_log_that_is_truncated_ends_with_an_error(reader: Reader) -> None:
    reader.append(5)
    fetching = reader.parked(25)
    reader.partition.log.truncation.truncate_fully_and_start_at(100, now_ms=1)
    reader.purgatory.check_and_complete((TOPIC, 0))
    async with asyncio.timeout(10):
        assert data_in(await fetching).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_parked_fetch_waits_for_memory_once_it_has_its_bytes(reader: Reader) -> None:
    fetching = reader.parked(20)
    with reserved(reader.unsent, reader.unsent.allowance):
        reader.append(1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not fetching.done()
    async with asyncio.timeout(10):
        assert data_in(await fetching).records


async def test_parked_fetch_past_its_deadline_completes_when_memory_is_scarce(reader: Reader) -> None:
    fetching = reader.parked(20)
    with reserved(reader.unsent, reader.unsent.allowance - 1):
        assert reader.unsent.allowance == ALLOWANCE_MIN
        (operation,) = reader.purgatory.watched[TOPIC, 0]
        assert reader.purgatory.force_one(operation)
        assert fetching.done()


async def test_a_parked_fetch_whose_client_left_is_forgotten(reader: Reader) -> None:
    for offset in (20, 21):
        fetching = reader.parked(offset)
        assert reader.purgatory.delayed_count == 1
        fetching.cancel()
        assert reader.purgatory.delayed_count == 0
        reader.append(1)


async def test_request_with_several_partitions_wakes_a_fetch_after_the_last_one(tmp_path: Any) -> None:
    """A fetch that woke after the first partition would return without the others."""
    indexes = range(3)
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic(TOPIC, len(indexes))
        wanted = [FetchPartition(partition=it, fetch_offset=0, partition_max_bytes=1 << 20) for it in indexes]
        request = FetchRequest(max_wait_ms=FOREVER_MS, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=wanted)])
        fetching = asyncio.ensure_future(broker.ask(request, 12))
        purgatory = broker.services.replica_manager.fetch_purgatory
        while not purgatory.delayed_count:  # noqa: ASYNC110 - no event says when it is parked
            await asyncio.sleep(0)
        records = build_batch([RecordData(timestamp=1, key=b"k", value=b"v")])
        data = [PartitionProduceData(index=it, records=records) for it in indexes]
        produced = await broker.ask(
            ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
        )
        assert not any(one.error_code for one in produced.responses[0].partition_responses)
        response = await fetching
    assert [len(one.records) for one in response.responses[0].partitions] == [len(records)] * len(indexes)
