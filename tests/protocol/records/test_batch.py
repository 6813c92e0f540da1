import random
import struct
import tracemalloc

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Malformed
from protocol.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Record,
    TimestampType,
    batches,
    crc_is_valid,
    plain_records,
    read_header,
    records,
    set_offset_and_epoch,
    set_timestamps,
)
from protocol.records.builder import RecordData, assemble, build_batch
from protocol.records.compression import Compression, compress
from protocol.records.pieces import PieceReader
from protocol.records.plain_records import encode_records, varint

pytestmark = pytest.mark.usefixtures("form")

SIZE_MAX = 1 << 20

crc32c_twin = crcmod.predefined.mkCrcFun("crc-32c")

# Two batches as a real broker stored them: 69 and 84 bytes.
TWO_BATCHES = bytes.fromhex(
    "0000000000000000000000390000000a02abffe19300000000000000000174fd4eb4ee00000174fd4eb4eeffffffffffffffffffffffffffff"
    "000000010e000000010261000000000000000001000000480000001202c29deed10000000000010000017507bb36a30000017507bb394affff"
    "ffffffffffffffffffffffff000000021400000001086a617661001600ce0a0201086d616e6f00"
)


def a_batch(**options: object) -> bytearray:
    return bytearray(
        build_batch(
            [
                RecordData(1_700_000_000_000, b"key", b"value", [("name", b"content"), ("name", None), ("", b"")]),
                RecordData(1_699_999_999_000, None, None),
                RecordData(1_700_000_100_000, b"", b""),
            ],
            **options,  # type: ignore[arg-type]
        )
    )


