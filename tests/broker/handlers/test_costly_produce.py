"""Batches that must be opened: beside the event loop, in order, and with the same outcome as on it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.loop.slices import SLICE_MS
from broker.replica.appends import QUICK_SIZE_MAX
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import Record, batches, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.legacy import build_message_set
from storage.batches.validation import COSTLY_SIZE
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path) as running:
        yield running


def batch_of(count: int, *, key: bytes | None = b"k") -> bytes:
    """Records of 1 KB each that do not compress to nothing."""
    return build_batch([RecordData(1_700_000_000_000 + n, key, struct.pack(">I", n * n) * 256) for n in range(count)])


def produce(*records: bytes, acks: int = 1) -> ProduceRequest:
    """One batch for each partition."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(records)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


async def stored(broker: InProcessBroker, index: int = 0) -> bytes:
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    response = await broker.ask(request, 11)
    return bytes(response.responses[0].partitions[0].records)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_large_batch_is_compressed_without_stopping_the_loop(broker: InProcessBroker, compression: str) -> None:
    await broker.create_topic("t", compression_type=compression)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    produced = (await broker.ask(produce(batch_of(900)))).responses[0].partition_responses[0]
    counting.cancel()
    assert (produced.error_code, produced.base_offset) == (ErrorCode.NONE, 0)
    assert turns > 1, "others continued"
    records = await stored(broker)
    ((_, header),) = batches(records)
    assert header.compression is Compression[compression.upper()]
    assert header.records_count == 900


