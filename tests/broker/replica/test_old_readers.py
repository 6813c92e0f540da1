"""What Fetch before version 4 gets of batches with what its formats lack, through a whole broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.loop.clock import SystemClock
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.batch import Record, read_header
from protocol.records.builder import RecordData, build_batch, rebuild_batch
from protocol.records.compression import Compression
from protocol.records.entries import entries, entry_records
from protocol.records.legacy import build_message_set
from tests.support.in_process import InProcessBroker, running_broker

TIME = SystemClock().now_ms()  # as the markers have it: a record much older would begin a segment of its own
OLD_VERSIONS = [0, 1, 2, 3]
ZSTD_OFFSET = 12  # in the log of all formats


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path) as running:
        yield running


async def produce(broker: InProcessBroker, topic: str, data: bytes, version: int = 9) -> None:
    partition = PartitionProduceData(index=0, records=data)
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    response = await broker.ask(request, version)
    assert not response.responses[0].partition_responses[0].error_code


async def fetch(broker: InProcessBroker, topic: str, offset: int, version: int) -> PartitionData:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])])
    response = await broker.ask(request, version)
    data: PartitionData = response.responses[0].partitions[0]
    return data


def read(data: PartitionData) -> list[Record]:
    assert not data.error_code
    found: list[Record] = []
    for entry in entries(data.records or b""):
        found += entry_records(data.records or b"", entry.position, size_max=1 << 20)
    return found


async def end_transaction(broker: InProcessBroker, topic: str, producer_id: int, *, commit: bool) -> None:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    response = await broker.ask(WriteTxnMarkersRequest(markers=[marker]))
    assert not response.markers[0].topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", OLD_VERSIONS)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
async def test_down_conversion_drops_only_the_headers(
    broker: InProcessBroker, codec: Compression, version: int
) -> None:
    await broker.create_topic("t")
    rows = [RecordData(TIME + n, b"k", b"v%d" % n, [("h", b"1")]) for n in range(3)]
    await produce(broker, "t", build_batch(rows, compression=codec))
    data = await fetch(broker, "t", 0, version)
    magics = {entry.header.magic for entry in entries(data.records or b"")}
    assert magics == {0 if version < 2 else 1}
    times = [-1] * 3 if version < 2 else [TIME, TIME + 1, TIME + 2]
    assert read(data) == [Record(n, times[n], b"k", b"v%d" % n, []) for n in range(3)]


@pytest.mark.parametrize("version", OLD_VERSIONS)
async def test_messages_produced_in_an_old_format_are_served_in_it(broker: InProcessBroker, version: int) -> None:
    await broker.create_topic("t")
    for magic in (0, 1):
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            rows = [Record(n, TIME if magic else -1, b"k", b"%d" % n, []) for n in range(2)]
            await produce(broker, "t", build_message_set(rows, magic=magic, compression=codec), version=magic * 2)
    found = read(await fetch(broker, "t", 0, version))
    assert [(record.offset, record.value) for record in found] == [(n, b"%d" % (n % 2)) for n in range(16)]
    assert {record.timestamp for record in found} == ({-1} if version < 2 else {-1, TIME})


@pytest.mark.parametrize("version", OLD_VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
async def test_markers_are_skipped_from_any_fetch_offset(
    broker: InProcessBroker, version: int, *, commit: bool
) -> None:
    """Offsets 0 and 1 are a transaction's, 2 its marker, 3 comes later; old readers know no isolation."""
    await broker.create_topic("t")
    producer_id = (await broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))).producer_id
    rows = [RecordData(TIME, b"k", b"in"), RecordData(TIME, b"k", b"in")]
    await produce(broker, "t", build_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0))
    await end_transaction(broker, "t", producer_id, commit=commit)
    alone = await fetch(broker, "t", 2, version)
    assert read(alone) == []
    await produce(broker, "t", build_batch([RecordData(TIME, b"k", b"after")]))
    for offset in range(4):
        found = read(await fetch(broker, "t", offset, version))
        assert [record.offset for record in found] == [n for n in (0, 1, 3) if n >= offset]


