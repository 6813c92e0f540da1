import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import LOG_APPEND_TIME_BIT, Record, TimestampType, read_header, set_timestamps
from protocol.records.builder import RecordData, build_batch, rebuild_batch
from protocol.records.compression import Compression, OpensTooFar
from protocol.records.control import ControlType, TransactionMarker, build_marker
from protocol.records.down_conversion import DownConverted, down_convert
from protocol.records.entries import entries, entry_records
from protocol.records.legacy import build_message_set, read_message_set
from tests.support.entries import entry_crc_is_valid

pytestmark = pytest.mark.usefixtures("form")

SIZE_MAX = 1 << 20
OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]

DATA = [
    RecordData(100, b"key", b"value", [("header", b"dropped")]),
    RecordData(90, None, b"", []),
    RecordData(300, b"", None, []),
]


def records_of(data: bytes) -> list[Record]:
    read: list[Record] = []
    for entry in entries(data):
        assert entry_crc_is_valid(data, entry)
        read += entry_records(data, entry.position, size_max=SIZE_MAX)
    return read


def convert(data: bytes | bytearray, magic: int, fetch_offset: int = 0) -> DownConverted:
    return down_convert(data, magic=magic, fetch_offset=fetch_offset, size_max=SIZE_MAX)


def marker(offset: int) -> bytes:
    batch = bytearray(build_marker(TransactionMarker(ControlType.COMMIT, 1), producer_id=4, producer_epoch=0, now_ms=5))
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_conversion_keeps_offset_key_and_value(magic: int, codec: Compression) -> None:
    batch = build_batch(DATA, base_offset=40, compression=codec, producer_id=3, producer_epoch=0, base_sequence=0)
    converted = convert(batch, magic)
    assert converted[1:] == (3, 43)
    assert {(entry.header.magic, entry.header.compression) for entry in entries(converted.records)} == {(magic, codec)}
    assert records_of(converted.records) == [
        Record(40, 100 if magic else -1, b"key", b"value", []),
        Record(41, 90 if magic else -1, None, b"", []),
        Record(42, 300 if magic else -1, b"", None, []),
    ]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_conversion_from_magic_1_to_0_and_back_keeps_the_records(codec: Compression) -> None:
    rows = [Record(n, 50 + n, b"k", b"%d" % n, []) for n in range(4)]
    without_time = [row._replace(timestamp=-1) for row in rows]
    magic1 = build_message_set(rows, magic=1, compression=codec)
    magic0 = convert(magic1, 0)
    assert magic0[1:] == (4, 4)
    assert records_of(magic0.records) == without_time

    sent = read_message_set(magic0.records, size_max=SIZE_MAX)
    stored = build_batch([RecordData(*row[1:4]) for run in sent.runs for row in run], compression=sent.compression)
    assert convert(stored, 0).records == magic0.records
    assert records_of(convert(stored, 1).records) == without_time


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_up_and_down_again_gives_the_same_bytes(magic: int, codec: Compression) -> None:
    rows = [Record(n, 50 + n if magic else -1, b"k", b"%d" % n, []) for n in range(4)]
    before = build_message_set(rows, magic=magic, compression=codec)
    sent = read_message_set(before, size_max=SIZE_MAX)
    stored = build_batch([RecordData(*row[1:4]) for run in sent.runs for row in run], compression=sent.compression)
    assert convert(stored, magic).records == before


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_log_append_time_is_kept(codec: Compression) -> None:
    batch = bytearray(build_batch(DATA, compression=codec))
    set_timestamps(batch, 0, read_header(batch).attributes | LOG_APPEND_TIME_BIT, 7777)
    converted = convert(batch, 1).records
    assert {record.timestamp for record in records_of(converted)} == {7777}
    assert {entry.header.timestamp_type for entry in entries(converted)} == {TimestampType.LOG_APPEND_TIME}


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_gaps_left_by_compaction_are_kept(codec: Compression) -> None:
    batch = build_batch([RecordData(5, b"%d" % n, b"v") for n in range(6)], base_offset=100, compression=codec)
    (entry,) = entries(batch)
    kept = [record for record in entry_records(batch, entry.position, size_max=SIZE_MAX) if record.offset in (101, 104)]
    for magic in 0, 1:
        converted = convert(rebuild_batch(entry.header, kept), magic)  # type: ignore[arg-type]
        assert [record.offset for record in records_of(converted.records)] == [101, 104]
        assert converted.next_offset == 106


