"""Decisions on records that are opened in pieces, against those on the same records opened as a whole.

The twin is validation itself, given each stream in one piece: what it then decides and writes is what it must decide
and write wherever the pieces are cut. Of what is compressed again the plain bytes are compared, as compressors need not
make the same of small pieces; the text of MESSAGE_TOO_LARGE is not, as it cannot name the size of what was given up.
"""

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import protocol.records.batch
import protocol.records.legacy
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import plain_records, read_header
from protocol.records.builder import RecordData, assemble, build_batch
from protocol.records.compression import Buffer, Compression, compress, open_pieces
from protocol.records.lz4_frame import with_historic_checksum
from protocol.records.plain_records import NumberedRecord, encode_records
from storage.batches.validation import (
    AppendOrigin,
    AppendRules,
    RecordsRejected,
    TimestampWindow,
    validate_and_assign_offsets,
)

NOW_MS = 1_700_000_000_000
RULES = [
    AppendRules(),
    AppendRules(is_compacted=True),
    AppendRules(timestamp_window=TimestampWindow(10**6, 10**6)),
    AppendRules(is_log_append_time=True),
    *[AppendRules(compression=codec) for codec in Compression],
    AppendRules(compression=Compression.NONE, max_message_bytes=400),
    AppendRules(compression=Compression.SNAPPY, segment_bytes=300),
    AppendRules(compression=Compression.GZIP, level=9, is_compacted=True, timestamp_window=TimestampWindow(1000, 1000)),
]
SIZE_MAX = 1 << 30

Outcome = tuple[Any, ...]
Open = Callable[..., Iterator[bytes]]


def some_records(rng: random.Random) -> list[NumberedRecord]:
    def record(index: int) -> NumberedRecord:
        return (
            index if rng.random() < 0.97 else rng.randrange(-3, 10),
            NOW_MS + rng.choice((0, 0, 0, 1, -5, 2000, -(10**7), 10**9)) if rng.random() < 0.95 else -1,
            rng.choice((None, b"", rng.randbytes(70))) if rng.random() < 0.3 else b"key",
            rng.choice((None, b"", rng.randbytes(rng.choice((1, 10, 70, 300))), bytes(200))),
            rng.choice(([], [], [("h", b"1")], [("", None), ("x" * 70, b"y" * 70)])),
        )

    return [record(index) for index in range(rng.choice((1, 1, 2, 3, 5, 20, 70)))]


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(changed))
        changed[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, changed[at] ^ 1, changed[at] + 2 & 0xFF))
    if rng.random() < 0.15:
        del changed[rng.randrange(1, len(changed)) :]
    return bytes(changed)


def some_batch(rng: random.Random) -> bytes:
    codec = rng.choice(list(Compression))
    rows = some_records(rng)
    plain = encode_records(rows, 0, NOW_MS)
    if rng.random() < 0.4:
        plain = mutated(plain, rng)
    data = compress(codec, plain)
    if rng.random() < 0.1:
        data = mutated(data, rng)
    count = len(rows) + (rng.choice((-1, 1)) if rng.random() < 0.05 else 0)
    header = read_header(build_batch([RecordData(NOW_MS, b"", b"")]))
    header = header._replace(
        attributes=codec | (8 if rng.random() < 0.1 else 0),
        last_offset_delta=count - 1,
        records_count=count,
        base_timestamp=NOW_MS if rng.random() < 0.97 else rng.choice((2**62, 2**63 - 1, -(2**63))),
    )
    return assemble(header, data)


def message(magic: int, attributes: int, row: NumberedRecord, offset: int) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", row[1]) if magic else b"")
    for part in row[2:4]:
        assert part is None or isinstance(part, bytes)
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def some_wrapper(rng: random.Random) -> bytes:
    magic, codec = rng.choice((0, 1, 1)), rng.choice((1, 2, 3))
    append_time = 8 if rng.random() < 0.1 else 0
    rows = some_records(rng)
    inner = b"".join(
        message(
            magic if rng.random() < 0.99 else 1 - magic,
            append_time if rng.random() < 0.99 else rng.randrange(16),
            row,
            index if rng.random() < 0.98 else rng.choice((2**62, -(2**63), 2**63 - 1)),
        )
        for index, row in enumerate(rows)
    )
    if rng.random() < 0.2:
        inner = mutated(inner, rng)
    data = compress(Compression(codec), inner)
    if codec == Compression.LZ4 and magic == 0:
        data = bytes(with_historic_checksum(data))
    return message(magic, codec | append_time, (0, NOW_MS, None, data, []), rng.choice((0, len(rows) - 1, 2**62)))