@pytest.mark.parametrize("version", OLD_VERSIONS)
async def test_down_conversion_can_be_disabled_for_a_topic(broker: InProcessBroker, version: int) -> None:
    await broker.create_topic("t", message_downconversion_enable="false")
    await produce(broker, "t", build_batch([RecordData(TIME, b"k", b"v")]))
    assert (await fetch(broker, "t", 0, version)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [record.value for record in read(await fetch(broker, "t", 0, 4))] == [b"v"]


@pytest.mark.parametrize("version", [0, 3, 4, 9, 10, 12])
async def test_topic_with_zstd_is_readable_from_fetch_version_10_on(broker: InProcessBroker, version: int) -> None:
    """Whatever the codec of a batch, as in Kafka."""
    await broker.create_topic("t")
    await produce(broker, "t", build_batch([RecordData(TIME, b"k", b"v")]))
    await broker.create_topic("z", compression_type="zstd")
    await produce(broker, "z", build_batch([RecordData(TIME, b"k", b"v")]))
    expected = ErrorCode.NONE if version >= 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await fetch(broker, "z", 0, version)).error_code == expected
    assert (await fetch(broker, "t", 0, version)).error_code == ErrorCode.NONE


def left_behind() -> tuple[bytes, list[tuple[int, int]]]:
    """A log file of every format and codec, as installations of three ages leave it; (offset, time) of its records."""
    pieces: list[bytes] = []
    expected: list[tuple[int, int]] = []
    for number, (magic, codec) in enumerate(
        [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4), (0, 3), (1, 0), (2, 0), (1, 2), (2, 2), (1, 1)]
    ):
        offsets = (3 * number, 3 * number + 2)  # compaction took what was between
        times = [TIME + offset if magic else -1 for offset in offsets]
        if magic < 2:
            rows = [Record(offset, time, b"k", b"%d" % offset, []) for offset, time in zip(offsets, times, strict=True)]
            pieces.append(build_message_set(rows, magic=magic, compression=Compression(codec)))
        else:
            data = [RecordData(time, b"k", b"%d" % offset) for offset, time in zip(offsets, times, strict=True)]
            whole = build_batch([data[0], data[1]], base_offset=offsets[0], compression=Compression(codec))
            rows = [Record(offset, time, b"k", b"%d" % offset, []) for offset, time in zip(offsets, times, strict=True)]
            header = read_header(whole)._replace(last_offset_delta=2, partition_leader_epoch=0)
            pieces.append(rebuild_batch(header, rows))
        expected += zip(offsets, times, strict=True)
    return b"".join(pieces), expected


@pytest.mark.parametrize("is_clean", [True, False])
async def test_log_with_all_formats_is_served_to_all_versions(tmp_path: Path, *, is_clean: bool) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", segment_bytes="1000000")
    log, expected = left_behind()
    folder = tmp_path / "t-0"
    for file in folder.glob("*.*index"):
        file.unlink()
    (folder / "00000000000000000000.log").write_bytes(log)
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    async with running_broker(tmp_path) as broker:
        await produce(broker, "t", build_batch([RecordData(TIME, b"k", b"new")]))
        end = expected[-1][0] + 1
        every = [(offset, b"%d" % offset) for offset, _ in expected] + [(end, b"new")]
        found = read(await fetch(broker, "t", 0, 12))
        assert [(record.offset, record.value) for record in found] == every
        assert [(record.offset, record.timestamp) for record in found[:-1]] == expected
        for offset, _ in every:
            found = read(await fetch(broker, "t", offset, 12))
            assert [(r.offset, r.value) for r in found if r.offset >= offset] == [e for e in every if e[0] >= offset]
        for version in OLD_VERSIONS:
            assert (await fetch(broker, "t", ZSTD_OFFSET, version)).error_code == 76
            before = read(await fetch(broker, "t", 0, version))
            after = read(await fetch(broker, "t", ZSTD_OFFSET + 3, version))
            assert [(r.offset, r.value) for r in before + after] == [
                one for one in every if one[0] not in (ZSTD_OFFSET, ZSTD_OFFSET + 2)
            ]


async def test_batch_that_opens_further_than_shared_threads_may_is_converted(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")
    for value in (b"small", bytes(5000), b"last"):
        await produce(broker, "t", build_batch([RecordData(TIME, b"k", value)], compression=Compression.GZIP))
    monkeypatch.setattr("broker.replica.old_readers.SHARED_PLAIN_SIZE_MAX", 1000)
    assert [record.value for record in read(await fetch(broker, "t", 0, 2))] == [b"small"]
    assert [record.value for record in read(await fetch(broker, "t", 1, 2))] == [bytes(5000), b"last"]
    monkeypatch.setattr("broker.replica.old_readers.PLAIN_SIZE_MAX", 1000)
    assert (await fetch(broker, "t", 1, 2)).error_code == ErrorCode.CORRUPT_MESSAGE
