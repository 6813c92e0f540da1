"""What Apache Kafka wrote is read exactly, and written again byte for byte where no compressor decides the bytes."""

import pytest

from protocol.records.batch import batches, crc_is_valid, records
from protocol.records.builder import assemble, rebuild_batch
from protocol.records.compression import Compression
from protocol.records.control import read_marker
from protocol.records.entries import entries, entry_records
from protocol.records.legacy import build_message_set
from protocol.records.plain_records import encode_records
from tests.support.entries import entry_crc_is_valid

from .golden import GoldenLog, expected_records, golden_logs

ALL_LOGS = golden_logs()
LOGS = [log for log in ALL_LOGS if log.magic == 2]
OLD_LOGS = [log for log in ALL_LOGS if log.magic < 2]
SIZE_MAX = 1 << 20

each_log = pytest.mark.parametrize("log", LOGS, ids=[log.name for log in LOGS])
each_old_log = pytest.mark.parametrize("log", OLD_LOGS, ids=[log.name for log in OLD_LOGS])


def test_recordings_cover_every_codec() -> None:
    assert {batch["compression"] for log in LOGS for batch in log.batches} == {c.name.lower() for c in Compression}


@each_log
def test_headers_are_read_as_kafka_reads_them(log: GoldenLog) -> None:
    read = list(batches(log.data))
    assert len(read) == len(log.batches)
    for (position, header), expected in zip(read, log.batches, strict=True):
        assert {
            "position": position,
            "size": header.size,
            "magic": header.magic,
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "compression": header.compression.name.lower(),
            "timestampType": {0: "CreateTime", 1: "LogAppendTime"}[header.timestamp_type],
            "isValid": crc_is_valid(log.data, position, header),
            "count": header.records_count,
            "crc": header.crc,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "maxTimestamp": header.max_timestamp,
        } == {name: value for name, value in expected.items() if name not in ("records", "deleteHorizonMs")}
        assert header.delete_horizon_ms == expected.get("deleteHorizonMs")


@each_log
def test_records_are_read_as_kafka_reads_them(log: GoldenLog) -> None:
    for expected in log.batches:
        read = list(records(log.data, expected["position"], size_max=SIZE_MAX))
        assert read == expected_records(expected)


@each_log
def test_markers_are_read_as_kafka_reads_them(log: GoldenLog) -> None:
    for batch in log.batches:
        if not batch["isControl"]:
            continue
        (record,) = records(log.data, batch["position"], size_max=SIZE_MAX)
        marker = read_marker(record)
        assert marker is not None
        assert marker.control_type.name == batch["records"][0]["controlType"]
        assert marker.coordinator_epoch == batch["records"][0]["coordinatorEpoch"]


@each_log
def test_encoding_the_records_again_gives_the_same_bytes(log: GoldenLog) -> None:
    for position, header in batches(log.data):
        if header.compression is not Compression.NONE:
            continue
        stored = log.data[position : position + header.size]
        read = list(records(stored, size_max=SIZE_MAX))
        assert assemble(header, encode_records(read, header.base_offset, header.base_timestamp)) == stored
        assert rebuild_batch(header, read, delete_horizon_ms=header.delete_horizon_ms) == stored


def test_recordings_cover_the_old_formats() -> None:
    kinds = {(log.magic, batch["compression"], batch["timestampType"]) for log in OLD_LOGS for batch in log.batches}
    codecs = {"none", "gzip", "snappy", "lz4"}
    assert kinds == {
        (magic, codec, timestamp_type)
        for magic, timestamp_type in [(0, "NoTimestampType"), (1, "CreateTime"), (1, "LogAppendTime")]
        for codec in codecs
    }


@each_old_log
def test_old_messages_are_read_as_kafka_reads_them(log: GoldenLog) -> None:
    timestamp_types = {0: ["NoTimestampType"] * 2, 1: ["CreateTime", "LogAppendTime"]}[log.magic]
    read = list(entries(log.data))
    assert len(read) == len(log.batches)
    for entry, expected in zip(read, log.batches, strict=True):
        header = entry.header
        opened = list(entry_records(log.data, entry.position, size_max=SIZE_MAX))
        assert opened == expected_records(expected)
        assert {
            "position": entry.position,
            "size": header.size,
            "magic": header.magic,
            "baseOffset": opened[0].offset,
            "lastOffset": header.last_offset,
            "compression": header.compression.name.lower(),
            "timestampType": timestamp_types[header.timestamp_type],
            "isValid": entry_crc_is_valid(log.data, entry),
            "maxTimestamp": max(record.timestamp for record in opened),
            "crc": header.crc,
        } == {name: value for name, value in expected.items() if name != "records"}


@each_old_log
def test_writing_old_messages_again_gives_the_same_bytes(log: GoldenLog) -> None:
    for entry in entries(log.data):
        if entry.header.compression is Compression.NONE:
            (record,) = entry_records(log.data, entry.position, size_max=SIZE_MAX)
            written = build_message_set([record], magic=log.magic, timestamp_type=entry.header.timestamp_type)
            assert written == log.data[entry.position : entry.end]
