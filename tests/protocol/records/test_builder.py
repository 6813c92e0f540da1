import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    Record,
    TimestampType,
    crc_is_valid,
    read_header,
    records,
)
from protocol.records.builder import RecordData, build_batch, build_record_batch, rebuild_batch
from protocol.records.compression import Compression

SIZE_MAX = 1 << 20

ROWS = [RecordData(100 + 7 * n, b"key %d" % n, b"value %d" % n) for n in range(6)]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(("key", "value"), list(itertools.product([None, b"", b"filled"], repeat=2)), ids=str)
def test_null_empty_and_filled_differ(codec: Compression, key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([RecordData(5, key, value, [("h", value), ("h", key or None)])], compression=codec)
    assert list(records(batch, size_max=SIZE_MAX)) == [(0, 5, key, value, [("h", value), ("h", key or None)])]


optional_bytes = st.none() | st.binary(max_size=200)
rows = st.builds(
    RecordData,
    timestamp=st.integers(-1, 2**62),
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(st.text(max_size=70), optional_bytes), max_size=5),
)


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from(Compression), st.integers(0, 2**60))
def test_built_batch_is_read_back(data: list[RecordData], codec: Compression, base_offset: int) -> None:
    batch = build_batch(data, base_offset=base_offset, compression=codec)
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    assert header.size == len(batch)
    assert header.compression is codec
    assert header.base_timestamp == data[0].timestamp
    assert header.max_timestamp == max(row.timestamp for row in data)
    assert list(records(batch, size_max=SIZE_MAX)) == [
        (base_offset + index, *row[:3], list(row.headers)) for index, row in enumerate(data)
    ]


def test_every_option_is_in_the_header() -> None:
    header = read_header(
        build_batch(
            ROWS,
            base_offset=1000,
            compression=Compression.LZ4,
            level=1,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            producer_id=2**40,
            producer_epoch=12,
            base_sequence=2**31 - 1,
            is_transactional=True,
            is_control=True,
            leader_epoch=3,
        )
    )
    assert header.attributes == 3 | 8 | 16 | 32
    assert (header.base_offset, header.last_offset, header.records_count) == (1000, 1005, 6)
    assert (header.producer_id, header.producer_epoch) == (2**40, 12)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 1, 4)
    assert (header.partition_leader_epoch, header.magic) == (3, 2)


def test_batch_without_options_equals_that_of_a_plain_producer() -> None:
    header = read_header(build_batch(ROWS))
    assert header[:1] + header[2:4] == (0, -1, 2)
    assert header[5:7] == (0, 5)
    assert header[9:] == (-1, -1, -1, 6)


class TestRebuild:
    """What compaction leaves of a batch."""

    SOURCE = build_batch(
        ROWS,
        base_offset=50,
        compression=Compression.ZSTD,
        producer_id=9,
        producer_epoch=2,
        base_sequence=70,
        leader_epoch=4,
    )

    def kept(self, *offsets: int) -> list[Record]:
        return [record for record in records(self.SOURCE, size_max=SIZE_MAX) if record.offset in offsets]

    def test_rebuilt_batch_keeps_offsets_timestamps_and_producer(self) -> None:
        source = read_header(self.SOURCE)
        batch = rebuild_batch(source, self.kept(51, 54))
        header = read_header(batch)
        assert crc_is_valid(batch, 0, header)
        assert list(records(batch, size_max=SIZE_MAX)) == self.kept(51, 54)
        assert header.records_count == 2
        assert header.base_timestamp == 107
        assert header.max_timestamp == 128
        for name in "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence":
            assert getattr(header, name) == getattr(source, name)
        assert header.partition_leader_epoch == 4
        assert header.compression is Compression.ZSTD

    def test_delete_horizon_replaces_the_base_timestamp(self) -> None:
        batch = rebuild_batch(read_header(self.SOURCE), self.kept(50, 55), delete_horizon_ms=999_999)
        header = read_header(batch)
        assert header.delete_horizon_ms == 999_999
        assert header.max_timestamp == 135
        assert list(records(batch, size_max=SIZE_MAX)) == self.kept(50, 55)
        again = rebuild_batch(header, self.kept(55))
        assert read_header(again).delete_horizon_ms is None

    def test_rebuilt_batch_keeps_log_append_time(self) -> None:
        source = read_header(build_batch(ROWS, timestamp_type=TimestampType.LOG_APPEND_TIME))
        source = source._replace(max_timestamp=5_000)
        kept = [Record(3, 5_000, b"k", b"v", [])]
        batch = rebuild_batch(source, kept)
        assert list(records(batch, size_max=SIZE_MAX)) == kept
        assert read_header(batch).max_timestamp == 5_000

    def test_emptied_batch_keeps_last_offset_and_sequence(self) -> None:
        batch = rebuild_batch(read_header(self.SOURCE), [])
        header = read_header(batch)
        assert len(batch) == HEADER_SIZE
        assert crc_is_valid(batch, 0, header)
        assert list(records(batch, size_max=SIZE_MAX)) == []
        assert (header.records_count, header.last_offset, header.last_sequence) == (0, 55, 75)
        assert header.compression is Compression.NONE


SIZES = (0, 1, 63, 64, 8191, 8192, 70_000)


@pytest.mark.parametrize("key_size", [None, *SIZES])
@pytest.mark.parametrize("value_size", [None, *SIZES])
def test_both_builders_of_one_record_write_the_same_bytes(key_size: int | None, value_size: int | None) -> None:
    key, value = (None if size is None else bytes(size) for size in (key_size, value_size))
    record = RecordData(1_700_000_000_000, key, value)
    assert build_record_batch(record) == build_batch([record])
    in_transaction = build_record_batch(
        record, producer_id=7, producer_epoch=3, attributes=TRANSACTIONAL_BIT | CONTROL_BIT, leader_epoch=5
    )
    assert in_transaction == build_batch(
        [record], producer_id=7, producer_epoch=3, is_transactional=True, is_control=True, leader_epoch=5
    )
    assert build_record_batch(record, base_sequence=4) == build_batch([record], base_sequence=4)