async def test_costly_batches_of_many_connections_get_one_offset_each(broker: InProcessBroker) -> None:
    await broker.create_topic("t", compression_type="lz4")
    small, large = batch_of(1), batch_of(2 * COSTLY_SIZE // 1024)
    count = 2 * COSTLY_SIZE // 1024
    responses = await asyncio.gather(*(broker.ask(produce(large if n % 2 else small)) for n in range(20)))
    offsets = sorted(response.responses[0].partition_responses[0].base_offset for response in responses)
    extents = [(header.base_offset, header.records_count) for _, header in batches(await stored(broker))]
    assert offsets == [base for base, _ in extents]
    assert sum(size for _, size in extents) == 10 * (1 + count)
    position = 0
    for base, size in extents:
        assert base == position
        position += size


async def test_a_bad_batch_is_refused_for_itself(broker: InProcessBroker) -> None:
    await broker.create_topic("t", partitions=3, cleanup_policy="compact")
    without_key, damaged = batch_of(100, key=None), bytearray(batch_of(100))
    damaged[-1] ^= 1
    response = await broker.ask(produce(without_key, batch_of(100), bytes(damaged)))
    responses = response.responses[0].partition_responses
    assert [each.error_code for each in responses] == [
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
    ]
    assert len(responses[0].record_errors) == 100


async def test_acks_0_with_a_costly_batch_gets_no_response(broker: InProcessBroker) -> None:
    await broker.create_topic("t", compression_type="zstd")
    assert await broker.ask(produce(batch_of(100), acks=0)) is None
    assert len(list(batches(await stored(broker)))) == 1


@pytest.mark.parametrize("other", ["compressed", "plain"])
async def test_the_receive_buffer_may_be_reused_while_a_costly_batch_is_prepared(
    broker: InProcessBroker, other: str
) -> None:
    """Of the batch that is prepared in a thread, and of the other one, which was prepared before it."""
    await broker.create_topic("t", partitions=2, compression_type="gzip")
    record = RecordData(1_700_000_000_000, b"k", b"hello")
    first = build_batch([record], compression=Compression.GZIP if other == "compressed" else Compression.NONE)
    request = produce(first, batch_of(900))
    frame = bytearray(request_header(0, 9, 0, "client") + b"".join(encode(request, 9)))
    response = broker.dispatcher.dispatch(memoryview(frame), broker.channel)
    assert isinstance(response, Awaitable)
    frame[:] = bytes(len(frame))
    await response
    assert [each.value for each in records(await stored(broker), size_max=1 << 20)] == [b"hello"]
    assert sum(header.records_count for _, header in batches(await stored(broker, 1))) == 900


def bomb(compression: Compression) -> bytes:
    """Much less than what is costly by its size, which opens to 2 MB."""
    return build_batch([RecordData(1_700_000_000_000, b"k", bytes(2_000_000))], compression=compression)


class ClockOfSlowWork(ManualClock):
    """Moves on by `step_ms` whenever its monotonic time is read."""

    def __init__(self, step_ms: int) -> None:
        super().__init__()
        self._step_ms = step_ms

    def monotonic_ms(self) -> int:
        self.advance(self._step_ms)
        return super().monotonic_ms()


@pytest.fixture
def prepared_beside(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was prepared in a thread."""
    calls: list[object] = []
    cpu_pool = broker.services.cpu_pool
    run = cpu_pool.run

    async def counted(work: Callable[[], object]) -> object:
        calls.append(work)
        return await run(work)

    monkeypatch.setattr(type(cpu_pool), "run", lambda _, work: counted(work))
    monkeypatch.setattr(broker.services.appends, "_clock", ManualClock())  # no slice ends on a slow machine
    return calls


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
async def test_few_bytes_that_open_to_many_are_opened_in_a_thread(
    broker: InProcessBroker, prepared_beside: list[object], compression: Compression
) -> None:
    await broker.create_topic("t", partitions=3)
    usual = build_batch([RecordData(1_700_000_000_000, b"k", bytes(1000))] * 10, compression=compression)
    damaged = usual[:-1] + bytes([usual[-1] ^ 1])
    large = bomb(compression)
    assert len(large) < COSTLY_SIZE
    for number in range(3):
        response = await broker.ask(produce(usual))
        assert response.responses[0].partition_responses[0].base_offset == number * 11
        assert len(prepared_beside) == number
        response = await broker.ask(produce(large))
        assert response.responses[0].partition_responses[0].base_offset == number * 11 + 10
        assert len(prepared_beside) == number + 1
    responses = (await broker.ask(produce(usual, large, damaged))).responses[0].partition_responses
    assert [(each.error_code, each.base_offset) for each in responses] == [
        (ErrorCode.NONE, 33),
        (ErrorCode.NONE, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
    ]
    assert len(prepared_beside) == 4
    assert [header.records_count for _, header in batches(await stored(broker))] == [10, 1] * 3 + [10]


async def test_rows_after_the_slice_of_a_request_are_prepared_in_a_thread(
    broker: InProcessBroker, prepared_beside: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the clock is a fifth of a slice later. Rows before its end are decided in one step."""
    await broker.create_topic("t", partitions=16)
    batch = build_batch([RecordData(1_700_000_000_000, b"k", bytes(1000))] * 10, compression=Compression.GZIP)
    monkeypatch.setattr(broker.services.appends, "_clock", ClockOfSlowWork(SLICE_MS // 5))
    responses = (await broker.ask(produce(*[batch] * 16))).responses[0].partition_responses
    assert [(each.error_code, each.base_offset) for each in responses] == [(ErrorCode.NONE, 0)] * 16
    assert len(prepared_beside) == 12
    for index in range(16):
        assert [header.records_count for _, header in batches(await stored(broker, index))] == [10]
    await broker.ask(produce(batch))
    assert len(prepared_beside) == 12, "a row that is alone has a slice for itself"


async def test_small_rows_of_an_old_format_are_prepared_in_a_thread_after_the_slice(
    broker: InProcessBroker, prepared_beside: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the old formats, few bytes may open to many messages, and byte 22 is no attribute."""
    await broker.create_topic("t", partitions=16)
    messages = [Record(n, 1_700_000_000_000, b"k", bytes(100), []) for n in range(100)]
    small = build_message_set(messages, magic=0, compression=Compression.GZIP)
    assert len(small) < QUICK_SIZE_MAX
    monkeypatch.setattr(broker.services.appends, "_clock", ClockOfSlowWork(SLICE_MS // 5))
    responses = (await broker.ask(produce(*[small] * 16), 2)).responses[0].partition_responses
    assert [(each.error_code, each.base_offset) for each in responses] == [(ErrorCode.NONE, 0)] * 16
    assert len(prepared_beside) == 12


async def test_a_batch_that_is_too_large_is_rejected_without_a_copy(
    broker: InProcessBroker, prepared_beside: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the slice of its request is over."""
    await broker.create_topic("t", partitions=3, compression_type="gzip", max_message_bytes="2000")
    monkeypatch.setattr(broker.services.appends, "_clock", ClockOfSlowWork(SLICE_MS))
    responses = (await broker.ask(produce(*[batch_of(100)] * 3))).responses[0].partition_responses
    assert [each.error_code for each in responses] == [ErrorCode.MESSAGE_TOO_LARGE] * 3
    assert not prepared_beside


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
async def test_batch_that_opens_further_than_shared_threads_may_is_opened_in_its_own(
    broker: InProcessBroker,
    prepared_beside: list[object],
    monkeypatch: pytest.MonkeyPatch,
    compression: Compression,
) -> None:
    await broker.create_topic("t")
    run_alone = broker.services.cpu_pool.run_alone
    alone: list[object] = []

    async def noted(work: Callable[[], object]) -> object:
        alone.append(work)
        return await run_alone(work)

    monkeypatch.setattr(type(broker.services.cpu_pool), "run_alone", lambda _, work: noted(work))
    monkeypatch.setattr("storage.batches.validation.SHARED_PLAIN_SIZE_MAX", 1_900_000)
    monkeypatch.setattr("storage.batches.validation.PLAIN_RATIO_MAX", 1 << 20)
    responses = await asyncio.gather(*(broker.ask(produce(bomb(compression))) for _ in range(2)))
    offsets = {response.responses[0].partition_responses[0].base_offset for response in responses}
    assert offsets == {0, 1}
    assert len(alone) == 2
    assert len(prepared_beside) == 2
    monkeypatch.setattr("storage.batches.validation.PLAIN_RATIO_MAX", 1)
    response = (await broker.ask(produce(bomb(compression)))).responses[0].partition_responses[0]
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert response.error_message == "Record batch is refused: compressed data opens to more than 1900000 bytes"
