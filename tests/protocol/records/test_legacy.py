import itertools
import random
import struct
import tracemalloc
import zlib

import pytest
import snappy

from protocol.errors import Malformed
from protocol.records import legacy
from protocol.records.batch import Record, TimestampType
from protocol.records.compression import Compression, compress
from protocol.records.legacy import (
    ForbiddenMessage,
    MessageSet,
    ZstdMessage,
    build_message_set,
    message_crc_is_valid,
    message_records,
    messages,
    read_message_header,
    read_message_set,
    wrapped_messages,
)

SIZE_MAX = 1 << 20
OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
WRAPPERS = OLD_CODECS[1:]

each_magic = pytest.mark.parametrize("magic", [0, 1])
each_codec = pytest.mark.parametrize("codec", OLD_CODECS)


def rows(magic: int, *offsets: int) -> list[Record]:
    return [
        Record(offset, 1_700_000_000_000 - offset if magic else -1, b"k%d" % offset, b"v" * 20, [])
        for offset in offsets
    ]


def one(magic: int, attributes: int, value: bytes | None, *, offset: int = 0, key: bytes | None = None) -> bytes:
    """One entry by hand, straight from the table of the format."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", 77) if magic else b"")
    for part in key, value:
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def read_set(data: bytes) -> tuple[MessageSet, list[Record]]:
    """The set, and its records as they stand in it."""
    sent = read_message_set(data, size_max=SIZE_MAX)
    return sent, [Record(*message[:4], []) for run in sent.runs for message in run]


def read_all(data: bytes) -> list[Record]:
    read = []
    for position, header in messages(data):
        assert message_crc_is_valid(data, position, header)
        read += message_records(data, position, size_max=SIZE_MAX)
    return read


@each_magic
def test_message_has_the_documented_layout(magic: int) -> None:
    record = Record(5, 77 if magic else -1, b"key", b"value", [])
    assert build_message_set([record], magic=magic) == one(magic, 0, b"value", offset=5, key=b"key")


@each_magic
def test_smallest_message_has_the_minimum_size(magic: int) -> None:
    entry = build_message_set([Record(0, -1, None, None, [])], magic=magic)
    assert len(entry) == {0: 26, 1: 34}[magic]
    assert read_message_header(entry).message_size == legacy.MESSAGE_SIZE_MIN[magic]


def test_messages_of_magic_0_are_at_known_positions() -> None:
    data = build_message_set([Record(n, -1, None, bytes(size), []) for n, size in enumerate((661, 895, 665))], magic=0)
    assert [position for position, _ in messages(data)] == [0, 687, 1608]
    assert len(data) == 2299


@each_magic
@each_codec
@pytest.mark.parametrize(("key", "value"), list(itertools.product([None, b"", b"filled"], repeat=2)), ids=str)
def test_null_empty_and_filled_differ(magic: int, codec: Compression, key: bytes | None, value: bytes | None) -> None:
    record = Record(9, 12 if magic else -1, key, value, [])
    assert read_all(build_message_set([record], magic=magic, compression=codec)) == [record]


@each_magic
@pytest.mark.parametrize("codec", WRAPPERS)
@pytest.mark.parametrize("offsets", [(0,), (0, 1, 2), (601, 603, 604, 606), (2**40, 2**40 + 7)])
def test_a_wrapper_keeps_offsets_and_gaps(magic: int, codec: Compression, offsets: tuple[int, ...]) -> None:
    data = build_message_set(rows(magic, *offsets), magic=magic, compression=codec)
    ((_, header),) = messages(data)
    assert header.offset == header.last_offset == offsets[-1]
    assert header.compression is codec
    assert header.timestamp == (1_700_000_000_000 - offsets[0] if magic else -1)
    assert read_all(data) == rows(magic, *offsets)


def test_inner_offsets_are_absolute_in_magic_0_and_relative_in_magic_1() -> None:
    for magic, expected in (0, [601, 604]), (1, [0, 3]):
        data = build_message_set(rows(magic, 601, 604), magic=magic, compression=Compression.GZIP)
        wrapped = data[legacy._KEY_POSITION[magic] + 8 :]
        assert [header.offset for _, header in messages(zlib.decompress(wrapped, 31))] == expected


def test_a_broker_moves_a_wrapper_of_magic_1_by_its_own_offset() -> None:
    data = bytearray(build_message_set(rows(1, 0, 1, 2), magic=1, compression=Compression.LZ4))
    struct.pack_into(">q", data, 0, 1002)
    assert [record.offset for record in read_all(bytes(data))] == [1000, 1001, 1002]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_log_append_time_applies_to_every_inner_message(codec: Compression) -> None:
    stamped = [record._replace(timestamp=5000) for record in rows(1, 3, 4)]
    data = build_message_set(stamped, magic=1, compression=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {header.timestamp_type for _, header in messages(data)} == {TimestampType.LOG_APPEND_TIME}
    assert read_all(data) == stamped
    if codec is not Compression.NONE:  # as a broker does it: only the wrapper is stamped
        wrapper = bytearray(build_message_set(rows(1, 3, 4), magic=1, compression=codec))
        wrapper[17] |= 8
        struct.pack_into(">q", wrapper, 18, 5000)
        assert message_records(wrapper, size_max=SIZE_MAX) == stamped


def test_magic_0_has_no_timestamp_type() -> None:
    assert read_message_header(one(0, 8, b"v")).timestamp_type is TimestampType.CREATE_TIME


@each_magic
def test_a_raw_snappy_block_is_read(magic: int) -> None:
    inner = build_message_set(rows(magic, 0), magic=magic)
    (record,) = message_records(one(magic, Compression.SNAPPY, snappy.compress(inner)), size_max=SIZE_MAX)
    assert record.key == b"k0"


def test_lz4_of_magic_0_is_read_with_any_header_checksum_and_written_with_the_historic_one() -> None:
    frame = compress(Compression.LZ4, build_message_set(rows(0, 0), magic=0))
    for checksum in range(256):
        spoiled = bytearray(frame)
        spoiled[6] = checksum
        assert message_records(one(0, Compression.LZ4, bytes(spoiled)), size_max=SIZE_MAX) == rows(0, 0)
    written = build_message_set(rows(0, 0), magic=0, compression=Compression.LZ4)
    assert written[26:32] == frame[:6]
    assert written[32] != frame[6]


def test_lz4_of_magic_1_needs_the_true_header_checksum() -> None:
    frame = bytearray(compress(Compression.LZ4, build_message_set(rows(1, 0), magic=1)))
    assert len(message_records(one(1, Compression.LZ4, bytes(frame)), size_max=SIZE_MAX)) == 1
    frame[6] ^= 1
    with pytest.raises(Malformed):
        message_records(one(1, Compression.LZ4, bytes(frame)), size_max=SIZE_MAX)


@each_magic
@each_codec
def test_a_partial_last_entry_ends_the_iteration(magic: int, codec: Compression) -> None:
    first = build_message_set(rows(magic, 0, 1), magic=magic, compression=codec)
    for size in range(len(first)):
        whole = [position + header.size for position, header in messages(first + first[:size])]
        assert whole[-1] >= len(first)
        assert all(end <= len(first) + size for end in whole)
        assert list(messages(first[:size])) == [entry for entry in messages(first) if entry[0] + entry[1].size <= size]


@each_magic
def test_crc_covers_everything_from_the_magic_on(magic: int) -> None:
    entry = bytearray(one(magic, 0, b"value", key=b"key"))
    for position in range(17, len(entry)):
        entry[position] ^= 1
        assert not message_crc_is_valid(entry, 0, read_message_header(entry))
        entry[position] ^= 1
    header = read_message_header(entry)
    assert message_crc_is_valid(entry, 0, header)
    assert not message_crc_is_valid(entry[:-1], 0, header)


@pytest.mark.parametrize("size", range(34))
def test_incomplete_header_is_malformed(size: int) -> None:
    entry = one(1, 0, None)
    if size < 26:
        with pytest.raises(Malformed):
            read_message_header(entry[:size])
    with pytest.raises(Malformed):
        message_records(entry[:size], size_max=SIZE_MAX)


@pytest.mark.parametrize(
    ("patch", "at"),
    [
        pytest.param(struct.pack(">i", 13), 8, id="size below magic 0"),
        pytest.param(struct.pack(">i", -1), 8, id="negative size"),
        pytest.param(b"\x02", 16, id="magic 2"),
        pytest.param(b"\xff", 16, id="magic -1"),
        pytest.param(struct.pack(">i", -2), 18, id="key of -2 bytes"),
        pytest.param(struct.pack(">i", 2**31 - 1), 18, id="key past the end"),
        pytest.param(struct.pack(">i", 4), 25, id="value shorter than the rest"),
        pytest.param(struct.pack(">i", 6), 25, id="value past the end"),
    ],
)
def test_damage_is_malformed(patch: bytes, at: int) -> None:
    entry = bytearray(one(0, 0, b"value", key=b"key"))
    entry[at : at + len(patch)] = patch
    with pytest.raises(Malformed):
        message_records(entry, size_max=SIZE_MAX)


@each_magic
@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(lambda magic, _: None, Malformed, id="null"),
        pytest.param(lambda magic, _: b"", Malformed, id="no bytes"),
        pytest.param(lambda magic, codec: compress(codec, b""), Malformed, id="no messages"),
        pytest.param(lambda magic, codec: compress(codec, one(magic, 0, b"v") + b"tail"), Malformed, id="a tail"),
        pytest.param(lambda magic, codec: compress(codec, one(magic, 0, b"v")[:-1]), Malformed, id="cut off"),
        pytest.param(
            lambda magic, codec: compress(codec, one(magic, 0, b"v")[:-1] + b"w"), Malformed, id="wrong inner crc"
        ),
        pytest.param(lambda magic, codec: compress(codec, one(1 - magic, 0, b"v")), ForbiddenMessage, id="other magic"),
        pytest.param(
            lambda magic, codec: compress(codec, one(magic, codec, compress(codec, one(magic, 0, b"v")))),
            ForbiddenMessage,
            id="nested",
        ),
    ],
)
@pytest.mark.parametrize("codec", WRAPPERS)
def test_malformed_wrappers_are_rejected(magic: int, codec: Compression, make: object, error: type[Exception]) -> None:
    entry = one(magic, codec, make(magic, codec))  # type: ignore[operator]
    with pytest.raises(Malformed) as raised:
        message_records(entry, size_max=SIZE_MAX)
    assert type(raised.value) is error


@each_magic
@pytest.mark.parametrize(("codec", "error"), [(4, ZstdMessage), (5, ForbiddenMessage), (7, ForbiddenMessage)])
def test_codecs_unknown_to_old_formats_are_malformed(magic: int, codec: int, error: type[Exception]) -> None:
    with pytest.raises(Malformed) as raised:
        message_records(one(magic, codec, b"value"), size_max=SIZE_MAX)
    assert type(raised.value) is error


def test_offsets_outside_int64_are_malformed() -> None:
    inner = one(1, 0, b"v", offset=2**62) + one(1, 0, b"v", offset=-(2**63))
    with pytest.raises(Malformed, match="out of range"):
        message_records(one(1, 1, compress(Compression.GZIP, inner), offset=2**62), size_max=SIZE_MAX)


class TestMessageSet:
    @each_magic
    @each_codec
    def test_message_set_of_a_producer_is_read(self, magic: int, codec: Compression) -> None:
        data = build_message_set(rows(magic, 0, 1, 2), magic=magic, compression=codec)
        entry_size_max = max(header.size for _, header in messages(data))
        sent, opened = read_set(data)
        assert opened == rows(magic, 0, 1, 2)
        assert (sent.compression, sent.claims_append_time, sent.lacks_timestamp) == (codec, False, magic == 0)
        assert (sent.entry_size_max, sent.count) == (entry_size_max, 3)

    @each_magic
    def test_entries_before_an_incomplete_one_are_read(self, magic: int) -> None:
        data = build_message_set(rows(magic, 0, 1, 2), magic=magic)
        assert read_set(data[:-1])[1] == rows(magic, 0, 1)
        assert read_set(data[:20])[1] == []
        assert read_set(b"")[1] == []

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            (one(0, 0, b"v") + one(1, 0, b"v"), ForbiddenMessage),
            (one(1, 0, b"v") + build_message_set(rows(1, 0), magic=1, compression=Compression.GZIP), ForbiddenMessage),
            (build_message_set(rows(1, 0), magic=1, compression=Compression.GZIP) + one(1, 0, b"v"), ForbiddenMessage),
            (build_message_set(rows(1, 0), magic=1, compression=Compression.GZIP) * 2, ForbiddenMessage),
            (one(0, 0, b"v") + bytes(40), Malformed),
            (one(0, 0, b"v")[:-1] + b"w" + one(0, 0, b"v"), Malformed),
        ],
    )
    def test_invalid_message_sets_are_rejected(self, data: bytes, error: type[Exception]) -> None:
        with pytest.raises(Malformed) as raised:
            read_set(data)
        assert type(raised.value) is error

    def test_claim_of_append_time_is_reported(self) -> None:
        assert read_set(one(1, 0, b"v") + one(1, 8, b"v"))[0].claims_append_time
        assert not read_set(one(0, 8, b"v"))[0].claims_append_time


@each_magic
@each_codec
def test_mutations_give_malformed_or_records(magic: int, codec: Compression) -> None:
    data = build_message_set(rows(magic, 0, 1, 2), magic=magic, compression=codec)
    random_ = random.Random(magic * 10 + codec)
    tracemalloc.start()
    try:
        for round_ in range(3000):
            mutated = bytearray(data)
            for _ in range(random_.randint(1, 3)):
                mutated[random_.randrange(len(mutated))] = random_.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256))
                )
            if round_ % 2:  # so that the damage is not hidden behind the CRC
                struct.pack_into(">I", mutated, 12, zlib.crc32(mutated[16:]))
            try:
                for position, _ in messages(mutated):
                    message_records(mutated, position, size_max=SIZE_MAX)
                read_set(mutated)
            except Malformed:
                pass
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_inner_messages_of_a_wrapper_are_returned_unchanged(magic: int, codec: Compression) -> None:
    data = build_message_set(rows(magic, 5, 7), magic=magic, compression=codec)
    plain = wrapped_messages(b"ahead" + data, 5, size_max=SIZE_MAX)
    assert [header.offset for _, header in messages(plain)] == ([0, 2] if magic else [5, 7])
    assert all(message_crc_is_valid(plain, position, header) for position, header in messages(plain))


def test_uncompressed_message_is_its_own_inner_message() -> None:
    data = build_message_set(rows(1, 5, 7), magic=1)
    second = len(data) // 2
    assert wrapped_messages(data, second, size_max=SIZE_MAX) == data[second:]
    with pytest.raises(Malformed):
        wrapped_messages(data[:-1], second, size_max=SIZE_MAX)
