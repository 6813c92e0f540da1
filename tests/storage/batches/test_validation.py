import contextlib
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lz4.frame
import pytest
from crc32c import crc32c

from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    TimestampType,
    crc_is_valid,
    read_header,
    records,
    set_timestamps,
)
from protocol.records.builder import RecordData, assemble, build_batch
from protocol.records.compression import Compression, compress
from protocol.records.control import ControlType, TransactionMarker, build_marker
from protocol.records.legacy import build_message_set
from protocol.records.lz4_frame import opens_everywhere
from protocol.records.plain_records import encode_records
from storage.batches import validation
from storage.batches.validation import (
    CONVERTED_SIZE_MAX,
    COSTLY_COMPRESSED_SIZE,
    COSTLY_RECORDS_COUNT,
    COSTLY_SIZE,
    GZIP_OPENED_SIZE_MAX,
    HEADERS_MAX,
    OPENED_SIZE_MAX,
    SLOWLY_CONVERTED_SIZE_MAX,
    AppendOrigin,
    AppendRules,
    PreparedAppend,
    RecordsRejected,
    RejectionMeter,
    TimestampWindow,
    TooCostlyError,
    ValidatedAppend,
    first_batch,
    prepare,
    validate_and_assign_offsets,
)

NOW_MS = 1_700_000_500_000
NEXT_OFFSET = 5000
LEADER_EPOCH = 7
SIZE_MAX = 1 << 20

PLAIN_RULES = AppendRules()
COMPACTED = AppendRules(is_compacted=True)
APPEND_TIME = AppendRules(is_log_append_time=True)
WINDOW = AppendRules(timestamp_window=TimestampWindow(1_000_000, 2_000))
PARSED = AppendRules(timestamp_window=TimestampWindow(1 << 40, 1 << 40))
"""Accepts any time, and reads that of each record."""

DATA = [
    RecordData(1_700_000_000_000, b"key 0", b"value 0", [("h", b"1"), ("h", None)]),
    RecordData(1_700_000_400_000, b"key 1", None),
    RecordData(1_699_999_999_000, b"", b""),
]
CONTENT = [(row.key, row.value, list(row.headers)) for row in DATA]
TIMES = [row.timestamp for row in DATA]

SENT_BY_CLIENTS = {
    "java-0.8.2": (
        AppendOrigin.OLD_CLIENT,
        (
            "0000000000000000000000202fbb42140000000000026b3000000010762d6a6176612d302e382e322e322d3000000000000000000000002025"
            "7122450000000000026b3200000010762d6a6176612d302e382e322e322d32"
        ),
    ),
    "java-0.10.2": (
        AppendOrigin.OLD_CLIENT,
        (
            "000000000000000000000029840069f10100000001a1fc04a8ad000000026b3000000011762d6a6176612d302e31302e322e322d3000000000"
            "000000010000002956a70b360100000001a1fc04a8b2000000026b3200000011762d6a6176612d302e31302e322e322d32"
        ),
    ),
    "java-1.1-transactional": (
        AppendOrigin.CLIENT_BEFORE_ZSTD,
        (
            "00000000000000000000005fffffffff02fa38fdc6001000000001000001a1fc04e4fb000001a1fc04e4ff00000000000003ee000000000000"
            "000000022c0000000474301c762d6a6176612d312e312e312d30002c0008020474321c762d6a6176612d312e312e312d3200"
        ),
    ),
    "java-3.9": (
        AppendOrigin.CLIENT,
        (
            "00000000000000000000005fffffffff02a7a1fff9000000000001000001a1fc04fd5a000001a1fc04fd6300000000000003ef000000000000"
            "000000022c000000046b301c762d6a6176612d332e392e312d30002c001202046b321c762d6a6176612d332e392e312d3200"
        ),
    ),
}

each_codec = pytest.mark.parametrize("codec", list(Compression))
COORDINATOR = AppendOrigin.COORDINATOR
CLIENTS = [AppendOrigin.CLIENT, AppendOrigin.CLIENT_BEFORE_ZSTD, AppendOrigin.OLD_CLIENT]


def validate(
    sent: bytes | bytearray | memoryview,
    rules: AppendRules = PLAIN_RULES,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    *,
    may_take_long: bool = True,
) -> ValidatedAppend | None:
    view = sent if isinstance(sent, memoryview) else memoryview(bytearray(sent))
    return validate_and_assign_offsets(
        view,
        rules,
        next_offset=NEXT_OFFSET,
        leader_epoch=LEADER_EPOCH,
        now_ms=NOW_MS,
        origin=origin,
        may_take_long=may_take_long,
    )


