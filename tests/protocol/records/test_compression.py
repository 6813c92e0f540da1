import contextlib
import gzip
import random
import struct
import sys
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard

from protocol.errors import Malformed
from protocol.records import compression
from protocol.records.compression import (
    PIECE_SIZE,
    BoundedCompression,
    CannotOpen,
    Compression,
    OpensTooFar,
    compress,
    decompress,
    open_pieces,
)

CODECS = list(Compression)
COMPRESSED = [codec for codec in CODECS if codec is not Compression.NONE]

PLAIN = {
    "empty": b"",
    "one byte": b"x",
    "a block and a byte": bytes(32 * 1024 + 1),
    "text": b"the quick brown fox " * 5000,
    "noise": random.Random(7).randbytes(100_000),
}


@pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN.keys())
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(b"." + data))[1:]])
def test_compressed_data_is_decompressed_unchanged(codec: Compression, plain: bytes, kind: type) -> None:
    packed = compress(codec, kind(plain))
    assert isinstance(packed, bytes)
    opened = decompress(codec, kind(packed), size_max=len(plain))
    assert isinstance(opened, bytes)
    assert opened == plain


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, 1, 9]),
        (Compression.LZ4, [1, 2, 8, 9, 12, 17]),
        (Compression.ZSTD, [-131072, -1, 1, 3, 19, 22]),
    ],
)
def test_every_configurable_level_is_accepted(codec: Compression, levels: list[int]) -> None:
    plain = PLAIN["text"]
    for level in levels:
        assert decompress(codec, compress(codec, plain, level), size_max=len(plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_decompressed_size_is_limited(codec: Compression) -> None:
    plain = PLAIN["text"]
    packed = compress(codec, plain)
    assert decompress(codec, packed, size_max=len(plain)) == plain
    with pytest.raises(Malformed, match="more than"):
        decompress(codec, packed, size_max=len(plain) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_malformed_or_shorter(codec: Compression) -> None:
    plain = b"some text that repeats, text that repeats" * 3
    packed = compress(codec, plain)
    for size in range(len(packed)):
        try:
            opened = decompress(codec, packed[:size], size_max=1000)
        except Malformed:
            continue
        # Only a snappy stream has no end mark: cut between two blocks it is a valid shorter stream.
        assert codec is Compression.SNAPPY
        assert opened == b""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_mutated_data_is_malformed_or_decompresses_to_bytes(codec: Compression) -> None:
    random_ = random.Random(codec)
    packed = compress(codec, random_.randbytes(40) + PLAIN["text"][:400])
    for _ in range(3000):
        mutated = bytearray(packed)
        for _ in range(random_.randint(1, 4)):
            mutated[random_.randrange(len(mutated))] = random_.randrange(256)
        with contextlib.suppress(Malformed):
            assert len(decompress(codec, mutated, size_max=2000)) <= 2000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_random_data_is_malformed(codec: Compression) -> None:
    random_ = random.Random(codec)
    for size in range(300):
        with pytest.raises(Malformed):
            decompress(codec, random_.randbytes(size), size_max=2000)


@pytest.mark.parametrize("codec", CODECS)
def test_small_data_is_decompressed_to_one_piece(codec: Compression) -> None:
    plain = PLAIN["noise"] + PLAIN["text"]
    assert list(open_pieces(codec, compress(codec, plain), size_max=len(plain))) == [plain]
    assert list(open_pieces(codec, compress(codec, b""), size_max=0)) == []


LARGE = b"".join(random.Random(3).randbytes(50) + bytes(random.Random(n).randrange(3000)) for n in range(4000))


@pytest.mark.parametrize("codec", CODECS)
def test_large_data_is_decompressed_in_pieces(codec: Compression) -> None:
    packed = compress(codec, LARGE)
    pieces = list(open_pieces(codec, packed, size_max=len(LARGE)))
    assert b"".join(pieces) == LARGE
    assert all(PIECE_SIZE <= len(piece) < 2 * PIECE_SIZE for piece in pieces[:-1])
    assert 0 < len(pieces[-1]) < 2 * PIECE_SIZE
    with pytest.raises(OpensTooFar):
        list(open_pieces(codec, packed, size_max=len(LARGE) - 1))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_damage_raises_at_its_piece(codec: Compression) -> None:
    packed = compress(codec, LARGE)
    pieces = open_pieces(codec, packed[: len(packed) * 3 // 4], size_max=len(LARGE))
    assert LARGE.startswith(next(pieces))
    with pytest.raises(CannotOpen):
        list(pieces)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1000, 70_000, 2 << 20])
def test_compressed_pieces_equal_the_compressed_whole(codec: Compression, size: int) -> None:
    compression_ = BoundedCompression(codec, None, sys.maxsize)
    for start in range(0, len(LARGE), size):
        compression_.write(LARGE[start : start + size])
    packed = compression_.finish()
    assert packed is not None
    assert decompress(codec, packed, size_max=len(LARGE)) == LARGE
    if codec is not Compression.ZSTD:  # which names the size of the whole, if it knows it
        assert packed == compress(codec, LARGE)


@pytest.mark.parametrize("codec", CODECS)
def test_compression_stops_above_its_limit(codec: Compression) -> None:
    size = len(compress(codec, LARGE))
    for size_max, expected in ((size + 100, True), (size - 1000, False), (-1, False)):
        compression_ = BoundedCompression(codec, None, size_max)
        for start in range(0, len(LARGE), 100_000):
            compression_.write(LARGE[start : start + 100_000])
        assert (compression_.finish() is not None) is expected


def test_single_piece_is_compressed_in_one_call() -> None:
    for codec in CODECS:
        compression_ = BoundedCompression(codec, None, 1)
        compression_.write(PLAIN["text"])
        assert compression_.finish() == compress(codec, PLAIN["text"])


def test_thousands_of_zstd_blocks_are_decompressed_in_pieces() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(
        stream.compress(bytes(n % 3000)) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for n in range(5000)
    )
    packed += stream.flush()
    size = sum(n % 3000 for n in range(5000))
    assert sum(map(len, open_pieces(Compression.ZSTD, packed, size_max=size))) == size


def test_zstd_frame_with_too_large_a_content_size_is_rejected() -> None:
    frame = zstandard.ZstdCompressor(level=22).compress(bytes(2 << 20))
    with pytest.raises(OpensTooFar):
        decompress(Compression.ZSTD, frame[:20], size_max=1 << 20)


def test_snappy_block_with_an_impossible_length_is_rejected() -> None:
    block = snappy.compress(bytes(1 << 20))
    assert decompress(Compression.SNAPPY, block, size_max=1 << 20) == bytes(1 << 20)
    with pytest.raises(CannotOpen, match="more than they can open to"):
        decompress(Compression.SNAPPY, b"\x80\x80\x80\x10" + bytes(100), size_max=100 << 20)


BOMB_PLAIN_SIZE = 400 << 20


def _gzip_bomb() -> bytes:
    stream = zlib.compressobj(wbits=31)
    block = bytes(1 << 20)
    return b"".join(stream.compress(block) for _ in range(BOMB_PLAIN_SIZE >> 20)) + stream.flush()


@pytest.mark.parametrize("announced", [0, 9, 11, 255])
def test_zstd_frame_with_a_wrong_content_size_is_rejected(announced: int) -> None:
    frame = bytearray(compress(Compression.ZSTD, b"v" * 10))
    assert frame[5] == 10, "the content size in one byte"
    frame[5] = announced
    with pytest.raises(CannotOpen, match="zstd"):
        decompress(Compression.ZSTD, frame, size_max=MIB)


def zstd_frame(size: int, window_log: int) -> bytes:
    """Zeros, without a content size."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(bytes(size)) + stream.flush()


MIB = 1 << 20


@pytest.mark.parametrize(("size", "window_log"), [(16 * MIB, 27), (17 * MIB, 23), (40 * MIB, 21)])
def test_zstd_frame_with_a_large_window_may_decompress_to_16_mib(size: int, window_log: int) -> None:
    assert sum(map(len, open_pieces(Compression.ZSTD, zstd_frame(size, window_log), size_max=64 * MIB))) == size


@pytest.mark.parametrize("window_log", [24, 27])
def test_zstd_frame_with_a_large_window_may_not_decompress_to_more(window_log: int) -> None:
    opening = open_pieces(Compression.ZSTD, zstd_frame(17 * MIB, window_log), size_max=64 * MIB)
    with pytest.raises(OpensTooFar, match="more than 16777216 bytes"):
        sum(map(len, opening))


def test_zstd_frame_opens_further_if_its_window_is_within_the_limit() -> None:
    frame = zstd_frame(17 * MIB, 27)
    opening = open_pieces(Compression.ZSTD, frame, size_max=64 * MIB, window_size_max=128 * MIB)
    assert sum(map(len, opening)) == 17 * MIB


def test_zstd_frame_with_a_window_that_java_clients_reject_is_rejected() -> None:
    with pytest.raises(CannotOpen, match="memory"):
        list(open_pieces(Compression.ZSTD, zstd_frame(10, 28), size_max=MIB, window_size_max=128 * MIB))


def test_snappy_block_that_opens_to_more_than_a_decoder_may_hold_is_rejected() -> None:
    block = b"\x81\x80\x80\x40" + bytes(7 << 20)
    with pytest.raises(OpensTooFar, match="134217728"):
        decompress(Compression.SNAPPY, block, size_max=1 << 31)


def test_a_second_zstd_frame_may_not_have_a_large_window() -> None:
    assert list(open_pieces(Compression.ZSTD, zstd_frame(10, 21) * 2, size_max=MIB)) == [bytes(20)]
    with pytest.raises(CannotOpen, match="zstd"):
        list(open_pieces(Compression.ZSTD, zstd_frame(10, 21) + zstd_frame(10, 27), size_max=MIB))


def _zstd_bomb(*, write_content_size: bool) -> bytes:
    stream = zstandard.ZstdCompressor(write_content_size=write_content_size).compressobj(
        size=BOMB_PLAIN_SIZE if write_content_size else -1
    )
    block = bytes(1 << 20)
    return b"".join(stream.compress(block) for _ in range(BOMB_PLAIN_SIZE >> 20)) + stream.flush()


def _lz4_frame_with_content_size(size: int) -> bytes:
    frame = bytearray(lz4.frame.compress(b"abc", store_size=True))
    frame[6:14] = size.to_bytes(8, "little")
    return bytes(frame)


BOMBS = {
    "gzip": (Compression.GZIP, _gzip_bomb),
    "lz4": (Compression.LZ4, lambda: lz4.frame.compress(bytes(BOMB_PLAIN_SIZE), store_size=False)),
    "lz4 with a size": (Compression.LZ4, lambda: lz4.frame.compress(bytes(BOMB_PLAIN_SIZE), store_size=True)),
    "zstd": (Compression.ZSTD, lambda: _zstd_bomb(write_content_size=False)),
    "zstd with a size": (Compression.ZSTD, lambda: _zstd_bomb(write_content_size=True)),
    "snappy block that claims 4 GiB": (Compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f\x00\x00"),
    "snappy": (Compression.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(BOMB_PLAIN_SIZE)))),
    "lz4 frame that claims 2^60": (Compression.LZ4, lambda: _lz4_frame_with_content_size(1 << 60)),
    "zstd frame that claims 2^60": (
        Compression.ZSTD,
        lambda: b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little"),
    ),
    "xerial block that claims 2 GiB": (
        Compression.SNAPPY,
        lambda: b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 0x7FFFFFFF) + b"\x01\x00a",
    ),
}


@pytest.mark.parametrize(("codec", "make"), BOMBS.values(), ids=BOMBS.keys())
def test_compression_bomb_takes_bounded_memory(codec: Compression, make: object) -> None:
    bomb = make()  # type: ignore[operator]
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decompress(codec, bomb, size_max=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        (Compression.GZIP, gzip.compress(b"ab")),
        (Compression.LZ4, lz4.frame.compress(b"ab")),
        (Compression.ZSTD, zstandard.compress(b"ab")),
    ],
    ids=["gzip", "lz4", "zstd"],  # the bytes of gzip name the time, which is another one in each worker
)
def test_concatenated_frames_are_decompressed(codec: Compression, frame: bytes) -> None:
    many = compression.FRAMES_MAX
    assert decompress(codec, frame * many, size_max=100) == b"ab" * many
    with pytest.raises(Malformed, match="frames"):
        decompress(codec, frame * (many + 1), size_max=100)
    with pytest.raises(Malformed):
        decompress(codec, frame + b"garbage", size_max=100)


@pytest.mark.parametrize(
    "options",
    [
        {"block_linked": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
        {"content_checksum": True},
        {"block_checksum": True},
        {"store_size": True},
        {"compression_level": 12},
    ],
)
def test_any_legal_lz4_frame_is_read(options: dict[str, int]) -> None:
    plain = PLAIN["text"] + PLAIN["noise"]
    assert decompress(Compression.LZ4, lz4.frame.compress(plain, **options), size_max=len(plain)) == plain


def test_lz4_is_written_as_kafka_clients_expect() -> None:
    """Independent blocks of 64 KiB, no checksums, no content size: the FLG and BD bytes of the frame."""
    frame = compress(Compression.LZ4, PLAIN["text"])
    assert frame[:6] == bytes.fromhex("04224d18 60 40")
    assert frame[6] == 0x82  # second byte of xxh32 of those two bytes


def test_snappy_is_written_in_the_stream_format_of_snappy_java() -> None:
    plain = PLAIN["noise"]
    packed = compress(Compression.SNAPPY, plain)
    assert packed[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    position, opened = 16, []
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        opened.append(snappy.uncompress(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert [len(block) for block in opened] == [32768, 32768, 32768, 100_000 - 3 * 32768]
    assert b"".join(opened) == plain


def test_a_raw_snappy_block_is_read() -> None:
    plain = PLAIN["text"]
    assert decompress(Compression.SNAPPY, snappy.compress(plain), size_max=len(plain)) == plain


def test_decompressed_sizes_of_xerial_blocks_add_up() -> None:
    packed = compress(Compression.SNAPPY, bytes(200_000))
    with pytest.raises(Malformed, match="more than"):
        decompress(Compression.SNAPPY, packed, size_max=150_000)