def test_entries_of_an_old_enough_format_are_unchanged() -> None:
    magic0 = build_message_set([Record(0, -1, b"k", b"v", [])], magic=0)
    magic1 = build_message_set([Record(1, 9, b"k", b"v", [])], magic=1, compression=Compression.LZ4)
    batch = build_batch(DATA, base_offset=2)
    converted = convert(magic0 + magic1 + batch, 1)
    assert converted.records.startswith(magic0 + magic1)
    assert converted[1:] == (3, 5)
    assert [entry.header.magic for entry in entries(convert(magic0 + magic1 + batch, 0).records)] == [0] * 5


def test_records_below_the_fetch_offset_are_omitted_unless_compressed() -> None:
    for codec, offsets in (Compression.NONE, [41, 42]), (Compression.GZIP, [40, 41, 42]):
        converted = convert(build_batch(DATA, base_offset=40, compression=codec), 1, fetch_offset=41)
        assert [record.offset for record in records_of(converted.records)] == offsets


def test_markers_are_dropped_and_next_offset_advances() -> None:
    data = marker(0) + build_batch(DATA, base_offset=1) + marker(4)
    converted = convert(data, 0)
    assert [record.offset for record in records_of(converted.records)] == [1, 2, 3]
    assert converted.next_offset == 5
    assert convert(marker(8) + marker(9), 1) == DownConverted(b"", 0, 10)


def test_partial_last_batch_is_omitted() -> None:
    batch = build_batch(DATA)
    assert convert(batch + batch[:-1], 1).next_offset == 3
    assert convert(batch[:-1], 1) == DownConverted(b"", 0, None)
    assert convert(b"", 1) == DownConverted(b"", 0, None)


def flipped(batch: bytes, index: int) -> bytes:
    """Return a batch that can be parsed and holds another value."""
    changed = bytearray(batch)
    changed[index] ^= 0x01
    return bytes(changed)


def test_damaged_message_gets_no_valid_crc_in_another_format() -> None:
    message = build_message_set([Record(0, 5, b"k", b"value", [])], magic=1)
    with pytest.raises(KafkaError, match="CRC"):
        convert(flipped(message, -1), 0)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (build_batch(DATA, base_offset=3, compression=Compression.ZSTD), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (build_batch(DATA, base_offset=3)[:-10] + b"\xff" * 10, ErrorCode.CORRUPT_MESSAGE),
        (bytes(100), ErrorCode.CORRUPT_MESSAGE),
        (flipped(build_batch(DATA, base_offset=3), -3), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_unconvertible_batch_is_an_error_only_as_the_first(bad: bytes, code: ErrorCode) -> None:
    good = build_batch(DATA)
    assert convert(good + bad, 1) == convert(good, 1)
    with pytest.raises(KafkaError) as raised:
        convert(bad + good, 1)
    assert raised.value.code is code


def test_first_batch_that_opens_too_far_is_reported() -> None:
    batch = build_batch([RecordData(0, None, bytes(10_000))], compression=Compression.GZIP)
    with pytest.raises(OpensTooFar):
        down_convert(batch, magic=1, fetch_offset=0, size_max=9_999)


def test_conversion_ends_before_a_later_batch_that_opens_too_far() -> None:
    small = build_batch([RecordData(0, None, b"small")], compression=Compression.GZIP)
    large = build_batch([RecordData(0, None, bytes(10_000))], base_offset=1, compression=Compression.GZIP)
    converted = down_convert(small + large, magic=1, fetch_offset=0, size_max=9_999)
    assert (converted.records_converted, converted.next_offset) == (1, 1)