def is_too_costly(
    sent: bytes | bytearray | memoryview,
    rules: AppendRules = PLAIN_RULES,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> bool:
    """Return whether validation leaves `sent` to a thread; if not, it decides as if it might take long."""
    buffer = bytearray(sent)
    try:
        bounded = validate(memoryview(buffer), rules, origin, may_take_long=False)
    except TooCostlyError:
        assert buffer == sent, "a thread prepares the records as they were sent"
        return True
    unbounded = validate(sent if isinstance(sent, bytes) else bytes(sent), rules, origin)
    assert bounded is not None
    assert unbounded is not None
    assert bytes(bounded.records) == bytes(unbounded.records)
    assert bounded[1:] == unbounded[1:]
    return False


def at_its_place(header: BatchHeader) -> BatchHeader:
    """The header with what is the caller's to know."""
    return header._replace(base_offset=NEXT_OFFSET, partition_leader_epoch=LEADER_EPOCH)


def accepted(
    sent: bytes | bytearray | memoryview, rules: AppendRules = PLAIN_RULES, origin: AppendOrigin = AppendOrigin.CLIENT
) -> tuple[ValidatedAppend, list[Record]]:
    """Return the accepted batch and its records, after checks that apply to every accepted batch."""
    result = validate(sent, rules, origin)
    assert result is not None
    stored = bytes(result.records)
    result = result._replace(header=at_its_place(result.header))
    assert read_header(stored) == result.header
    assert len(stored) == result.header.size
    assert crc_is_valid(stored, 0, result.header)
    opened = list(records(stored, size_max=SIZE_MAX))
    assert [record.offset for record in opened] == list(range(NEXT_OFFSET, NEXT_OFFSET + len(opened)))
    assert result.header.last_offset == opened[-1].offset
    assert result.header.max_timestamp == max(record.timestamp for record in opened)
    return result, opened


def refused(
    sent: bytes | bytearray, rules: AppendRules = PLAIN_RULES, origin: AppendOrigin = AppendOrigin.CLIENT
) -> KafkaError:
    """The error, after a look that the sent bytes are as they were."""
    buffer = bytearray(sent)
    with pytest.raises(KafkaError) as raised:
        validate(memoryview(buffer), rules, origin)
    assert buffer == sent
    return raised.value


def patched(batch: bytes | bytearray, layout: str, position: int, value: int, *, renew_crc: bool = True) -> bytearray:
    copy = bytearray(batch)
    struct.pack_into(layout, copy, position, value)
    if renew_crc:
        struct.pack_into(">I", copy, 17, crc32c(copy[21:]))
    return copy


def counting(batch: bytes, count: int) -> bytearray:
    """The batch with a records_count (and the offsets to it) that is not the number of its records."""
    return patched(patched(batch, ">i", 57, count), ">i", 23, count - 1)


def with_deltas(deltas: Sequence[int], codec: Compression) -> bytes:
    """A batch whose records have these offset deltas."""
    rows = [Record(delta, 10 + index, b"k", b"%d" % index, []) for index, delta in enumerate(deltas)]
    header = read_header(build_batch([RecordData(*row[1:4]) for row in rows], compression=codec))
    return assemble(header, compress(codec, encode_records(rows, 0, header.base_timestamp)))


class TestTakenAsTheyAre:
    @each_codec
    @pytest.mark.parametrize(
        "rules", [PLAIN_RULES, COMPACTED, WINDOW, AppendRules(level=5)], ids=["plain", "compacted", "window", "level"]
    )
    def test_only_offset_and_epoch_change(self, codec: Compression, rules: AppendRules) -> None:
        sent = build_batch(DATA, compression=codec, producer_id=9, producer_epoch=1, base_sequence=4)
        buffer = bytearray(sent)
        result, opened = accepted(memoryview(buffer), rules)
        assert isinstance(result.records, memoryview)
        assert result.records.obj is buffer  # patched in place, not copied
        assert result.records[:8] == struct.pack(">q", NEXT_OFFSET)
        assert result.records[12:16] == struct.pack(">i", LEADER_EPOCH)
        assert result.records[8:12] == sent[8:12]
        assert result.records[16:] == sent[16:]
        assert [record[2:] for record in opened] == CONTENT
        assert [record.timestamp for record in opened] == TIMES
        assert (result.log_append_time_ms, result.records_converted) == (-1, 0)

    @each_codec
    def test_batch_with_the_codec_of_the_topic_is_unchanged(self, codec: Compression) -> None:
        sent = build_batch(DATA, compression=codec)
        result, _ = accepted(sent, AppendRules(compression=codec))
        assert result.records[16:] == sent[16:]
        assert result.records_converted == 0

    @each_codec
    @pytest.mark.parametrize("rules", [APPEND_TIME, replace(APPEND_TIME, is_compacted=True)])
    def test_log_append_time_is_set_in_place(self, codec: Compression, rules: AppendRules) -> None:
        sent = build_batch(DATA, compression=codec)
        result, opened = accepted(sent, rules)
        assert result.header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert result.header.max_timestamp == result.log_append_time_ms == NOW_MS
        assert result.header.base_timestamp == TIMES[0]
        assert result.records[HEADER_SIZE:] == sent[HEADER_SIZE:]
        assert {record.timestamp for record in opened} == {NOW_MS}
        assert [record[2:] for record in opened] == CONTENT
        assert result.records_converted == 0

    def test_incomplete_second_batch_is_ignored(self) -> None:
        sent = build_batch(DATA)
        for size in range(len(sent)):
            result, _ = accepted(sent + sent[:size])
            assert len(result.records) == len(sent)

    @pytest.mark.parametrize("timestamp", [-1, 0, 2**62])
    def test_any_timestamp_is_accepted_without_a_window(self, timestamp: int) -> None:
        _, opened = accepted(build_batch([RecordData(timestamp, None, b"v")]))
        assert opened[0].timestamp == timestamp

    def test_transactional_batches_are_accepted(self) -> None:
        result, _ = accepted(
            build_batch(DATA, producer_id=3, producer_epoch=0, base_sequence=2**31 - 1, is_transactional=True)
        )
        assert result.header.is_transactional
        assert result.header.last_sequence == 1

    def test_coordinators_may_write_markers(self) -> None:
        sent = build_marker(TransactionMarker(ControlType.ABORT, 1), producer_id=3, producer_epoch=0, now_ms=NOW_MS)
        result, _ = accepted(sent, COMPACTED, AppendOrigin.COORDINATOR)
        assert result.header.is_control

    @each_codec
    def test_coordinator_batch_is_parsed_only_for_a_conversion(
        self, codec: Compression, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent = build_batch(DATA, compression=codec)
        result, opened = accepted(sent, AppendRules(is_compacted=True, compression=Compression.GZIP), COORDINATOR)
        assert result.header.compression is Compression.GZIP
        assert [(row.key, row.value, row.headers) for row in opened] == CONTENT
        monkeypatch.setattr(validation, "parse_records", lambda *_: pytest.fail("opened"))
        rules = AppendRules(is_compacted=True, timestamp_window=TimestampWindow(1, 1))
        untouched = validate(sent, rules, COORDINATOR)
        assert untouched is not None
        assert untouched.records[HEADER_SIZE:] == sent[HEADER_SIZE:]

    @pytest.mark.parametrize("count", [1, 64, 65, 300])
    @each_codec
    def test_batch_with_many_records_is_accepted(self, count: int, codec: Compression) -> None:
        random_ = random.Random(count)
        for _ in range(10):
            rows = [RecordData(5, b"k", random_.randbytes(random_.choice((0, 10, 60, 200)))) for _ in range(count)]
            accepted(build_batch(rows, compression=codec))

    @pytest.mark.parametrize(("origin", "frame"), SENT_BY_CLIENTS.values(), ids=SENT_BY_CLIENTS.keys())
    @pytest.mark.parametrize(
        "rules", [PLAIN_RULES, COMPACTED, APPEND_TIME, AppendRules(compression=Compression.SNAPPY)]
    )
    def test_recorded_requests_of_clients_are_accepted(
        self, origin: AppendOrigin, frame: str, rules: AppendRules
    ) -> None:
        _, opened = accepted(bytes.fromhex(frame), rules, origin)
        assert [record.key and record.key[1:] for record in opened] == [b"0", b"2"]


class TestConverted:
    @pytest.mark.parametrize("source", list(Compression))
    @pytest.mark.parametrize("target", list(Compression))
    def test_batch_is_recompressed_with_the_codec_of_the_topic(self, source: Compression, target: Compression) -> None:
        sent = build_batch(
            DATA,
            compression=source,
            producer_id=9,
            producer_epoch=1,
            base_sequence=4,
            is_transactional=True,
        )
        result, opened = accepted(sent, AppendRules(compression=target))
        assert result.header.compression is target
        assert [record[2:] for record in opened] == CONTENT
        assert [record.timestamp for record in opened] == TIMES
        assert result.header[9:] == read_header(sent)[9:]
        assert result.header.is_transactional
        assert result.records_converted == (0 if source is target else 3)

    @pytest.mark.parametrize("rules", [PLAIN_RULES, COMPACTED, AppendRules(compression=Compression.LZ4, level=12)])
    @pytest.mark.parametrize("form", ["linked blocks", "two frames"])
    def test_lz4_that_java_clients_cannot_open_is_compressed_again(self, form: str, rules: AppendRules) -> None:
        rows = [RecordData(NOW_MS + n, b"k", random.Random(n).randbytes(9000) * 2) for n in range(9)]
        plain = encode_records([Record(n, *row) for n, row in enumerate(rows)], 0, NOW_MS)
        options = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": form == "linked blocks"}
        parts = [plain] if form == "linked blocks" else [plain[:100], plain[100:]]
        content = b"".join(lz4.frame.compress(part, **options) for part in parts)
        header = read_header(
            build_batch(rows, compression=Compression.LZ4, producer_id=9, producer_epoch=1, base_sequence=4)
        )
        sent = assemble(header, content)
        assert len(sent) > COSTLY_COMPRESSED_SIZE
        assert is_too_costly(sent, rules)
        result, opened = accepted(sent, rules)
        assert opens_everywhere(bytes(result.records)[HEADER_SIZE:])
        assert result.header[6:] == header[6:]
        assert [record[1:4] for record in opened] == [row[:3] for row in rows]
        assert result.records_converted == len(rows)

    def test_compression_level_of_the_topic_is_used(self) -> None:
        rows = [RecordData(0, b"k", random.Random(n).randbytes(30).hex().encode()) for n in range(300)]
        sizes = [
            len(accepted(build_batch(rows), AppendRules(compression=Compression.GZIP, level=level))[0].records)
            for level in (1, 9)
        ]
        assert sizes[0] > sizes[1]

    def test_batch_is_recompressed_with_log_append_time(self) -> None:
        result, opened = accepted(build_batch(DATA), replace(APPEND_TIME, compression=Compression.LZ4))
        assert {record.timestamp for record in opened} == {NOW_MS}
        assert result.log_append_time_ms == NOW_MS

    @pytest.mark.parametrize("count", [1, 2, 7, 8, 40, 300])
    def test_one_record_without_a_key_is_found_wherever_it_is(self, count: int) -> None:
        rng = random.Random(count)
        for shape in ("one size", "any value", "headers"):
            headers = [("h", b"1")] if shape == "headers" else []
            rows = [
                RecordData(NOW_MS, b"key", bytes(60 if shape == "one size" else rng.randrange(100)), headers)
                for _ in range(count)
            ]
            assert validate(memoryview(bytearray(build_batch(rows))), COMPACTED) is not None
            for missing in {0, count // 2, count - 1}:
                keyless = [*rows]
                # A record of the same size: the key's bytes are in its value.
                keyless[missing] = rows[missing]._replace(key=None, value=(rows[missing].value or b"") + b"key")
                for codec in (Compression.NONE, Compression.LZ4):
                    error = refused(build_batch(keyless, compression=codec), COMPACTED)
                    assert [index for index, _ in error.record_errors] == [missing]

    @pytest.mark.parametrize("deltas", [(0, 0, 0), (5, 6, 7), (2, 1, 0), (0, 1, 7)])
    @each_codec
    def test_compacted_topic_rebuilds_a_batch_with_wrong_offset_deltas(
        self, codec: Compression, deltas: tuple[int, ...]
    ) -> None:
        result, opened = accepted(with_deltas(deltas, codec), COMPACTED)
        assert result.header.compression is codec
        assert [record.value for record in opened] == [b"0", b"1", b"2"]
        assert [record.timestamp for record in opened] == [10, 11, 12]
        assert result.records_converted == 3

    @each_codec
    def test_claim_of_log_append_time_is_reverted(self, codec: Compression) -> None:
        sent = bytearray(build_batch(DATA, compression=codec))
        set_timestamps(sent, 0, read_header(sent).attributes | LOG_APPEND_TIME_BIT, 123)
        result, opened = accepted(sent)
        assert result.header.timestamp_type is TimestampType.CREATE_TIME
        assert [record.timestamp for record in opened] == TIMES
        assert result.records_converted == 0

    def test_wrong_max_timestamp_is_corrected_when_records_are_parsed(self) -> None:
        sent = patched(build_batch(DATA), ">q", 35, 2**60)
        assert accepted(sent, PARSED)[0].header.max_timestamp == max(TIMES)


REFUSED: dict[str, tuple[bytes | bytearray, AppendRules, Sequence[AppendOrigin], ErrorCode, RejectionMeter | None]] = {
    "magic 3": (
        patched(build_batch(DATA), ">b", 16, 3),
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.INVALID_RECORD,
        RejectionMeter.INVALID_MAGIC_NUMBER,
    ),
    **{
        f"magic {magic} from a client that knows better": (
            build_message_set([Record(0, 5, b"k", b"v", [])], magic=magic),
            PLAIN_RULES,
            [AppendOrigin.CLIENT, AppendOrigin.CLIENT_BEFORE_ZSTD, AppendOrigin.COORDINATOR],
            ErrorCode.INVALID_RECORD,
            RejectionMeter.INVALID_MAGIC_NUMBER,
        )
        for magic in (0, 1)
    },
    **{
        f"nothing whole: {len(sent)} bytes": (
            sent,
            PLAIN_RULES,
            [AppendOrigin.CLIENT, AppendOrigin.CLIENT_BEFORE_ZSTD],
            ErrorCode.INVALID_RECORD,
            None,
        )
        for sent in (
            b"",
            build_batch(DATA)[:16],
            build_batch(DATA)[:17],
            build_batch(DATA)[:61],
            build_batch(DATA)[:-1],
        )
    },
    "a size below that of any message": (
        b"\xff" * 200,
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.CORRUPT_MESSAGE,
        RejectionMeter.INVALID_MESSAGE_CRC,
    ),
    "two batches": (build_batch(DATA) * 2, PLAIN_RULES, CLIENTS, ErrorCode.INVALID_RECORD, None),
    "a batch and garbage": (
        build_batch(DATA) + bytes(30),
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.CORRUPT_MESSAGE,
        RejectionMeter.INVALID_MESSAGE_CRC,
    ),
    **{
        f"batch_length {length}": (
            patched(build_batch(DATA), ">i", 8, length),
            PLAIN_RULES,
            CLIENTS,
            ErrorCode.CORRUPT_MESSAGE,
            RejectionMeter.INVALID_MESSAGE_CRC,
        )
        for length in (-(2**31), -1, 0, 48)
    },
    "wrong crc": (
        patched(build_batch(DATA), ">I", 17, 12345, renew_crc=False),
        PLAIN_RULES,
        [*CLIENTS, AppendOrigin.COORDINATOR],
        ErrorCode.CORRUPT_MESSAGE,
        RejectionMeter.INVALID_MESSAGE_CRC,
    ),
    "nonsense at the end": (
        build_batch(DATA)[:-20] + b"\xaa" * 20,
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.CORRUPT_MESSAGE,
        RejectionMeter.INVALID_MESSAGE_CRC,
    ),
    "base offset": (
        build_batch(DATA, base_offset=1),
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.INVALID_RECORD,
        RejectionMeter.INVALID_OFFSET_OR_SEQUENCE,
    ),
    **{
        f"{count} records for {delta + 1} offsets": (
            patched(patched(build_batch(DATA), ">i", 57, count), ">i", 23, delta),
            PLAIN_RULES,
            [*CLIENTS, AppendOrigin.COORDINATOR],
            ErrorCode.INVALID_RECORD,
            RejectionMeter.INVALID_OFFSET_OR_SEQUENCE,
        )
        for count, delta in [(3, 1), (3, 3), (0, -1), (-1, -2), (3, -4), (2**31 - 1, -(2**31)), (1, 2)]
    },
    **{
        f"{codec.name} batch that counts {count} of 3 records, {name}": (
            counting(build_batch(DATA, compression=codec), count),
            rules,
            CLIENTS[:1],
            ErrorCode.INVALID_RECORD,
            None,
        )
        for codec in Compression
        for count in (1, 2, 4, 20, 2**31 - 1)
        for name, rules in [("not opened", PLAIN_RULES), ("opened", COMPACTED)]
    },
    **{
        f"codec {codec}": (
            patched(build_batch(DATA), ">h", 21, codec),
            rules,
            CLIENTS,
            ErrorCode.INVALID_RECORD,
            None,
        )
        for codec in (5, 6, 7)
        for rules in (PLAIN_RULES, AppendRules(compression=Compression.GZIP))
    },
    "zstd before Produce 7": (
        build_batch(DATA, compression=Compression.ZSTD),
        PLAIN_RULES,
        [AppendOrigin.CLIENT_BEFORE_ZSTD, AppendOrigin.OLD_CLIENT],
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        None,
    ),
    **{
        f"bytes that are not {codec.name}": (
            assemble(read_header(build_batch(DATA, compression=codec)), b"\x99" * 40),
            PLAIN_RULES,
            CLIENTS[:1],
            ErrorCode.CORRUPT_MESSAGE,
            RejectionMeter.INVALID_MESSAGE_CRC,
        )
        for codec in list(Compression)[1:]
    },
    "control batch": (
        build_batch(DATA[:1], is_control=True),
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.INVALID_RECORD,
        None,
    ),
    "producer without a sequence": (
        build_batch(DATA, producer_id=1, producer_epoch=0),
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.INVALID_RECORD,
        RejectionMeter.INVALID_OFFSET_OR_SEQUENCE,
    ),
    "larger than max.message.bytes": (
        build_batch(DATA),
        AppendRules(max_message_bytes=len(build_batch(DATA)) - 1),
        CLIENTS,
        ErrorCode.MESSAGE_TOO_LARGE,
        None,
    ),
    "larger than max.message.bytes after conversion": (
        build_batch([RecordData(0, None, bytes(5000))], compression=Compression.GZIP),
        AppendRules(max_message_bytes=4000, compression=Compression.NONE),
        CLIENTS,
        ErrorCode.MESSAGE_TOO_LARGE,
        None,
    ),
    "larger than segment.bytes": (
        build_batch(DATA),
        AppendRules(segment_bytes=len(build_batch(DATA)) - 1),
        CLIENTS,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        None,
    ),
    "larger than segment.bytes after conversion": (
        build_batch([RecordData(0, None, bytes(5000))], compression=Compression.GZIP),
        AppendRules(segment_bytes=4000, compression=Compression.NONE),
        CLIENTS,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        None,
    ),
    "no key": (
        build_batch([*DATA, RecordData(0, None, b"v")]),
        COMPACTED,
        CLIENTS,
        ErrorCode.INVALID_RECORD,
        RejectionMeter.NO_KEY_COMPACTED_TOPIC,
    ),
    "a claim of append time where the topic stamps": (
        build_batch(DATA, timestamp_type=TimestampType.LOG_APPEND_TIME),
        APPEND_TIME,
        CLIENTS,
        ErrorCode.INVALID_TIMESTAMP,
        None,
    ),
    "a claim of append time without a time": (
        build_batch([RecordData(-1, b"k", b"v")], timestamp_type=TimestampType.LOG_APPEND_TIME),
        PLAIN_RULES,
        CLIENTS,
        ErrorCode.INVALID_TIMESTAMP,
        None,
    ),
}


@pytest.mark.parametrize(("sent", "rules", "origins", "code", "meter"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_records_are_rejected_with_the_code_and_meter_of_kafka(
    sent: bytes,
    rules: AppendRules,
    origins: Sequence[AppendOrigin],
    code: ErrorCode,
    meter: RejectionMeter | None,
) -> None:
    for origin in origins:
        error = refused(sent, rules, origin)
        assert error.code is code, f"{origin}: {error}"
        assert getattr(error, "meter", None) is meter


def test_valid_variants_of_the_rejected_records_are_accepted() -> None:
    """So that no row is refused for another reason than the one it names."""
    for rules in PLAIN_RULES, COMPACTED, APPEND_TIME, AppendRules(compression=Compression.GZIP):
        for origin in CLIENTS:
            accepted(build_batch(DATA), rules, origin)
    size = len(build_batch(DATA))
    accepted(build_batch(DATA), AppendRules(max_message_bytes=size, segment_bytes=size))


class TestNamedRecords:
    """Produce 8 and later reports the invalid records."""

    @each_codec
    def test_compacted_topic_rejects_records_without_a_key(self, codec: Compression) -> None:
        rows = [RecordData(5, key, b"v") for key in (b"a", None, b"", None)]
        error = refused(build_batch(rows, compression=codec), COMPACTED)
        assert isinstance(error, RecordsRejected)
        assert [index for index, _ in error.record_errors] == [1, 3]
        assert {text for _, text in error.record_errors} == {"Compacted topic cannot accept message without key."}

    @each_codec
    def test_timestamps_outside_the_window_are_rejected(self, codec: Compression) -> None:
        times = [NOW_MS, NOW_MS - 1_000_000, NOW_MS - 1_000_001, NOW_MS + 2_000, NOW_MS + 2_001, -1]
        error = refused(build_batch([RecordData(t, None, b"v") for t in times], compression=codec), WINDOW)
        assert isinstance(error, RecordsRejected)
        assert error.code is ErrorCode.INVALID_TIMESTAMP
        allowed = f"The timestamp should be within [{NOW_MS - 1_000_000}, {NOW_MS + 2_000}]"
        assert error.record_errors == [
            (n, f"Timestamp {times[n]} of message with offset {n} is out of range. {allowed}") for n in (2, 4)
        ]
        accepted(build_batch([RecordData(t, None, b"v") for t in times if abs(t - NOW_MS) <= 2000 or t == -1]), WINDOW)

    def test_invalid_timestamp_takes_precedence_over_a_missing_key(self) -> None:
        rules = replace(WINDOW, is_compacted=True)
        rows = [RecordData(NOW_MS, None, b"v"), RecordData(0, b"k", b"v"), RecordData(0, None, b"v")]
        error = refused(build_batch(rows), rules)
        assert isinstance(error, RecordsRejected)
        assert error.code is ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in error.record_errors] == [0, 1, 2]

    def test_log_append_time_has_no_window(self) -> None:
        rules = AppendRules.of(log_config(message_timestamp_type="LogAppendTime", timestamp_before_max_ms=1))
        accepted(build_batch(DATA), rules)

    def test_number_of_reported_record_errors_is_limited(self) -> None:
        error = refused(build_batch([RecordData(5, None, b"v")] * 1500), COMPACTED)
        assert isinstance(error, RecordsRejected)
        assert len(error.record_errors) == validation.RECORD_ERRORS_MAX

    def test_claim_of_log_append_time_reports_all_records(self) -> None:
        error = refused(build_batch(DATA, timestamp_type=TimestampType.LOG_APPEND_TIME), APPEND_TIME)
        assert isinstance(error, RecordsRejected)
        assert [index for index, _ in error.record_errors] == [0, 1, 2]


class TestWhatWouldStopAReader:
    """It is detected in a batch of any size, on a topic whose records are not parsed otherwise."""

    @each_codec
    @pytest.mark.parametrize("count", [1, 2, 64, 65, 300, 9000])
    def test_wrong_records_count_is_rejected(self, codec: Compression, count: int) -> None:
        rows = [RecordData(5, b"k", random.Random(n // 7).randbytes(n % 3)) for n in range(count)]
        sent = build_batch(rows, compression=codec)
        for wrong in {count - 1, count + 1, 100 * count} - {0}:
            assert refused(counting(sent, wrong)).code is ErrorCode.INVALID_RECORD

    @each_codec
    @pytest.mark.parametrize("deltas", [(0, 0, 0), (5, 6, 7), (2, 1, 0), (0, 1, 7), (*range(200), 199, 201)])
    def test_batch_with_wrong_offset_deltas_is_rebuilt(self, codec: Compression, deltas: tuple[int, ...]) -> None:
        result, opened = accepted(with_deltas(deltas, codec))
        assert result.header.compression is codec
        assert [record.value for record in opened] == [b"%d" % number for number in range(len(deltas))]
        assert [record.timestamp for record in opened] == [10 + number for number in range(len(deltas))]
        assert result.records_converted == len(deltas)

    @each_codec
    @pytest.mark.parametrize("bad", [0, 1, 70, 199])
    @pytest.mark.parametrize(
        "record",
        [
            pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", id="negative count of headers"),
            pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", id="header without a key"),
            pytest.param(b"\x0c\x00\x00\x00\x7e\x01\x00", id="key past the end"),
            pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", id="a byte after the last field"),
            pytest.param(b"\x0a\x00\x00\x00\x01\x01", id="too short"),
            pytest.param(b"\x01", id="negative length"),
        ],
    )
    def test_unreadable_record_is_reported_by_index(self, record: bytes, bad: int, codec: Compression) -> None:
        good = [Record(n, 5, b"k", b"v", []) for n in range(200)]
        section = encode_records(good[:bad], 0, 5) + record + encode_records(good[bad + 1 :], 0, 5)
        header = read_header(build_batch([RecordData(5, None, None)] * 200, compression=codec))
        batch = assemble(header, compress(codec, section))
        for rules in PLAIN_RULES, COMPACTED, APPEND_TIME:
            error = refused(batch, rules)
            assert isinstance(error, RecordsRejected)
            assert error.code is ErrorCode.INVALID_RECORD
            assert [index for index, _ in error.record_errors] == [bad]

    def test_record_beyond_the_count_is_not_reported(self) -> None:
        error = refused(counting(build_batch(DATA), 2))
        assert isinstance(error, RecordsRejected)
        assert error.record_errors == []

    @pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63)])
    def test_timestamp_that_is_no_int64_is_rejected(self, timestamp: int) -> None:
        header = read_header(build_batch([RecordData(timestamp, None, None)] * 2))
        step = 1 if timestamp > 0 else -1
        rows = [Record(0, timestamp, None, None, []), Record(1, timestamp + step, None, None, [])]
        error = refused(assemble(header, encode_records(rows, 0, timestamp)))
        assert isinstance(error, RecordsRejected)
        assert [index for index, _ in error.record_errors] == [1]


class TestDamagedRecords:
    @each_codec
    def test_mutated_batches_are_rejected_or_readable(self, codec: Compression) -> None:
        sent = build_batch(DATA, compression=codec, producer_id=3, producer_epoch=1, base_sequence=0)
        random_ = random.Random(codec)
        every_rule = [PLAIN_RULES, COMPACTED, APPEND_TIME, WINDOW, AppendRules(compression=Compression.LZ4)]
        for round_ in range(2000):
            mutated = bytearray(sent)
            for _ in range(random_.randint(1, 3)):
                byte = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
                mutated[random_.randrange(len(mutated))] = byte
            if round_ % 3:
                struct.pack_into(">I", mutated, 17, crc32c(mutated[21:]))
            rules = random_.choice(every_rule)
            result = None
            with contextlib.suppress(KafkaError):
                result = validate(mutated, rules, random_.choice(CLIENTS))
            if result is not None:
                header = read_header(result.records)
                assert header == at_its_place(result.header)
                assert crc_is_valid(result.records, 0, header)
                assert header.last_offset == NEXT_OFFSET + header.records_count - 1
                opened = list(records(bytes(result.records), size_max=SIZE_MAX))
                assert [record.offset for record in opened] == list(range(NEXT_OFFSET, header.next_offset))


OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def message_set(magic: int, codec: Compression = Compression.NONE, **options: Any) -> bytes:
    rows = [Record(index, *row[:3], []) for index, row in enumerate(DATA)]
    return build_message_set(rows, magic=magic, compression=codec, **options)


class TestOldFormats:
    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", OLD_CODECS)
    @pytest.mark.parametrize("target", [None, *Compression])
    def test_messages_of_old_formats_become_one_batch(
        self, magic: int, codec: Compression, target: Compression | None
    ) -> None:
        rules = AppendRules(compression=target)
        result, opened = accepted(message_set(magic, codec), rules, AppendOrigin.OLD_CLIENT)
        assert [record[2:4] for record in opened] == [(row.key, row.value) for row in DATA]
        assert [record.timestamp for record in opened] == (TIMES if magic else [-1, -1, -1])
        assert result.header.compression is (codec if target is None else target)
        assert result.header.timestamp_type is TimestampType.CREATE_TIME
        assert result.header[9:12] == (-1, -1, -1)
        assert (result.log_append_time_ms, result.records_converted) == (-1, 3)

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", OLD_CODECS)
    def test_messages_of_old_formats_get_log_append_time(self, magic: int, codec: Compression) -> None:
        result, opened = accepted(message_set(magic, codec), APPEND_TIME, AppendOrigin.OLD_CLIENT)
        assert {record.timestamp for record in opened} == {NOW_MS}
        assert result.header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert result.log_append_time_ms == NOW_MS

    @pytest.mark.parametrize("magic", [0, 1])
    def test_incomplete_last_message_is_ignored(self, magic: int) -> None:
        _, opened = accepted(message_set(magic)[:-1], PLAIN_RULES, AppendOrigin.OLD_CLIENT)
        assert len(opened) == 2

    @pytest.mark.parametrize("size", [0, 5, 16, 17, 26])
    def test_set_without_a_complete_message_appends_nothing(self, size: int) -> None:
        for sent in message_set(0), message_set(1), build_batch(DATA):
            assert validate(sent[:size], origin=AppendOrigin.OLD_CLIENT) is None

    def test_old_client_may_send_magic_2(self) -> None:
        sent = build_batch(DATA, compression=Compression.GZIP)
        assert accepted(sent, origin=AppendOrigin.OLD_CLIENT)[0].records_converted == 0

    @pytest.mark.parametrize(
        ("make", "rules", "code"),
        [
            pytest.param(lambda m: message_set(m)[:-1] + b"?", PLAIN_RULES, ErrorCode.CORRUPT_MESSAGE, id="crc"),
            pytest.param(
                lambda m: patched(message_set(m), ">i", 8, 5, renew_crc=False),
                PLAIN_RULES,
                ErrorCode.CORRUPT_MESSAGE,
                id="size below the minimum",
            ),
            pytest.param(
                lambda m: message_set(m) + message_set(1 - m), PLAIN_RULES, ErrorCode.INVALID_RECORD, id="two magics"
            ),
            pytest.param(
                lambda m: message_set(m) + build_batch(DATA), PLAIN_RULES, ErrorCode.CORRUPT_MESSAGE, id="then magic 2"
            ),
            pytest.param(
                lambda m: message_set(m, Compression.GZIP) * 2, PLAIN_RULES, ErrorCode.INVALID_RECORD, id="two wrappers"
            ),
            pytest.param(
                message_set,
                AppendRules(max_message_bytes=40),
                ErrorCode.MESSAGE_TOO_LARGE,
                id="a message larger than max.message.bytes",
            ),
            pytest.param(
                message_set,
                AppendRules(max_message_bytes=80),
                ErrorCode.MESSAGE_TOO_LARGE,
                id="the batch larger than max.message.bytes",
            ),
            pytest.param(
                lambda m: build_message_set([Record(0, 5, None, b"v", [])], magic=m),
                COMPACTED,
                ErrorCode.INVALID_RECORD,
                id="no key",
            ),
        ],
    )
    @pytest.mark.parametrize("magic", [0, 1])
    def test_invalid_message_sets_are_rejected_with_the_code_of_kafka(
        self, magic: int, make: Callable[[int], bytes], rules: AppendRules, code: ErrorCode
    ) -> None:
        assert refused(make(magic), rules, AppendOrigin.OLD_CLIENT).code is code

    @pytest.mark.parametrize(
        ("codec", "code"),
        [(4, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (5, ErrorCode.INVALID_RECORD), (7, ErrorCode.INVALID_RECORD)],
    )
    def test_codecs_unknown_to_old_formats_are_rejected(self, codec: int, code: ErrorCode) -> None:
        message = bytearray(build_message_set([Record(0, 5, None, b"v", [])], magic=1))
        message[17] = codec
        struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
        assert refused(message, origin=AppendOrigin.OLD_CLIENT).code is code

    def test_invalid_messages_are_reported_by_index(self) -> None:
        rows = [Record(n, t, None, b"v", []) for n, t in enumerate((NOW_MS, 0, -1))]
        for codec in OLD_CODECS:
            sent = build_message_set(rows, magic=1, compression=codec)
            error = refused(sent, WINDOW, AppendOrigin.OLD_CLIENT)
            assert isinstance(error, RecordsRejected)
            assert [index for index, _ in error.record_errors] == [1]
        accepted(build_message_set(rows, magic=0), WINDOW, AppendOrigin.OLD_CLIENT)

    @pytest.mark.usefixtures("form")
    def test_messages_whose_timestamps_do_not_fit_one_batch_are_rejected(self) -> None:
        rows = [Record(n, t, None, b"v", []) for n, t in enumerate((-(1 << 63), (1 << 63) - 1))]
        sent = build_message_set(rows, magic=1)
        error = refused(sent, origin=AppendOrigin.OLD_CLIENT)
        assert error.code is ErrorCode.INVALID_RECORD
        assert "timestamp 9223372036854775807 is too far from -9223372036854775808" in error.message
        accepted(sent, APPEND_TIME, AppendOrigin.OLD_CLIENT)

    @pytest.mark.parametrize("codec", OLD_CODECS)
    def test_claim_of_log_append_time_in_an_old_format_is_rejected(self, codec: Compression) -> None:
        def claiming(timestamp: int) -> bytes:
            return build_message_set(
                [Record(0, timestamp, b"k", b"v", [])],
                magic=1,
                compression=codec,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
            )

        result, opened = accepted(claiming(99), origin=AppendOrigin.OLD_CLIENT)
        assert result.header.timestamp_type is TimestampType.CREATE_TIME
        assert opened[0].timestamp == 99
        for sent, rules in (claiming(99), APPEND_TIME), (claiming(-1), PLAIN_RULES):
            assert refused(sent, rules, AppendOrigin.OLD_CLIENT).code is ErrorCode.INVALID_TIMESTAMP


def log_config(**values: Any) -> LogConfig:
    return replace(LogConfig.from_overrides(BrokerConfig.from_properties({}, {}), {}), **values)


class TestRules:
    def test_default_configuration_uses_the_plain_path(self) -> None:
        assert AppendRules.of(log_config()) == AppendRules()

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"cleanup_policy": frozenset({"compact"})}, {"is_compacted": True}),
            ({"cleanup_policy": frozenset({"compact", "delete"})}, {"is_compacted": True}),
            ({"compression_type": "uncompressed"}, {"compression": Compression.NONE}),
            ({"compression_type": "snappy"}, {"compression": Compression.SNAPPY}),
            ({"compression_type": "gzip"}, {"compression": Compression.GZIP, "level": -1}),
            ({"compression_type": "lz4"}, {"compression": Compression.LZ4, "level": 9}),
            (
                {"compression_type": "zstd", "compression_zstd_level": 7},
                {"compression": Compression.ZSTD, "level": 7},
            ),
            ({"message_timestamp_type": "LogAppendTime"}, {"is_log_append_time": True}),
            ({"timestamp_before_max_ms": 5}, {"timestamp_window": TimestampWindow(5, 2**63 - 1)}),
            ({"timestamp_after_max_ms": 5}, {"timestamp_window": TimestampWindow(2**63 - 1, 5)}),
            ({"max_message_bytes": 10, "segment_bytes": 20}, {"max_message_bytes": 10, "segment_bytes": 20}),
        ],
    )
    def test_rules_follow_from_the_configuration_of_a_topic(
        self, values: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        assert AppendRules.of(log_config(**values)) == AppendRules(**expected)

    @pytest.mark.parametrize(
        ("version", "origin"),
        [
            (0, AppendOrigin.OLD_CLIENT),
            (2, AppendOrigin.OLD_CLIENT),
            (3, AppendOrigin.CLIENT_BEFORE_ZSTD),
            (6, AppendOrigin.CLIENT_BEFORE_ZSTD),
            (7, AppendOrigin.CLIENT),
            (11, AppendOrigin.CLIENT),
        ],
    )
    def test_origin_follows_from_the_produce_version(self, version: int, origin: AppendOrigin) -> None:
        assert AppendOrigin.of_produce_version(version) is origin


@pytest.mark.parametrize(
    ("kilobytes", "compression", "rules", "expected"),
    [
        (32, Compression.NONE, PARSED, False),
        (64, Compression.NONE, PARSED, True),
        (64, Compression.NONE, PLAIN_RULES, False),
        (64, Compression.NONE, COMPACTED, False),
        (900, Compression.NONE, PLAIN_RULES, False),
        (32, Compression.GZIP, PLAIN_RULES, False),
        (256, Compression.GZIP, PLAIN_RULES, True),
        (60, Compression.LZ4, PLAIN_RULES, False),
        (60, Compression.ZSTD, APPEND_TIME, False),
        (900, Compression.SNAPPY, PLAIN_RULES, True),
    ],
)
def test_large_batches_whose_codec_or_timestamps_take_long_are_too_costly(
    kilobytes: int, compression: Compression, rules: AppendRules, expected: bool
) -> None:
    noise = random.Random(kilobytes).randbytes(kilobytes << 10)
    batch = build_batch([RecordData(NOW_MS, b"k", noise)], compression=compression)
    assert is_too_costly(batch, rules) is expected


def batch_of_size(size: int, compression: Compression) -> bytes:
    """A batch of one record that has exactly `size` bytes."""
    noise = random.Random(size).randbytes(size)
    for value_size in range(size - HEADER_SIZE - 100, size):
        batch = build_batch([RecordData(NOW_MS, b"k", noise[:value_size])], compression=compression)
        if len(batch) == size:
            return batch
    raise AssertionError(f"no batch of {size} bytes")


@pytest.mark.parametrize(
    ("rules", "compression", "limit"),
    [
        (PARSED, Compression.NONE, CONVERTED_SIZE_MAX),
        (AppendRules(compression=Compression.GZIP), Compression.NONE, CONVERTED_SIZE_MAX),
        (AppendRules(compression=Compression.ZSTD, level=9), Compression.NONE, CONVERTED_SIZE_MAX),
        (AppendRules(compression=Compression.ZSTD, level=10), Compression.NONE, SLOWLY_CONVERTED_SIZE_MAX),
        (PLAIN_RULES, Compression.GZIP, COSTLY_COMPRESSED_SIZE),
        (PLAIN_RULES, Compression.LZ4, COSTLY_COMPRESSED_SIZE),
    ],
    ids=["window", "another codec", "level 9", "level 10", "gzip", "lz4"],
)
def test_batches_are_too_costly_from_their_size_limit_on(
    rules: AppendRules, compression: Compression, limit: int
) -> None:
    assert not is_too_costly(batch_of_size(limit - 1, compression), rules)
    assert is_too_costly(batch_of_size(limit, compression), rules)


def test_large_message_set_of_an_old_format_is_too_costly() -> None:
    for magic in (0, 1):
        around = len(build_message_set([Record(0, NOW_MS, b"k", b"", [])], magic=magic))
        for size, expected in ((COSTLY_SIZE - 1, False), (COSTLY_SIZE, True)):
            sent = build_message_set([Record(0, NOW_MS, b"k", bytes(size - around), [])], magic=magic)
            assert len(sent) == size
            assert is_too_costly(sent, origin=AppendOrigin.OLD_CLIENT) is expected


@each_codec
@pytest.mark.parametrize(
    "rules",
    [PARSED, replace(PARSED, is_compacted=True), *(AppendRules(compression=target) for target in Compression)],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 3, 200])
def test_regular_records_are_not_parsed_for_their_timestamps(
    codec: Compression, rules: AppendRules, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greatest timestamp is found, in whatever record it is, and a client's claim of LogAppendTime is reverted."""
    rows = [RecordData(NOW_MS + (n * 7919) % (count * 50), b"k" * (n % 5), b"v" * (n % 90)) for n in range(count)]
    latest = max(row.timestamp for row in rows)
    claims = TimestampType.LOG_APPEND_TIME if codec is Compression.LZ4 else TimestampType.CREATE_TIME
    sent = bytearray(build_batch(rows, compression=codec, timestamp_type=claims))
    set_timestamps(sent, 0, read_header(sent).attributes, latest + 5)

    monkeypatch.setattr(validation, "parse_records", None)
    is_unread = rules.compression == codec and claims is TimestampType.CREATE_TIME
    validated = validate(sent, rules)
    assert validated is not None
    assert validated.header.max_timestamp == (latest + 5 if is_unread else latest)
    assert validated.header.timestamp_type is TimestampType.CREATE_TIME
    stored = list(records(validated.records, size_max=SIZE_MAX))
    assert [(row.timestamp, row.key, row.value) for row in stored] == [row[:3] for row in rows]


RULES_FOR_MANY = {"as sent": PLAIN_RULES, "append time": APPEND_TIME, "coordinator": COMPACTED}


@pytest.mark.parametrize(("count", "expected"), [(4095, False), (4096, True)])
@pytest.mark.parametrize("name", RULES_FOR_MANY)
def test_batch_with_very_many_records_is_too_costly(count: int, expected: bool, name: str) -> None:
    """On the path of plain batches and on the other, whether they come from a client or a coordinator."""
    assert count - COSTLY_RECORDS_COUNT == expected - 1
    origin = COORDINATOR if name == "coordinator" else AppendOrigin.CLIENT
    batch = build_batch([RecordData(NOW_MS, b"k", b"v")] * count)
    assert is_too_costly(batch, RULES_FOR_MANY[name], origin) is expected


@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_bytes_that_are_no_batch_are_rejected_whether_it_may_take_long_or_not(origin: AppendOrigin) -> None:
    sizes = [*range(HEADER_SIZE + 20), COSTLY_SIZE - 1, COSTLY_SIZE, 100_000]
    for rules in (PLAIN_RULES, COMPACTED):
        for junk in (byte * size for byte in (b"\0", b"\1", b"\xff") for size in sizes):
            is_old_set = origin is AppendOrigin.OLD_CLIENT and len(junk) > 16 and junk[16] in (0, 1)
            if is_old_set and len(junk) >= COSTLY_SIZE:
                assert is_too_costly(junk, rules, origin), "each of its messages would have to be read"
                continue
            outcomes: list[object] = []
            for may_take_long in (True, False):
                buffer = bytearray(junk)
                try:
                    outcomes.append(validate(memoryview(buffer), rules, origin, may_take_long=may_take_long))
                except KafkaError as error:
                    outcomes.append((error.code, error.message))
                assert buffer == junk
            assert outcomes[0] == outcomes[1]
            assert isinstance(outcomes[0], tuple) or origin is AppendOrigin.OLD_CLIENT


def test_prepared_records_equal_those_validated_at_their_offset() -> None:
    records = [RecordData(NOW_MS + n, b"k%d" % n, bytes(50)) for n in range(500)]
    for rules in (AppendRules(), AppendRules(compression=Compression.ZSTD), AppendRules(is_log_append_time=True)):
        at_once = validate_and_assign_offsets(
            memoryview(bytearray(build_batch(records))),
            rules,
            next_offset=77,
            leader_epoch=3,
            now_ms=NOW_MS,
            origin=AppendOrigin.CLIENT,
        )
        prepared = prepare(
            memoryview(bytearray(build_batch(records))), rules, now_ms=NOW_MS, origin=AppendOrigin.CLIENT
        ).at(77, 3)
        assert at_once is not None
        assert prepared is not None
        assert bytes(prepared.records) == bytes(at_once.records)
        for each in (prepared, at_once):
            assert at_its_place(each.header) == at_its_place(read_header(each.records))
        assert prepared[2:] == at_once[2:]


RULES_OF_BOTH_PATHS = {
    "open": PLAIN_RULES,
    "no compression": AppendRules(compression=Compression.NONE),
    "small": AppendRules(max_message_bytes=150),
    "small segments": AppendRules(segment_bytes=150),
    "compacted": COMPACTED,
    "window": WINDOW,
    "append time": APPEND_TIME,
    "gzip": AppendRules(compression=Compression.GZIP),
}


def is_plain(sent: bytes, rules: AppendRules, origin: AppendOrigin) -> bool:
    """Return whether the plain path accepts `sent`; then the careful path must return the same."""
    view = memoryview(bytearray(sent))
    plain = validation._plain_header(view, rules, origin, may_take_long=True)
    assert view == sent, "the plain path changes nothing before it accepts"
    assert validation._plain_header(view, rules, origin, may_take_long=False) == plain
    if plain is None:
        return False
    careful = validation._validate_fully(
        memoryview(bytearray(sent)), rules, NEXT_OFFSET, LEADER_EPOCH, NOW_MS, origin, True
    )
    assert careful is not None
    assert plain == read_header(sent)
    assert at_its_place(plain) == at_its_place(careful.header) == read_header(careful.records)
    assert (careful.log_append_time_ms, careful.records_converted) == (NO_TIMESTAMP, 0)
    assert len(careful.records) == len(sent)
    for may_take_long in (True, False):
        buffer = bytearray(sent)
        validated = validate(memoryview(buffer), rules, origin, may_take_long=may_take_long)
        assert validated is not None
        assert isinstance(validated.records, memoryview)
        assert validated.records.obj is buffer
        assert validated.records == careful.records
        assert validated.header == plain
        assert validated[2:] == careful[2:]
    return True


@pytest.mark.parametrize("rules", RULES_OF_BOTH_PATHS.values(), ids=RULES_OF_BOTH_PATHS)
def test_plain_path_accepts_only_batches_that_the_full_path_leaves_unchanged(rules: AppendRules) -> None:
    """Every byte of the header and of the first record changed in turn, with and without a checksum that fits."""
    changes = (0x00, 0x01, 0x02, 0x10, 0x20, 0x30, 0x7F, 0x80, 0xFF)
    batches = [
        [RecordData(NOW_MS, None, bytes(40))],
        [RecordData(NOW_MS, b"k", b"v", [("h", b"1")]), RecordData(NOW_MS + 5, None, None)],
        [RecordData(NOW_MS, b"k", bytes(90))],
        [RecordData(NOW_MS, b"k", bytes(40)), RecordData(NOW_MS, b"", bytes(50))],
    ]
    for rows in batches:
        batch = build_batch(rows, producer_id=9, producer_epoch=1, base_sequence=4)
        has_keys = all(row.key is not None for row in rows) or not rules.is_compacted
        assert is_plain(batch, rules, AppendOrigin.CLIENT) == (len(batch) <= rules.plain_size_max and has_keys)
        for at in range(min(len(batch), HEADER_SIZE + 12)):
            for change in changes:
                mutated = bytearray(batch)
                mutated[at] = change
                fitting = bytearray(mutated)
                fitting[17:21] = crc32c(fitting[21:]).to_bytes(4, "big")
                for sent in (bytes(mutated), bytes(fitting), bytes(mutated[:-1]), bytes(fitting) + b"\0"):
                    for origin in AppendOrigin:
                        is_plain(sent, rules, origin)


@pytest.mark.parametrize("count", [-5, -1, 0, 2, 2**31 - 1])
@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_plain_path_does_not_accept_a_wrong_records_count(count: int, origin: AppendOrigin) -> None:
    batch = bytearray(build_batch([RecordData(NOW_MS, b"k", bytes(40))]))
    batch[23:27] = (count - 1).to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    trusted = origin is COORDINATOR and count > 0
    assert (validation._plain_header(memoryview(batch), PLAIN_RULES, origin, True) is not None) == trusted
    if not trusted:
        with pytest.raises(RecordsRejected):
            validate(batch, PLAIN_RULES, origin)
    if count < COSTLY_RECORDS_COUNT:
        assert (validation._plain_header(memoryview(batch), PLAIN_RULES, origin, False) is not None) == trusted
    else:
        assert is_too_costly(batch, PLAIN_RULES, origin)


@pytest.mark.parametrize("rules", [WINDOW, APPEND_TIME, AppendRules(compression=Compression.GZIP)])
def test_plain_path_accepts_nothing_if_every_batch_is_changed_or_parsed(rules: AppendRules) -> None:
    batch = build_batch([RecordData(NOW_MS, b"k", bytes(40))])
    assert is_plain(batch, PLAIN_RULES, AppendOrigin.CLIENT)
    assert not is_plain(batch, rules, AppendOrigin.CLIENT)


CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def compressed(value: bytes, codec: Compression, *, count: int = 1) -> memoryview:
    return memoryview(bytearray(build_batch([RecordData(NOW_MS, b"k", value)] * count, compression=codec)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("rules", "size_max"),
    [
        (PLAIN_RULES, OPENED_SIZE_MAX),
        (APPEND_TIME, OPENED_SIZE_MAX),
        (COMPACTED, OPENED_SIZE_MAX),
        (PARSED, CONVERTED_SIZE_MAX),
        (AppendRules(compression=Compression.NONE), CONVERTED_SIZE_MAX),
    ],
    ids=["any", "append time", "compacted", "window", "another codec"],
)
def test_compressed_records_are_too_costly_above_a_decompressed_size(
    codec: Compression, rules: AppendRules, size_max: int
) -> None:
    if codec is Compression.GZIP:
        size_max = min(size_max, GZIP_OPENED_SIZE_MAX)
    around = 20  # bytes of the record that are not its value
    fitting = compressed(bytes(size_max - around), codec)
    prepared = prepare(memoryview(bytearray(fitting)), rules, now_ms=NOW_MS, origin=AppendOrigin.CLIENT)
    bounded = validate(fitting, rules, may_take_long=False)
    assert isinstance(prepared, PreparedAppend)
    assert bounded is not None
    placed = prepared.at(NEXT_OFFSET, LEADER_EPOCH)
    assert placed is not None
    assert bytes(bounded.records) == bytes(placed.records)
    assert at_its_place(bounded.header) == at_its_place(placed.header)
    assert bounded[2:] == placed[2:]
    assert is_too_costly(compressed(bytes(size_max + 1), codec), rules)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize("rules", [PLAIN_RULES, COMPACTED], ids=["any", "compacted"])
def test_little_of_a_decompression_bomb_is_read_before_it_is_too_costly(codec: Compression, rules: AppendRules) -> None:
    batch = compressed(bytes(50 << 20), codec)
    before = bytes(batch)
    assert len(batch) < 64 << 10
    tracemalloc.start()
    try:
        with pytest.raises(TooCostlyError):
            validate(batch, rules, may_take_long=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 << 20
    assert batch == before


def test_small_compressed_batch_with_many_records_is_too_costly() -> None:
    for count, expected in ((4095, False), (4096, True)):
        batch = compressed(b"v", Compression.ZSTD, count=count)
        assert len(batch) < 64 << 10
        assert is_too_costly(batch) is expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("size", "expected"), [(CONVERTED_SIZE_MAX - 100, False), (CONVERTED_SIZE_MAX, True)])
def test_wrapper_message_is_too_costly_above_a_decompressed_size(magic: int, size: int, expected: bool) -> None:
    message_set = build_message_set(
        [Record(0, NOW_MS, b"k", bytes(size), [])], magic=magic, compression=Compression.GZIP
    )
    assert len(message_set) < COSTLY_SIZE
    assert is_too_costly(message_set, origin=AppendOrigin.OLD_CLIENT) is expected


def test_damaged_compressed_records_are_rejected_at_once() -> None:
    for codec in CODECS:
        batch = compressed(bytes(100), codec)
        batch[-1] ^= 1
        before = bytes(batch)
        with pytest.raises(RecordsRejected) as raised:
            validate(batch, may_take_long=False)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        assert batch == before


def with_headers(count: int, codec: Compression, *, records_count: int = 1) -> bytes:
    """A batch whose records have so many empty headers in all."""
    headers = [("", None)] * (count // records_count)
    rows = [RecordData(NOW_MS, b"k", bytes(number % 5), headers) for number in range(records_count)]
    rows[0] = rows[0]._replace(headers=headers + [("", None)] * (count % records_count))
    return build_batch(rows, compression=codec)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("records_count", [1, 100])
@pytest.mark.parametrize("rules", [PLAIN_RULES, COMPACTED], ids=["any", "compacted"])
def test_batch_with_very_many_headers_is_too_costly(codec: Compression, records_count: int, rules: AppendRules) -> None:
    for count, expected in ((HEADERS_MAX, False), (HEADERS_MAX + 1, True)):
        batch = with_headers(count, codec, records_count=records_count)
        assert len(batch) < COSTLY_SIZE
        assert is_too_costly(batch, rules) is expected


def test_very_many_headers_after_an_irregular_record_are_too_costly() -> None:
    rows = [Record(1, NOW_MS, b"k", b"v", []), Record(1, NOW_MS, b"k", b"v", [("", None)] * (HEADERS_MAX + 1))]
    whole = build_batch([RecordData(NOW_MS, b"k", b"v")] * 2)
    for codec in (Compression.GZIP, Compression.LZ4):
        header = read_header(whole)._replace(attributes=codec)
        assert is_too_costly(assemble(header, compress(codec, encode_records(rows, 0, NOW_MS))))


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
@pytest.mark.parametrize("name", RULES_FOR_MANY)
def test_too_large_batches_are_rejected_before_they_are_too_costly(limit: str, name: str) -> None:
    """Their caller does not copy them for a thread."""
    origin = COORDINATOR if name == "coordinator" else AppendOrigin.CLIENT
    batch = build_batch([RecordData(NOW_MS, b"k", b"v")] * COSTLY_RECORDS_COUNT)
    rules = replace(RULES_FOR_MANY[name], **{limit: len(batch) - 1})
    errors = []
    for may_take_long in (True, False):
        with pytest.raises(KafkaError) as raised:
            validate(batch, rules, origin, may_take_long=may_take_long)
        errors.append((raised.value.code, raised.value.message))
    assert errors[0] == errors[1]
    assert errors[0][0] in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def test_first_batch_excludes_an_incomplete_second_batch() -> None:
    batch = build_batch([RecordData(NOW_MS, b"k", b"v")] * COSTLY_RECORDS_COUNT)
    cut_off = batch + bytes(8) + (1 << 30).to_bytes(4, "big") + bytes(100_000)
    assert is_too_costly(cut_off)
    assert first_batch(memoryview(cut_off)) == batch
    old_set = build_message_set([Record(0, NOW_MS, b"k", bytes(COSTLY_SIZE), [])], magic=1)
    assert first_batch(old_set) == old_set
