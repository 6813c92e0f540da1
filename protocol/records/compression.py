"""The five codecs of record batches: what is written, and what is accepted.

Owns the framing that Kafka's clients expect of each codec, and the promise that opening hostile bytes costs bounded
memory. Must not know what the plain bytes mean.

Bounds: the stream codecs (gzip, lz4, zstd) are fed in slices so small that no slice can grow by more than about 8 MiB,
and the sum is compared with `size_max` after each slice. Where `size_max` is small, little time is spent on what opens
to more: gzip is told where to stop, a slice of lz4 grows by 2 MiB, and slices of zstd are its blocks, which open to 128
KiB at the most. A snappy block announces its plain size, which is compared before the library is called: the library
reserves what the announcement says.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

import lz4.frame
import snappy
import zstandard

from protocol.errors import Malformed

Buffer = bytes | bytearray | memoryview


class OpensTooFar(Malformed):
    """Compressed data opens to more than it may."""


class Compression(IntEnum):
    """Codec ids as they stand in bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the form Kafka's own clients write. `level` None means the codec's default; snappy has no levels."""
    return _CODECS[codec].compress(data, level)


def decompress(codec: Compression, data: Buffer, *, size_max: int) -> bytes:
    """The plain bytes.

    Raises Malformed, and nothing else, when `data` is damaged, cut off, or (OpensTooFar) opens to more than `size_max`
    bytes.
    """
    plain = _CODECS[codec].decompress(data, size_max)
    if len(plain) > size_max:
        raise _too_large(size_max)
    return plain


def _too_large(size_max: int) -> OpensTooFar:
    return OpensTooFar(f"compressed data opens to more than {size_max} bytes")


# --- streams: gzip, lz4, zstd -----------------------------------------------------------------------------------------


class _Stream(Protocol):
    """What the three libraries' incremental decompressors have in common. One object reads one frame (gzip: member)."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Buffer, /) -> bytes: ...


# A stream may consist of several frames. No client writes more than one; the limit keeps the cost of a stream of
# thousands of empty frames (each of which copies what follows it) linear in its size.
FRAMES_MAX = 16


def _slices(data: Buffer, slice_size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start : start + slice_size] for start in range(0, len(view), slice_size))


def _decompress_stream(open_frame: Callable[[], _Stream], slices: Iterable[memoryview], size_max: int) -> bytes:
    frame, frames = open_frame(), 1
    pieces: list[bytes] = []
    size = 0
    for each in slices:
        rest: Buffer = each
        while rest:
            if frame.eof:
                frame, frames = open_frame(), frames + 1
                if frames > FRAMES_MAX:
                    raise Malformed(f"compressed data has more than {FRAMES_MAX} frames")
            piece = frame.decompress(rest)
            size += len(piece)
            if size > size_max:
                raise _too_large(size_max)
            pieces.append(piece)
            rest = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise Malformed("compressed data is cut off")
    return b"".join(pieces)


# Slices: the codec's highest ratio (deflate 1032, lz4 255, a zstd block of 4 bytes opens to 128 KiB) times the slice
# stays within about 8 MiB. For lz4 it is a quarter of that, as the library reserves several times what it returns.
_GZIP_SLICE_SIZE = 8 << 10
_LZ4_SLICE_SIZE = 8 << 10
_ZSTD_SLICE_SIZE = 256  # of what is not made of blocks as it should be

_GZIP_WINDOW_BITS = 15 + 16  # the largest window, and gzip's own header and trailer


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_WINDOW_BITS)
    return stream.compress(data) + stream.flush()


class _GzipMember:
    """A `_Stream` that never opens more at once than what is too much already."""

    __slots__ = ("_length_max", "_member")

    def __init__(self, size_max: int) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._length_max = size_max + 1

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: Buffer, /) -> bytes:
        return self._member.decompress(data, self._length_max)


def _decompress_gzip(data: Buffer, size_max: int) -> bytes:
    try:
        return _decompress_stream(lambda: _GzipMember(size_max), _slices(data, _GZIP_SLICE_SIZE), size_max)
    except zlib.error as error:
        raise Malformed(f"gzip: {error}") from None


# `compression.lz4.level` counts as the Java library does: its default is the fast compressor, every other level the
# high-compression one, which the C library starts at level 3 and ends at 12.
LZ4_LEVEL_DEFAULT = 9
_LZ4_LEVEL_FAST = 0
_LZ4_LEVEL_HIGH_MIN = 3


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == LZ4_LEVEL_DEFAULT
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=_LZ4_LEVEL_FAST if fast or level is None else max(level, _LZ4_LEVEL_HIGH_MIN),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return frame


def _decompress_lz4(data: Buffer, size_max: int) -> bytes:
    try:
        return _decompress_stream(lz4.frame.LZ4FrameDecompressor, _slices(data, _LZ4_SLICE_SIZE), size_max)
    except (RuntimeError, ValueError) as error:
        raise Malformed(f"lz4: {error}") from None


