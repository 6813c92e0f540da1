"""Produce on one connection after another request that was good: each is decided for itself."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from typing import Any

import pytest

from broker.network.channel import Channel
from broker.replica.partition import Partition
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, Malformed
from protocol.headers import read_response_header, request_header
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID
from protocol.writer import uvarint
from storage.disk.files import OsFiles
from tests.broker.handlers.test_produce_and_fetch import fetch, partitions_of
from tests.support.in_process import InProcessBroker

PRODUCE = 0


def batch_of(count: int, size: int = 10, **fields: Any) -> bytes:
    return build_batch([RecordData(timestamp=1000, key=b"k", value=bytes(size)) for _ in range(count)], **fields)


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def frame_of(topic: str, records: bytes, version: int, *, acks: int = 1, index: int = 0) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
    return request_header(PRODUCE, version, 0, "client") + b"".join(encode(request, version))


class Connection:
    """A producer that sends frames to partition 0 of one topic."""

    def __init__(self, broker: InProcessBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._channel = Channel("127.0.0.1", 1, "PLAINTEXT")

    async def send(self, frame: bytes, version: int) -> tuple[int, int]:
        """The error code and the base offset in the response."""
        response = await self._broker.send(frame, self._channel)
        assert response is not None
        payload = b"".join(response)[4:]
        _, position = read_response_header(PRODUCE, version, payload)
        (topic,) = decode(ProduceResponse, version, payload, position).responses
        assert topic.name == self._topic
        (data,) = topic.partition_responses
        return data.error_code, data.base_offset

    async def produce(self, records: bytes, version: int = 9, **more: int) -> tuple[int, int]:
        return await self.send(frame_of(self._topic, records, version, **more), version)

    @property
    def partition(self) -> Partition:
        found = self._broker.services.replica_manager.find(self._topic, 0)
        assert found is not None
        return found


@pytest.fixture
async def connection(served: InProcessBroker, name: str) -> Connection:
    await served.create_topic(name, 2)
    return Connection(served, name)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (damaged(batch_of(1)), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(1) * 2, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(30), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(1, 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(1, producer_id=7, producer_epoch=0, base_sequence=5), ErrorCode.NONE),
        (batch_of(1, producer_id=7, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "two batches", "nothing", "garbage", "too large", "a producer id", "no sequence"],
)
@pytest.mark.parametrize("version", [7, 11])
async def test_records_between_good_ones_get_the_code_of_their_fault(
    connection: Connection, records: bytes, code: ErrorCode, version: int
) -> None:
    assert await connection.produce(batch_of(1), version) == (ErrorCode.NONE, 0)
    assert await connection.produce(records, version) == (code, -1 if code else 1)
    assert await connection.produce(batch_of(1), version) == (ErrorCode.NONE, 1 if code else 2)


@pytest.mark.parametrize("records_size", [16381, 16382, 16383, 16384])
async def test_records_whose_length_takes_two_or_three_bytes(connection: Connection, records_size: int) -> None:
    records = batch_of(1, records_size - len(batch_of(1, 10_000)) + 10_000)
    assert len(records) == records_size
    assert await connection.produce(records) == (ErrorCode.NONE, 0)
    assert await connection.produce(records) == (ErrorCode.NONE, 1)


async def test_a_batch_that_is_sent_again_is_written_once(connection: Connection) -> None:
    await connection.produce(batch_of(2))
    records = batch_of(3, producer_id=7, producer_epoch=0, base_sequence=0)
    assert {await connection.produce(records) for _ in range(3)} == {(ErrorCode.NONE, 2)}
    log = connection.partition.log
    assert log.log_end_offset == log.high_watermark == 5


async def test_append_is_not_committed_before_every_in_sync_replica_has_it(connection: Connection) -> None:
    partition = connection.partition
    log, alone = partition.log, partition.leadership
    for number in range(2):
        assert await connection.produce(batch_of(1)) == (ErrorCode.NONE, number)
    assert (log.log_end_offset, log.high_watermark) == (2, 2)
    partition.lead(replace(alone, leader_epoch=alone.leader_epoch + 1, isr=(0, 1), replicas=(0, 1)), 0)
    assert await connection.produce(batch_of(1)) == (ErrorCode.NONE, 2)
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    partition.follow(replace(alone, leader_id=1, leader_epoch=alone.leader_epoch + 2))
    assert await connection.produce(batch_of(1)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    partition.lead(replace(alone, leader_epoch=alone.leader_epoch + 3), 0)
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    assert await connection.produce(batch_of(1)) == (ErrorCode.NONE, 3)
    assert (log.log_end_offset, log.high_watermark) == (4, 4)
    partition.stop()
    assert await connection.produce(batch_of(1)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_disk_that_fails_is_reported_and_takes_the_log_out_of_service(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    await connection.produce(batch_of(1))
    log = connection.partition.log
    with monkeypatch.context() as broken:
        broken.setattr(OsFiles, "write", fail)
        assert await connection.produce(batch_of(1)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert log.is_offline
    assert (log.log_end_offset, log.high_watermark) == (1, 1)


async def test_a_length_without_end_is_malformed(connection: Connection, name: str) -> None:
    frame = frame_of(name, batch_of(1), 9)
    await connection.send(frame, 9)
    prefix = frame[: frame.index(batch_of(1)) - 1]
    with pytest.raises(Malformed):
        await connection.send(prefix + b"\xff" * 1_000_000 + bytes(3), 9)


async def test_a_gap_in_the_sequence_is_refused_with_append_time(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, message_timestamp_type="LogAppendTime")
    connection = Connection(served, name)
    codes = []
    for sequence in (0, 1, 9, 2):
        records = batch_of(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
        codes.append((await connection.produce(records))[0])
    assert codes == [0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]


async def test_a_batch_refused_for_its_sequence_is_logged_with_its_producer(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.server.ReplicaManager")
    await connection.produce(batch_of(1, producer_id=7, producer_epoch=3, base_sequence=0))
    await connection.produce(batch_of(2, producer_id=7, producer_epoch=3, base_sequence=9))
    await connection.produce(batch_of(1, producer_id=7, producer_epoch=2, base_sequence=1))
    gap, stale = (it.getMessage() for it in caplog.records if "Refused a batch" in it.getMessage())
    assert gap.startswith(
        "Refused a batch of producer 7 with epoch 3 and sequences 9 to 10: OUT_OF_ORDER_SEQUENCE_NUMBER: "
    )
    assert "9 (incoming seq. number), 0 (current end sequence number)" in gap
    assert stale.startswith("Refused a batch of producer 7 with epoch 2 and sequences 1 to 1: INVALID_PRODUCER_EPOCH: ")


async def test_a_transactional_batch_without_a_transactional_id_is_refused(connection: Connection) -> None:
    await connection.produce(batch_of(1))
    records = build_batch(
        [RecordData(timestamp=1, key=None, value=b"v")],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    assert await connection.produce(records) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert connection.partition.log.log_end_offset == 1


@pytest.mark.parametrize("version", [5, 7, 9, 11])
async def test_bytes_after_the_request_do_not_become_records(
    served: InProcessBroker, connection: Connection, name: str, version: int
) -> None:
    extras = (b"", b"\0", b"\0\0\0\0", b"more")
    for number, extra in enumerate(extras):
        assert await connection.send(frame_of(name, batch_of(1), version) + extra, version) == (0, number)
    data = partitions_of(await fetch(served, name, {0: 0}))[0]
    assert len(data.records or b"") == len(extras) * len(batch_of(1))


@pytest.mark.parametrize("size", [100, 1 << 20])
async def test_unknown_tags_in_the_header_are_ignored(connection: Connection, name: str, size: int) -> None:
    header = request_header(PRODUCE, 9, 0, "client")
    frame = frame_of(name, batch_of(1), 9)
    tagged = frame[: len(header) - 1] + bytes([1, 100]) + uvarint(size) + bytes(size) + frame[len(header) :]
    for number in range(3):
        assert await connection.send(tagged, 9) == (ErrorCode.NONE, number)


async def test_a_new_topic_of_the_same_name_is_another_one(
    served: InProcessBroker, connection: Connection, name: str
) -> None:
    assert await connection.produce(batch_of(1)) == (ErrorCode.NONE, 0)
    state = DeleteTopicState(name=name, topic_id=ZERO_UUID)
    await served.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))
    assert await connection.produce(batch_of(1)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    await served.create_topic(name, 2)
    assert await connection.produce(batch_of(1)) == (ErrorCode.NONE, 0)


async def test_changed_settings_are_in_force_with_the_next_request(
    served: InProcessBroker, connection: Connection, name: str
) -> None:
    for _ in range(2):
        await connection.produce(batch_of(1))
    change = AlterConfigsResource(
        resource_type=2,
        resource_name=name,
        configs=[AlterableConfig(name="max.message.bytes", config_operation=0, value="100")],
    )
    await served.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
    assert await connection.produce(batch_of(1, 1000)) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
