"""Requests as whole frames, encoded before a measurement.

Owns: the requests of the benchmark, and the positions in a frame at which a running client changes or checks a value.
Must not know sockets or servers: both servers get the same bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.codec import encode
from protocol.headers import request_header
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.reader import read_uvarint
from protocol.records.batch import read_header
from protocol.records.builder import RecordData, build_batch
from protocol.schema import message_info

CLIENT_ID = "bench"
SIZE_FIELD = 4
PRODUCE_VERSION = 9
FETCH_VERSION = 12
OFFSET_COMMIT_VERSION = 8
REQUEST_TIMEOUT_MS = 30_000
FETCH_MAX_WAIT_MS = 500


class Batch(NamedTuple):
    """An encoded record batch with a valid CRC, and the number of its records."""

    data: bytes
    record_count: int


def batch_of_one(value_size: int, now_ms: int) -> Batch:
    return Batch(build_batch([RecordData(now_ms, None, bytes(value_size))]), 1)


def batch_of_size(size: int, record_size: int, now_ms: int) -> Batch:
    """Return a batch of exactly `size` bytes, with records of about `record_size`."""
    count = max(1, size // record_size)
    spread = size // count - 32
    values = [bytes(spread)] * count
    # The last record fills the batch. Its length field may then be one byte longer, hence the second pass.
    for _ in range(3):
        data = build_batch([RecordData(now_ms, None, value) for value in values])
        if len(data) == size:
            return Batch(data, read_header(data).records_count)
        values[-1] = bytes(len(values[-1]) + size - len(data))
    raise AssertionError(f"no batch of {size} bytes with records of {record_size}")


def request_frame(message: object, version: int, correlation_id: int = 0) -> bytearray:
    """Return a request with size and header in front."""
    api_key = message_info(type(message)).api_key
    body = b"".join([request_header(api_key, version, correlation_id, CLIENT_ID), *encode(message, version)])
    return bytearray(struct.pack(">i", len(body)) + body)


def produce_frame(topic: str, partition: int, batch: Batch, correlation_id: int, acks: int = 1) -> bytearray:
    data = PartitionProduceData(index=partition, records=batch.data)
    request = ProduceRequest(
        acks=acks, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return request_frame(request, PRODUCE_VERSION, correlation_id)


def produce_response_layout(topic: str) -> struct.Struct:
    """Return the layout of size, correlation id and error code in the response to `produce_frame`.

    Between them are the header's empty tags, the count of topics, the topic's name, the count of partitions and the
    partition's number.
    """
    between = 1 + 1 + _compact_string_size(topic) + 1 + 4
    return struct.Struct(f">ii{between}xh")


def offset_commit_frame(
    group: str, member_id: str, generation_id: int, topic: str, partitions: range, correlation_id: int
) -> bytearray:
    offsets = [
        OffsetCommitRequestPartition(partition_index=it, committed_offset=1 << 20, committed_metadata="")
        for it in partitions
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)],
    )
    return request_frame(request, OFFSET_COMMIT_VERSION, correlation_id)


def offset_commit_response_layout(topic: str) -> struct.Struct:
    """Return the layout of size, correlation id and first error code in the response to `offset_commit_frame`.

    Between them are the header's empty tags, the throttle time, the count of topics, the topic's name, the count of
    partitions, of which there are less than 128, and the partition's number.
    """
    between = 1 + 4 + 1 + _compact_string_size(topic) + 1 + 4
    return struct.Struct(f">ii{between}xh")


class FetchFrame:
    """A Fetch of one partition without a session, whose offset can be changed."""

    def __init__(self, topic: str, partition: int, max_bytes: int, *, max_wait_ms: int = FETCH_MAX_WAIT_MS) -> None:
        marker = 0x7EDC_BA98_7654_3210
        wanted = FetchPartition(partition=partition, fetch_offset=marker, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        self.data = request_frame(request, FETCH_VERSION)
        self._offset_at = self.data.index(struct.pack(">q", marker))

    def move_to(self, offset: int) -> None:
        struct.pack_into(">q", self.data, self._offset_at, offset)


class FetchResponseLayout:
    """The positions of error codes and records in the response to a `FetchFrame`."""

    def __init__(self, topic: str) -> None:
        # Correlation id, tags, throttle time | error | session id, topic count, name, partition count, number | error.
        between = 4 + 1 + _compact_string_size(topic) + 1 + 4
        self._errors = struct.Struct(f">4x4x1x4xh{between}xh")
        high_watermark_to_preferred_replica = 8 + 8 + 8 + 1 + 4
        self._records_at = self._errors.size + high_watermark_to_preferred_replica

    def record_bytes(self, frame: bytearray | memoryview) -> int:
        """Return the size of the records in the response at the start of `frame` (with its size field)."""
        errors = self._errors.unpack_from(frame)
        if errors != (0, 0):
            raise RuntimeError(f"Fetch returned the errors {errors}")
        length, _ = read_uvarint(frame, self._records_at)
        return max(0, length - 1)


def _compact_string_size(text: str) -> int:
    assert len(text) < 0x7F, "the length takes one byte"
    return 1 + len(text.encode())