def outcome(sent: bytes, rules: AppendRules, origin: AppendOrigin) -> Outcome:
    """What is decided, and what is stored or why not."""
    buffer = bytearray(sent)
    try:
        validated = validate_and_assign_offsets(
            memoryview(buffer), rules, next_offset=77, leader_epoch=5, now_ms=NOW_MS, origin=origin
        )
    except KafkaError as error:
        assert buffer == sent
        text = "" if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.message
        if isinstance(error, RecordsRejected):
            return error.code, text, error.meter, list(error.record_errors)
        return error.code, text
    if validated is None:
        return (None,)
    stored = bytes(validated.records)
    if not validated.records_converted:
        return stored, validated.header, validated.log_append_time_ms, validated.records_converted
    plain = plain_records(stored, 0, validated.header, size_max=SIZE_MAX)
    header = validated.header._replace(crc=0, batch_length=0)
    return plain, header, validated.log_append_time_ms, validated.records_converted


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[bytes], Iterator[bytes]]], None]:
    """Has opened data come in the pieces that a function makes of it."""

    def replace(pieces_of: Callable[[bytes], Iterator[bytes]]) -> None:
        def opened(codec: Compression, data: Buffer, **limits: int) -> Iterator[bytes]:
            yield from pieces_of(b"".join(open_pieces(codec, data, **limits)))

        for module in (protocol.records.batch, protocol.records.legacy):
            monkeypatch.setattr(module, "open_pieces", opened)

    return replace


def whole(data: bytes) -> Iterator[bytes]:
    yield data


@pytest.mark.parametrize("seed", range(5))
def test_validation_does_not_depend_on_the_size_of_pieces(
    seed: int, opening: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)

    def cut(data: bytes) -> Iterator[bytes]:
        while data:
            size = rng.choice((0, 1, 2, 3, 7, 20, 100))
            yield data[:size]
            data = data[size:]

    cases = [
        (some_batch(rng), rng.choice(RULES), AppendOrigin.CLIENT)
        if rng.random() < 0.6
        else (some_wrapper(rng), rng.choice(RULES), AppendOrigin.OLD_CLIENT)
        for _ in range(700)
    ]
    opening(whole)
    expected = [outcome(*case) for case in cases]
    assert 100 < sum(isinstance(each[0], bytes) for each in expected) < 600, "some are refused"
    opening(cut)
    for joined_size_max in (1 << 20, 100):  # what is larger is not joined, in a message set
        monkeypatch.setattr(protocol.records.legacy, "PIECE_SIZE", joined_size_max)
        for case, twin in zip(cases, expected, strict=True):
            found = outcome(*case)
            if "last inner message" in str(twin) or "without a message set" in str(twin):
                assert found[0] == twin[0]  # by when it is known that a large message is cut off, it has begun
            else:
                assert found == twin


@pytest.mark.parametrize("codec", list(Compression)[1:])
@pytest.mark.parametrize("rules", RULES[:10])
def test_batch_split_at_any_boundary_has_the_same_outcome(
    codec: Compression, rules: AppendRules, opening: Callable[..., None]
) -> None:
    rows: list[NumberedRecord] = [
        (0, NOW_MS, b"k", b"v" * 70, []),
        (1, NOW_MS + 200, b"", None, [("h", b"1"), ("", None)]),
        (2, NOW_MS - 200, b"k" * 65, b"", []),
    ]
    header = read_header(build_batch([RecordData(NOW_MS, b"", b"")]))
    for damage in (None, 1):
        plain = bytearray(encode_records(rows, 0, NOW_MS))
        if damage is not None:
            plain[-damage] ^= 1
        header = header._replace(attributes=int(codec), last_offset_delta=2, records_count=3)
        sent = assemble(header, compress(codec, bytes(plain)))
        opening(whole)
        expected = outcome(sent, rules, AppendOrigin.CLIENT)
        for at in range(1, len(plain)):
            opening(lambda data, at=at: iter((data[:at], data[at:])))
            assert outcome(sent, rules, AppendOrigin.CLIENT) == expected


