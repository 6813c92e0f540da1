"""The benchmark's frames are valid, and their positions of values are those of the codec."""

import struct

import pytest

from bench.frames import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    SIZE_FIELD,
    Batch,
    FetchFrame,
    FetchResponseLayout,
    batch_of_one,
    batch_of_size,
    produce_frame,
    produce_response_layout,
)
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import read_request_header, response_header
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch import batches, crc_is_valid, records

NOW_MS = 1_700_000_000_000
TOPICS = ("t", "bench-0", "a-name-of-" + "x" * 80)


def response_frame(api_key: int, version: int, correlation_id: int, message: object) -> bytearray:
    body = b"".join([response_header(api_key, version, correlation_id), *encode(message, version)])
    return bytearray(struct.pack(">i", len(body)) + body)


def request_in(frame: bytearray, kind: type, version: int) -> object:
    body = memoryview(frame)[SIZE_FIELD:]
    header, position = read_request_header(body)
    assert header.api_version == version
    assert struct.unpack_from(">i", frame) == (len(body),)
    return decode(kind, version, body, position)


@pytest.mark.parametrize("size", [16 * 1024, 1024 * 1024, 4096])
@pytest.mark.parametrize("record_size", [100, 1000])
def test_a_batch_has_the_requested_size_and_is_valid(size: int, record_size: int) -> None:
    batch = batch_of_size(size, record_size, NOW_MS)
    [(position, header)] = list(batches(batch.data))
    assert (position, header.size, header.records_count) == (0, size, batch.record_count)
    assert crc_is_valid(batch.data, 0, header)
    assert len(list(records(batch.data, size_max=size))) == batch.record_count == size // record_size


def test_produce_frame_is_decoded_by_the_codec() -> None:
    batch = batch_of_one(100, NOW_MS)
    request = request_in(produce_frame("topic", 3, batch, 7), ProduceRequest, PRODUCE_VERSION)
    assert isinstance(request, ProduceRequest)
    [topic] = request.topic_data
    [data] = topic.partition_data
    assert (request.acks, topic.name, data.index, bytes(data.records or b"")) == (1, "topic", 3, batch.data)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_produce_response_layout_matches_the_codec(topic: str, error: ErrorCode) -> None:
    partition = PartitionProduceResponse(index=5, error_code=error, base_offset=77)
    message = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[partition])])
    frame = response_frame(0, PRODUCE_VERSION, 4711, message)
    assert produce_response_layout(topic).unpack_from(frame) == (len(frame) - SIZE_FIELD, 4711, error)


def test_offset_of_a_fetch_frame_changes() -> None:
    frame = FetchFrame("topic", 2, 16384)
    frame.move_to(123456789)
    request = request_in(frame.data, FetchRequest, FETCH_VERSION)
    assert isinstance(request, FetchRequest)
    [partition] = request.topics[0].partitions
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, 123456789, 16384)


def fetch_response(topic: str, size: int | None, error: int = 0, partition_error: int = 0) -> bytearray:
    data = PartitionData(
        partition_index=0,
        error_code=partition_error,
        high_watermark=9,
        records=None if size is None else bytes(size),
    )
    message = FetchResponse(error_code=error, responses=[FetchableTopicResponse(topic=topic, partitions=[data])])
    return response_frame(1, FETCH_VERSION, 1, message)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("size", [None, 0, 1, 126, 127, 128, 16384, 1 << 20])
def test_size_of_records_is_read_from_a_fetch_response(topic: str, size: int | None) -> None:
    assert FetchResponseLayout(topic).record_bytes(fetch_response(topic, size)) == (size or 0)


@pytest.mark.parametrize("errors", [(1, 0), (0, 3)])
def test_errors_of_a_fetch_response_are_raised(errors: tuple[int, int]) -> None:
    with pytest.raises(RuntimeError, match="errors"):
        FetchResponseLayout("topic").record_bytes(fetch_response("topic", 10, *errors))


def test_batch_of_one_has_one_record() -> None:
    batch = batch_of_one(100, NOW_MS)
    assert isinstance(batch, Batch)
    [record] = records(batch.data, size_max=1000)
    assert record.value is not None
    assert (len(record.value), batch.record_count) == (100, 1)