ZSTD_LEVEL_DEFAULT = 3

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZE_SIZES = (0, 2, 4, 8)
_ZSTD_BLOCK_HEADER_SIZE = 3
_ZSTD_CHECKSUM_SIZE = 4
_ZSTD_RLE_BLOCK = 1
_ZSTD_BLOCKS_MAX = 256  # data of thousands of empty ones is not worth so many calls


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)


def _decompress_zstd(data: Buffer, size_max: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor()
    try:
        return _decompress_stream(decompressor.decompressobj, _zstd_slices(data), size_max)
    except zstandard.ZstdError as error:
        raise Malformed(f"zstd: {error}") from None


def _zstd_slices(data: Buffer) -> Iterator[memoryview]:
    """The blocks of each frame (RFC 8878), one a slice, and what is around them; small slices of all else.

    The library finds out what is wrong; here it only matters that no slice is two blocks.
    """
    view = memoryview(data)
    position = 0
    blocks = 0
    while blocks < _ZSTD_BLOCKS_MAX and view[position : position + len(_ZSTD_MAGIC)] == _ZSTD_MAGIC:
        start = position
        position = _zstd_header_end(view, position)
        has_checksum = position <= len(view) and view[start + len(_ZSTD_MAGIC)] & 0x04
        is_last = False
        while not is_last and blocks < _ZSTD_BLOCKS_MAX and position + _ZSTD_BLOCK_HEADER_SIZE <= len(view):
            blocks += 1
            header = int.from_bytes(view[position : position + _ZSTD_BLOCK_HEADER_SIZE], "little")
            is_last = bool(header & 1)
            size = 1 if header >> 1 & 3 == _ZSTD_RLE_BLOCK else header >> 3
            position += _ZSTD_BLOCK_HEADER_SIZE + size
            yield view[start:position]
            start = position
        if is_last and has_checksum:
            position += _ZSTD_CHECKSUM_SIZE
        yield view[start:position]
    yield from _slices(view[position:], _ZSTD_SLICE_SIZE)


def _zstd_header_end(view: memoryview, position: int) -> int:
    """Where the first block of the frame at `position` begins, perhaps beyond the data."""
    position += len(_ZSTD_MAGIC)
    if position == len(view):
        return position + 1
    descriptor = view[position]
    is_single_segment = bool(descriptor & 0x20)
    content_size_size = _ZSTD_CONTENT_SIZE_SIZES[descriptor >> 6] or is_single_segment
    return position + 1 + (not is_single_segment) + _ZSTD_DICTIONARY_ID_SIZES[descriptor & 3] + content_size_size


# --- snappy -----------------------------------------------------------------------------------------------------------

# The stream form of the Java library: a header, then blocks of int32 size and one raw snappy block each.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 << 10
_BLOCK_SIZE = struct.Struct(">i")

# The preamble of a raw block is its plain size, a little-endian base-128 number of at most 32 bits.
_SNAPPY_PREAMBLE_SIZE_MAX = 5


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_SIZE])
        pieces += _BLOCK_SIZE.pack(len(block)), block
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    pieces = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise Malformed("snappy: the stream header is cut off")
    while position < len(view):
        if len(view) - position < _BLOCK_SIZE.size:
            raise Malformed("snappy: a block size is cut off")
        (block_size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 < block_size <= len(view) - position:
            raise Malformed(f"snappy: block of {block_size} bytes where {len(view) - position} are left")
        piece = _decompress_snappy_block(view[position : position + block_size], size_max)
        size_max -= len(piece)
        pieces.append(piece)
        position += block_size
    return b"".join(pieces)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    plain_size = _snappy_plain_size(block)
    if plain_size > size_max:
        raise _too_large(size_max)
    try:
        plain: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise Malformed(f"snappy: {error.__cause__}") from None
    return plain


def _snappy_plain_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:_SNAPPY_PREAMBLE_SIZE_MAX]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise Malformed("snappy: the block's size is cut off")


# --- the table --------------------------------------------------------------------------------------------------------


class _Codec(NamedTuple):
    compress: Callable[[Buffer, int | None], bytes]
    decompress: Callable[[Buffer, int], bytes]


_CODECS: Mapping[Compression, _Codec] = MappingProxyType(
    {
        Compression.NONE: _Codec(lambda data, _level: bytes(data), lambda data, _size_max: bytes(data)),
        Compression.GZIP: _Codec(_compress_gzip, _decompress_gzip),
        Compression.SNAPPY: _Codec(_compress_snappy, _decompress_snappy),
        Compression.LZ4: _Codec(_compress_lz4, _decompress_lz4),
        Compression.ZSTD: _Codec(_compress_zstd, _decompress_zstd),
    }
)
