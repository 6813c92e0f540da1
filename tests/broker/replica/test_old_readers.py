"""What Fetch before version 4 gets of batches with what its formats lack, through a whole broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.clock import SystemClock
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.batch import Record
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.entries import entries, entry_records
from protocol.records.legacy import build_message_set
from tests.support.in_process import InProcessBroker, running_broker

TIME = SystemClock().now_ms()  # as the markers have it: a record much older would begin a segment of its own
OLD_VERSIONS = [0, 1, 2, 3]


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
async def test_headers_are_dropped_and_the_rest_stays(
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
async def test_what_came_in_an_old_format_goes_out_in_it(broker: InProcessBroker, version: int) -> None:
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
async def test_markers_are_passed_over_wherever_a_reader_stands(
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
async def test_a_topic_may_have_it_forbidden(broker: InProcessBroker, version: int) -> None:
    await broker.create_topic("t", message_downconversion_enable="false")
    await produce(broker, "t", build_batch([RecordData(TIME, b"k", b"v")]))
    assert (await fetch(broker, "t", 0, version)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [record.value for record in read(await fetch(broker, "t", 0, 4))] == [b"v"]


@pytest.mark.parametrize("version", [0, 3, 4, 9, 10, 12])
async def test_a_topic_of_zstd_is_for_readers_since_version_10(broker: InProcessBroker, version: int) -> None:
    """Whatever the codec of a batch, as in Kafka."""
    await broker.create_topic("t")
    await produce(broker, "t", build_batch([RecordData(TIME, b"k", b"v")]))
    await broker.create_topic("z", compression_type="zstd")
    await produce(broker, "z", build_batch([RecordData(TIME, b"k", b"v")]))
    expected = ErrorCode.NONE if version >= 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await fetch(broker, "z", 0, version)).error_code == expected
    assert (await fetch(broker, "t", 0, version)).error_code == ErrorCode.NONE