# Memory

OPENED_SIZE = 12 << 20
MEMORY_MAX = 8 << 20


def large_record(codec: Compression) -> bytes:
    return build_batch([RecordData(NOW_MS, b"k", bytes(OPENED_SIZE))], compression=codec)


def many_records(codec: Compression, *, first_delta: int = 0) -> bytes:
    count = OPENED_SIZE // 4000
    header = read_header(build_batch([RecordData(NOW_MS, b"", b"")]))
    header = header._replace(attributes=int(codec), last_offset_delta=count - 1, records_count=count)
    rows = ((n + first_delta, NOW_MS, b"k", bytes(3990), []) for n in range(count))
    return assemble(header, compress(codec, encode_records(rows, 0, NOW_MS)))


def many_headers(codec: Compression) -> bytes:
    """A record of nothing but headers, of two bytes each."""
    count = 200_000
    body = bytes(3) + b"\x02k" + b"\x01" + encoded_varint(count) + b"\0\1" * count
    header = read_header(build_batch([RecordData(NOW_MS, b"", b"")]))._replace(attributes=int(codec))
    return assemble(header, compress(codec, encoded_varint(len(body)) + body))


def encoded_varint(value: int) -> bytes:
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*encoded, rest))


def wrapper(codec: Compression, values: list[bytes]) -> bytes:
    inner = b"".join(message(1, 0, (0, NOW_MS, b"k", value, []), n) for n, value in enumerate(values))
    return message(1, int(codec), (0, NOW_MS, None, compress(codec, inner), []), len(values) - 1)


ALL_CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
OPENED: list[tuple[str, Callable[[Compression], bytes], list[Compression]]] = [
    ("large record", large_record, ALL_CODECS),
    ("many records", many_records, [Compression.ZSTD]),
    ("renumbered records", lambda codec: many_records(codec, first_delta=1), [Compression.LZ4]),
    ("many headers", many_headers, [Compression.GZIP]),
    ("large message", lambda codec: wrapper(codec, [bytes(OPENED_SIZE)]), ALL_CODECS[:3]),
    ("many messages", lambda codec: wrapper(codec, [bytes(4000)] * (OPENED_SIZE // 4000)), [Compression.GZIP]),
]


@pytest.mark.parametrize(
    ("name", "make", "codec"), [(name, make, codec) for name, make, codecs in OPENED for codec in codecs]
)
def test_validation_memory_is_a_few_pieces_for_any_decompressed_size(
    name: str, make: Callable[[Compression], bytes], codec: Compression
) -> None:
    sent = make(codec)
    origin = AppendOrigin.OLD_CLIENT if "message" in name else AppendOrigin.CLIENT
    for rules in (
        AppendRules(),
        AppendRules(is_compacted=True),
        AppendRules(compression=Compression.LZ4),
        AppendRules(compression=Compression.NONE),
    ):
        codes: list[ErrorCode] = []
        tracemalloc.start()
        try:
            codes.append(outcome_code(memoryview(bytearray(sent)), rules, origin))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        is_too_large = rules.compression is Compression.NONE and name != "many headers"
        assert codes == [ErrorCode.MESSAGE_TOO_LARGE if is_too_large else ErrorCode.NONE]
        assert peak < MEMORY_MAX


def outcome_code(sent: memoryview, rules: AppendRules, origin: AppendOrigin) -> ErrorCode:
    try:
        validate_and_assign_offsets(sent, rules, next_offset=0, leader_epoch=0, now_ms=NOW_MS, origin=origin)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
