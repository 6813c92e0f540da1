"""Refused records leave nothing behind: whatever was opened of them is freed with the response, by reference counts."""

from __future__ import annotations

import itertools
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import protocol.records.batch
import protocol.records.legacy
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import read_response_header, request_header
from protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from protocol.records.batch import HEADER_SIZE, Record, read_header
from protocol.records.builder import RecordData, assemble, build_batch
from protocol.records.compression import Compression, open_pieces
from protocol.records.legacy import build_message_set
from tests.support.in_process import InProcessBroker, running_broker

PRODUCE = APIS[0]
TIME = 1_700_000_000_000
MAX_MESSAGE_BYTES = 100_000
OPENED_SIZE = 4 << 20


pytestmark = pytest.mark.asyncio(loop_scope="module")
PRODUCER_IDS = itertools.count(7)
"""Of producers that no test before has used: all tests share a broker."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path_factory.mktemp("refusing")) as running:
        await running.create_topic("plain", max_message_bytes=str(MAX_MESSAGE_BYTES))
        await running.create_topic("compacted", cleanup_policy="compact")
        await running.create_topic("uncompressed", compression_type="uncompressed")
        yield running


def batch(compression: Compression = Compression.NONE, *, key: bytes | None = b"k", size: int = 100) -> bytes:
    return build_batch([RecordData(TIME, key, bytes(size))], compression=compression)


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def cut_off(records: bytes) -> bytes:
    """A batch with a right CRC whose compressed data is not all there."""
    return assemble(read_header(records), records[HEADER_SIZE:-10])


def old(compression: Compression, size: int) -> bytes:
    return build_message_set([Record(0, TIME, None, bytes(size), [])], magic=1, compression=compression)


REFUSED = {
    "zstd with an old version": ("plain", batch(Compression.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a wrong CRC": ("plain", damaged(batch()), 9, ErrorCode.CORRUPT_MESSAGE),
    "too large": ("plain", batch(size=MAX_MESSAGE_BYTES), 9, ErrorCode.MESSAGE_TOO_LARGE),
    "damaged data on the event loop": ("plain", cut_off(batch(Compression.GZIP)), 9, ErrorCode.CORRUPT_MESSAGE),
    "damaged data in a thread": (
        "plain",
        cut_off(batch(Compression.GZIP, size=OPENED_SIZE)),
        9,
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "no key on the event loop": ("compacted", batch(Compression.LZ4, key=None), 9, ErrorCode.INVALID_RECORD),
    "no key in a thread": (
        "compacted",
        batch(Compression.ZSTD, key=None, size=OPENED_SIZE),
        9,
        ErrorCode.INVALID_RECORD,
    ),
    "too large once converted": (
        "uncompressed",
        batch(Compression.ZSTD, size=OPENED_SIZE),
        9,
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "a message set in a thread": ("compacted", old(Compression.GZIP, OPENED_SIZE), 2, ErrorCode.INVALID_RECORD),
}


def frame_of(topic: str, records: bytes, version: int) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    return request_header(PRODUCE.key, version, 7, "test") + b"".join(encode(request, version))


async def ask(
    broker: InProcessBroker, topic: str, records: bytes, version: int
) -> tuple[PartitionProduceResponse, weakref.ref[memoryview]]:
    """The response, and what is left of the frame by which it was asked."""
    frame = memoryview(bytearray(frame_of(topic, records, version)))
    buffers = broker.dispatcher.dispatch(frame, broker.channel)
    assert buffers is not None
    left = weakref.ref(frame)
    del frame
    if not isinstance(buffers, bytes | bytearray | memoryview | list):
        buffers = await buffers
    assert buffers is not None
    payload = b"".join(bytes(piece) for piece in ([buffers] if not isinstance(buffers, list) else buffers))[4:]
    _, position = read_response_header(PRODUCE.key, version, payload)
    response = decode(PRODUCE.response, version, payload, position)
    return response.responses[0].partition_responses[0], left


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """Every stream of opened pieces; it holds the piece at hand and the compressed data."""
    streams: list[weakref.ref[object]] = []

    def noted(codec: Compression, data: memoryview, **limits: int) -> Iterator[bytes]:
        stream = open_pieces(codec, data, **limits)
        streams.append(weakref.ref(stream))
        return stream

    for module in (protocol.records.batch, protocol.records.legacy):
        monkeypatch.setattr(module, "open_pieces", noted)
    return streams


@pytest.mark.parametrize(("topic", "records", "version", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_nothing_is_left_of_refused_records(
    broker: InProcessBroker,
    collector_is_off: None,
    opened: list[weakref.ref[object]],
    topic: str,
    records: bytes,
    version: int,
    code: ErrorCode,
) -> None:
    for _ in range(2):
        refused, frame = await ask(broker, topic, records, version)
        assert refused.error_code == code
        assert frame() is None
        assert [stream for stream in opened if stream() is not None] == []


def numbered(
    producer_id: int, base_sequence: int, *, value: bytes = b"v", compression: Compression = Compression.NONE
) -> bytes:
    return build_batch(
        [RecordData(TIME, b"k", value)],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
    )


@pytest.mark.parametrize("position", [43, 50, 51, 52, 53, 56], ids=lambda position: f"byte {position}")
@pytest.mark.parametrize("stored", [0, 1])
async def test_a_batch_behind_one_with_a_damaged_header_waits_for_it(
    broker: InProcessBroker, position: int, stored: int
) -> None:
    """The damaged byte is of the producer id, the epoch or the base sequence."""

    async def produce(records: bytes) -> int:
        return (await ask(broker, "plain", records, 9))[0].error_code

    producer_id = next(PRODUCER_IDS)
    for sequence in range(stored):
        assert await produce(numbered(producer_id, sequence)) == ErrorCode.NONE
    damaged = bytearray(numbered(producer_id, stored))
    damaged[position] ^= 0x80
    assert await produce(bytes(damaged)) == ErrorCode.CORRUPT_MESSAGE
    assert await produce(numbered(producer_id, stored + 1)) == ErrorCode.CORRUPT_MESSAGE
    assert await produce(numbered(producer_id, stored)) == ErrorCode.NONE
    assert await produce(numbered(producer_id, stored + 1)) == ErrorCode.NONE


@pytest.mark.parametrize("size", [100, OPENED_SIZE], ids=["on the event loop", "in a thread"])
async def test_a_batch_behind_one_whose_data_is_damaged_waits_for_it(broker: InProcessBroker, size: int) -> None:
    async def produce(records: bytes) -> int:
        return (await ask(broker, "plain", records, 9))[0].error_code

    producer_id = next(PRODUCER_IDS)
    first = numbered(producer_id, 0, value=bytes(size), compression=Compression.GZIP)
    second = numbered(producer_id, 1)
    sent = [cut_off(first), second, first, second]
    assert [await produce(records) for records in sent] == [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize("case", ["damaged data in a thread", "no key in a thread", "too large once converted"])
async def test_memory_is_as_it_was_after_many_refusals(
    broker: InProcessBroker, collector_is_off: None, case: str
) -> None:
    topic, records, version, code = REFUSED[case]
    await ask(broker, topic, records, version)
    tracemalloc.start()
    try:
        for _ in range(5):
            refused, _ = await ask(broker, topic, records, version)
            assert refused.error_code == code
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 200_000
    assert peak < 8 << 20