def recomputed(batch: bytearray) -> bytearray:
    """With batch_length and CRC made right again, so that only what was changed on purpose is wrong."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c_twin(bytes(batch[21:])))
    return batch


class TestHeader:
    def test_two_known_batches_are_read(self) -> None:
        assert len(TWO_BATCHES) == 153
        (first_position, first), (second_position, second) = batches(TWO_BATCHES)
        assert (first_position, first.size, second_position, second.size) == (0, 69, 69, 84)
        assert first == BatchHeader(
            0, 57, 10, 2, 2885673363, 0, 0, 1601977627886, 1601977627886, -1, -1, -1, records_count=1
        )
        assert second == BatchHeader(
            1, 72, 18, 2, 3265130193, 0, 1, 1602152511139, 1602152511818, -1, -1, -1, records_count=2
        )
        assert crc_is_valid(TWO_BATCHES, 0, first)
        assert crc_is_valid(TWO_BATCHES, 69, second)
        assert [record.value for record in records(TWO_BATCHES, 0, size_max=SIZE_MAX)] == [b"a"]
        assert list(records(TWO_BATCHES, 69, size_max=SIZE_MAX)) == [
            Record(1, 1602152511139, None, b"java", []),
            Record(2, 1602152511818, None, b"mano", []),
        ]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"attributes": 0}, {"compression": Compression.NONE, "timestamp_type": TimestampType.CREATE_TIME}),
            ({"attributes": 4}, {"compression": Compression.ZSTD}),
            ({"attributes": 8}, {"timestamp_type": TimestampType.LOG_APPEND_TIME}),
            ({"attributes": 16}, {"is_transactional": True, "is_control": False}),
            ({"attributes": 32}, {"is_transactional": False, "is_control": True}),
            ({"attributes": 64, "base_timestamp": 77}, {"delete_horizon_ms": 77}),
            ({"base_timestamp": 77}, {"delete_horizon_ms": None}),
            ({"base_offset": 10, "last_offset_delta": 4}, {"last_offset": 14, "next_offset": 15}),
            ({"base_sequence": -1, "last_offset_delta": 4}, {"last_sequence": -1}),
            ({"base_sequence": 5, "last_offset_delta": 4}, {"last_sequence": 9}),
            ({"base_sequence": 2147483647, "last_offset_delta": 0}, {"last_sequence": 2147483647}),
            ({"base_sequence": 2147483647, "last_offset_delta": 1}, {"last_sequence": 0}),
            ({"base_sequence": 2147483646, "last_offset_delta": 4}, {"last_sequence": 2}),
            ({"batch_length": 49}, {"size": 61}),
        ],
    )
    def test_derived_values_follow_from_the_header(self, changes: dict[str, int], expected: dict[str, object]) -> None:
        header = read_header(TWO_BATCHES)._replace(**changes)
        assert {name: getattr(header, name) for name in expected} == expected

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codecs_are_malformed(self, codec: int) -> None:
        with pytest.raises(Malformed, match=f"codec {codec}"):
            _ = read_header(TWO_BATCHES)._replace(attributes=codec).compression

    def test_every_truncation_is_malformed(self) -> None:
        for size in range(HEADER_SIZE):
            with pytest.raises(Malformed, match="cut off"):
                read_header(TWO_BATCHES[:size])
        assert read_header(TWO_BATCHES[:HEADER_SIZE]) == read_header(TWO_BATCHES)

    @pytest.mark.parametrize("position", [93, 1000])
    def test_a_position_too_near_or_past_the_end_is_malformed(self, position: int) -> None:
        with pytest.raises(Malformed):
            read_header(TWO_BATCHES, position)

    @pytest.mark.parametrize("magic", [-1, 0, 1, 3, 127])
    def test_another_magic_is_malformed(self, magic: int) -> None:
        batch = a_batch()
        struct.pack_into(">b", batch, 16, magic)
        with pytest.raises(Malformed, match=f"magic {magic}"):
            read_header(batch)

    @pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
    def test_a_length_below_the_header_is_malformed(self, length: int) -> None:
        batch = a_batch()
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(Malformed, match="below the minimum"):
            read_header(batch)


class TestBatches:
    def test_a_partial_last_batch_ends_the_iteration(self) -> None:
        for size in range(len(TWO_BATCHES) + 1):
            whole = 0 if size < 69 else 1 if size < 153 else 2
            assert len(list(batches(TWO_BATCHES[:size]))) == whole

    def test_damage_between_batches_is_malformed(self) -> None:
        with pytest.raises(Malformed):
            list(batches(TWO_BATCHES[:69] + bytes(100)))

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_type_is_read(self, kind: type) -> None:
        buffer = kind(TWO_BATCHES)
        found = [(position, crc_is_valid(buffer, position, header)) for position, header in batches(buffer)]
        assert found == [(0, True), (69, True)]


class TestCrc:
    def test_crc_is_castagnolis_from_the_attributes_on(self) -> None:
        batch = a_batch()
        assert read_header(batch).crc == crc32c_twin(bytes(batch[21:]))

    def test_crc_detects_every_changed_byte(self) -> None:
        outside = {*range(8), *range(12, 16)}  # base_offset and leader epoch
        for position in range(len(batch := a_batch())):
            batch[position] ^= 0x10
            try:
                valid = crc_is_valid(batch, 0, read_header(batch))
            except Malformed:
                valid = False
            assert valid == (position in outside)
            batch[position] ^= 0x10

    def test_truncated_and_extended_batches_are_detected(self) -> None:
        batch = a_batch()
        header = read_header(batch)
        assert not crc_is_valid(batch[:-1], 0, header)
        assert not crc_is_valid(batch[:-20] + bytes(20), 0, header)
        grown = batch + bytes(16)
        struct.pack_into(">i", grown, 8, len(grown) - 12)
        assert not crc_is_valid(grown, 0, read_header(grown))


class TestPatches:
    @pytest.mark.parametrize("kind", [bytearray, lambda data: memoryview(bytearray(data))])
    def test_offset_and_epoch_leave_the_crc_valid(self, kind: type) -> None:
        view = kind(bytes(7) + a_batch())
        set_offset_and_epoch(view, 7, 123_456_789_012, 42)
        header = read_header(view, 7)
        assert (header.base_offset, header.partition_leader_epoch) == (123_456_789_012, 42)
        assert crc_is_valid(view, 7, header)
        assert header.magic == 2
        assert header[5:] == read_header(a_batch())[5:]

    def test_log_append_time_applies_to_every_record(self) -> None:
        batch = a_batch(compression=Compression.GZIP)
        before = [record[2:] for record in records(batch, size_max=SIZE_MAX)]
        set_timestamps(batch, 0, read_header(batch).attributes | LOG_APPEND_TIME_BIT, 1_800_000_000_000)
        header = read_header(batch)
        assert crc_is_valid(batch, 0, header)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == 1_800_000_000_000
        assert header.base_timestamp == 1_700_000_000_000
        after = list(records(batch, size_max=SIZE_MAX))
        assert {record.timestamp for record in after} == {1_800_000_000_000}
        assert [record[2:] for record in after] == before

    def test_a_patch_stays_within_its_batch(self) -> None:
        both = a_batch() + a_batch()
        size = len(both) // 2
        set_timestamps(both, size, LOG_APPEND_TIME_BIT, 5)
        assert both[:size] == a_batch()
        assert [crc_is_valid(both, position, header) for position, header in batches(both)] == [True, True]


class TestRecords:
    def test_records_are_parsed_lazily(self) -> None:
        batch = a_batch()
        opened = records(batch[:-1], size_max=SIZE_MAX)
        with pytest.raises(Malformed, match="cut off"):
            next(opened)

    @pytest.mark.parametrize("codec", list(Compression))
    def test_decompressed_size_is_limited(self, codec: Compression) -> None:
        batch = a_batch(compression=codec)
        plain_size = len(plain_records(batch, 0, read_header(batch), size_max=SIZE_MAX))
        assert len(list(records(batch, size_max=plain_size))) == 3
        with pytest.raises(Malformed, match="more than"):
            list(records(batch, size_max=plain_size - 1))

    @pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
    def test_wrong_records_count_is_malformed(self, count: int) -> None:
        for codec in Compression:
            batch = a_batch(compression=codec)
            struct.pack_into(">i", batch, 57, count)
            with pytest.raises(Malformed):
                list(records(batch, size_max=SIZE_MAX))

    def test_a_batch_without_records_is_legal(self) -> None:
        header = read_header(a_batch())._replace(records_count=0)
        assert list(records(assemble(header, b""), size_max=SIZE_MAX)) == []

    def test_header_keys_that_are_not_utf8_survive(self) -> None:
        body = b"\x00\x00\x00\x01\x01\x02" + b"\x06\xff\xfe\xfd" + b"\x02\x80"
        batch = assemble(read_header(a_batch())._replace(records_count=1), bytes([len(body) * 2]) + body)
        (record,) = records(batch, size_max=SIZE_MAX)
        assert encode_records([record], 0, record.timestamp) == bytes([len(body) * 2]) + body

    @pytest.mark.parametrize(
        "section",
        [
            pytest.param(b"\x0a\x00\x00\x00\x01\x01", id="shorter than any record"),
            pytest.param(b"\x01", id="negative length"),
            pytest.param(b"\x7e\x00\x00\x00\x01\x01\x00", id="length past the end"),
            pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", id="length beyond the content"),
            pytest.param(b"\x0c\x00\x00\x00\x01\x08\x00", id="value past the end"),
            pytest.param(b"\x0c\x00\x00\x00\x7e\x01\x00", id="key past the end"),
            pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", id="negative count of headers"),
            pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", id="header without a key"),
            pytest.param(b"\x0c\x00\x00\x00\x01\x01\x02", id="headers missing"),
            pytest.param(b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", id="two thousand million headers"),
            pytest.param(b"\xff\xff\xff\xff\xff\xff\x01" + bytes(9), id="varint too long"),
            pytest.param(b"\xfe\xff\xff\xff\x7f" + bytes(9), id="varint too large"),
            pytest.param(b"\x18\x00" + b"\xff" * 9 + b"\x03" + b"\x00\x01\x01\x00", id="varlong too large"),
        ],
    )
    def test_damaged_record_is_malformed(self, section: bytes) -> None:
        header = read_header(a_batch())._replace(records_count=1)
        with pytest.raises(Malformed):
            list(records(assemble(header, section), size_max=SIZE_MAX))

    @pytest.mark.parametrize(
        ("base", "other"), [(2**63 - 1, -(2**63)), (2**63 - 1, 0), (-(2**63), -(2**63) + 1), (-1, -1), (0, 2**62)]
    )
    def test_timestamps_at_the_limits_of_int64_are_read(self, base: int, other: int) -> None:
        rows = [RecordData(base, None, None), RecordData(other, None, None)]
        if abs(other - base) < 2**63:
            assert [record.timestamp for record in records(build_batch(rows), size_max=SIZE_MAX)] == [base, other]

    @pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (2**62, 2**63 - 1)])
    def test_a_time_outside_int64_is_malformed(self, base: int, delta: int) -> None:
        section = encode_records([Record(0, base + delta, None, None, [])], 0, base)
        header = read_header(a_batch())._replace(records_count=1, base_timestamp=base)
        with pytest.raises(Malformed, match="out of range"):
            list(records(assemble(header, section), size_max=SIZE_MAX))


def _opened(batch: bytes | bytearray) -> list[Record] | None:
    try:
        return [record for position, _ in batches(batch) for record in records(batch, position, size_max=SIZE_MAX)]
    except Malformed:
        return None


@pytest.mark.parametrize("codec", list(Compression))
def test_truncations_and_mutations_give_malformed_or_records(codec: Compression) -> None:
    batch = a_batch(compression=codec)
    for size in range(len(batch)):
        assert not _opened(batch[:size])
        with pytest.raises(Malformed):
            list(records(batch[:size], size_max=SIZE_MAX))
    random_ = random.Random(20 + codec)
    tracemalloc.start()
    try:
        for _ in range(1000):
            mutated = bytearray(batch)
            for _ in range(random_.randint(1, 5)):
                mutated[random_.randrange(len(mutated))] = random_.randrange(256)
            for record in _opened(mutated) or []:
                assert -(2**63) <= record.timestamp < 2**63
                assert isinstance(record.key, bytes | None)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", list(Compression))
def test_mutations_of_the_plain_records_give_malformed_or_records(codec: Compression) -> None:
    """Damage below the codec, which no checksum of the codec hides."""
    batch = a_batch()
    header = read_header(batch)._replace(attributes=codec)
    random_ = random.Random(40 + codec)
    for _ in range(1000):
        plain = bytearray(batch[HEADER_SIZE:])
        for _ in range(random_.randint(1, 3)):
            plain[random_.randrange(len(plain))] = random_.choice((0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF))
        _opened(assemble(header, compress(codec, plain)))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints_are_read_by_their_definition(offset_delta: int, timestamp_delta: int) -> None:
    def varint(value: int, bits: int) -> bytes:
        zigzag = (value << 1 ^ value >> (bits - 1)) & (1 << bits) - 1
        groups = [zigzag >> shift & 0x7F for shift in range(0, max(zigzag.bit_length(), 1), 7)]
        return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])

    body = b"\x00" + varint(timestamp_delta, 64) + varint(offset_delta, 32) + b"\x01\x01\x00"
    section = varint(len(body), 32) + body
    header = read_header(a_batch())._replace(base_offset=2**31, base_timestamp=0, records_count=1)
    (record,) = records(assemble(header, section), size_max=SIZE_MAX)
    assert record == Record(2**31 + offset_delta, timestamp_delta, None, None, [])
    assert encode_records([record], 2**31, 0) == section


@pytest.mark.parametrize(
    ("encoded", "bits"),
    [
        ("ffffffff7f", 32),  # the fifth byte holds four bits at most
        ("ffffffffff00", 32),
        ("808080808000", 32),  # too many bytes: the value fits, the length does not
        ("ffffffffffffffffff7f", 64),
        ("ffffffffffffffffffff00", 64),
        ("8080808080808080808000", 64),
    ],
)
def test_varints_of_more_bits_than_their_type_are_malformed(encoded: str, bits: int) -> None:
    data = bytes.fromhex(encoded)
    assert varint(data, 0, len(data), bits) == (0, len(data) + 1)
    with pytest.raises(Malformed):
        PieceReader([data]).varint(bits)
