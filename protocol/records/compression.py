"""The five codecs of record batches: what is written, and what is accepted.

Owns the framing that Kafka's clients expect of each codec, and the bound on the memory that hostile bytes can take.
Must not know what the plain bytes mean.

Bounds: compressed data is opened in pieces of at most 2 MiB, and only one exists unless the caller keeps more. No
library call returns more than 1 MiB: gzip and lz4 stop at a maximum length, zstd gets only as many blocks at a time as
open to that. The sum is compared with `size_max` after each call. A decoder also holds the window of its format: 32 KiB
for gzip; 64 KiB and two blocks of at most 4 MiB for lz4; for zstd the announced size, which is 2 MiB at the default
level, 8 MiB at level 19 and up to 128 MiB at the levels from 20 on. A zstd frame with a window of more than
`window_size_max` may open to 16 MiB only, because the filled part of the window is resident.

A raw snappy block can only be opened whole. Its preamble announces its plain size, and the library allocates that much.
So an announcement of more than `size_max` or 128 MiB, or of more than 64 bytes for every 3 (the most that the format
can express), is rejected before the library is called.

The libraries are imported by the functions that call them, at the first batch of their codec: most brokers see one
codec, and all three would cost each start time and memory.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from itertools import chain, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from protocol.errors import Malformed

if TYPE_CHECKING:
    import zstandard

Buffer = bytes | bytearray | memoryview

PLAIN_SIZE_MAX: Final = 1 << 31
"""The plain size that a stored batch may have. Kafka's Java classes count it in 32 bits."""
USUAL_WINDOW_SIZE: Final = 8 << 20
"""The largest window of zstd up to level 19."""
RESIDENT_SIZE_MAX: Final = 128 << 20
"""The largest window of zstd that Java clients accept, and the plain size of the largest snappy block."""


class CannotOpen(Malformed):
    """Compressed data is damaged or cut off."""


class OpensTooFar(CannotOpen):
    """Compressed data opens to more bytes than allowed."""


class Compression(IntEnum):
    """The codec ids in bits 0 to 2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` as Kafka's clients do. `level` None is the codec's default; snappy has no levels."""
    return _CODECS[codec].compress(data, level)


def decompress(codec: Compression, data: Buffer, *, size_max: int) -> bytes:
    """Return the plain bytes.

    Raises:
        OpensTooFar: `data` opens to more than `size_max` bytes.
        CannotOpen: `data` is damaged or cut off.
    """
    return b"".join(open_pieces(codec, data, size_max=size_max))


def open_pieces(
    codec: Compression, data: Buffer, *, size_max: int, window_size_max: int = USUAL_WINDOW_SIZE
) -> Iterator[bytes]:
    """Yield the plain bytes in pieces of about 1 MiB, none of them empty. Smaller data is one piece.

    Args:
        window_size_max: the window of a zstd frame up to which the frame may open to more than 16 MiB. The decoder may
            take so much memory.

    Raises:
        CannotOpen: as by `decompress`, at the piece where the damage is found.
    """
    gathered: list[bytes] = []
    gathered_size = size = 0
    for opened in _CODECS[codec].open(memoryview(data), size_max, window_size_max):
        size += len(opened)
        if size > size_max:
            raise _too_large(size_max)
        gathered.append(opened)
        gathered_size += len(opened)
        if gathered_size >= PIECE_SIZE:
            piece = b"".join(gathered)
            gathered.clear()
            gathered_size = 0
            yield piece
    if gathered_size:
        yield b"".join(gathered)


# The limit of one library call, and the size from which opened data is yielded.
PIECE_SIZE = 1 << 20


def _too_large(size_max: int) -> OpensTooFar:
    return OpensTooFar(f"compressed data opens to more than {size_max} bytes")


class Compressor(Protocol):
    """Compresses data that comes in pieces. One object writes one stream."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class BoundedCompression:
    """Compresses pieces as they come and keeps the result, up to `size_max` bytes.

    A single piece is compressed at the end in one call, as `compress` does.
    """

    __slots__ = ("_codec", "_compressed", "_compressor", "_first", "_left", "_level")

    def __init__(self, codec: Compression, level: int | None, size_max: int) -> None:
        self._codec = codec
        self._level = level
        self._left = size_max
        self._first: bytes | None = None
        self._compressor: Compressor | None = None
        self._compressed: list[bytes] = []

    def write(self, piece: bytes) -> None:
        if self._compressor is None:
            if self._first is None:
                self._first = piece
                return
            self._compressor = _CODECS[self._codec].compressor(self._level)
            first, self._first = self._first, b""
            self._keep(self._compressor.compress(first))
        if self._left >= 0:
            self._keep(self._compressor.compress(piece))

    def finish(self) -> bytes | None:
        """Return the compressed data; None if several pieces became more than `size_max` bytes."""
        if self._compressor is None:
            return compress(self._codec, self._first or b"", self._level)
        if self._left >= 0:
            self._keep(self._compressor.flush())
        return None if self._left < 0 else b"".join(self._compressed)

    def _keep(self, compressed: bytes) -> None:
        self._left -= len(compressed)
        self._compressed.append(compressed)
        if self._left < 0:
            self._compressed.clear()


# --- streams: gzip, lz4, zstd -----------------------------------------------------------------------------------------


class _Frame(Protocol):
    """The common interface of the three libraries' decoders. One object reads one frame (gzip: member)."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def open(self, data: Buffer, /) -> Iterator[bytes]:
        """Yield the plain bytes that `data` adds, in pieces of at most PIECE_SIZE."""


# A stream may have several frames; no client writes more than one. Opening a frame copies the data after it, so the
# limit keeps the cost of thousands of empty frames linear in the size of the stream.
FRAMES_MAX = 16

_SLICE_SIZE = 64 << 10  # the input of one call, which a decoder that stops midway may copy


def _slices(data: memoryview, slice_size: int) -> Iterator[memoryview]:
    return (data[start : start + slice_size] for start in range(0, len(data), slice_size))


def _open_stream(open_frame: Callable[[], _Frame], slices: Iterable[memoryview]) -> Iterator[bytes]:
    frame, frames = open_frame(), 1
    for each in slices:
        rest: Buffer = each
        while rest:
            if frame.eof:
                frame, frames = open_frame(), frames + 1
                if frames > FRAMES_MAX:
                    raise CannotOpen(f"compressed data has more than {FRAMES_MAX} frames")
            yield from frame.open(rest)
            rest = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise CannotOpen("compressed data is cut off")


_GZIP_WINDOW_BITS = 15 + 16  # the largest window, and gzip's own header and trailer


def _gzip_compressor(level: int | None) -> "zlib._Compress":
    return zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_WINDOW_BITS)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    stream = _gzip_compressor(level)
    return stream.compress(data) + stream.flush()


class _GzipMember:
    __slots__ = ("_length_max", "_member")

    def __init__(self, size_max: int) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._length_max = min(PIECE_SIZE, size_max + 1)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def open(self, data: Buffer, /) -> Iterator[bytes]:
        member, length_max = self._member, self._length_max
        opened = member.decompress(data, length_max)
        yield opened
        # A call that stopped at length_max may hold back plain bytes although it has read all input.
        while not member.eof and (member.unconsumed_tail or len(opened) == length_max):
            opened = member.decompress(member.unconsumed_tail, length_max)
            yield opened


def _open_gzip(data: memoryview, size_max: int, _window_size_max: int) -> Iterator[bytes]:
    try:
        yield from _open_stream(lambda: _GzipMember(size_max), _slices(data, _SLICE_SIZE))
    except zlib.error as error:
        raise CannotOpen(f"gzip: {error}") from None


# `compression.lz4.level` has the meaning of the Java library: the default is the fast compressor, every other level the
# high-compression one, whose levels in the C library are 3 to 12.
LZ4_LEVEL_DEFAULT = 9
_LZ4_LEVEL_FAST = 0
_LZ4_LEVEL_HIGH_MIN = 3


def _lz4_level(level: int | None) -> int:
    return _LZ4_LEVEL_FAST if level is None or level == LZ4_LEVEL_DEFAULT else max(level, _LZ4_LEVEL_HIGH_MIN)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        data,
        compression_level=_lz4_level(level),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return frame


class _Lz4Compressor:
    """Writes the same frame as `_compress_lz4`."""

    __slots__ = ("_frame", "_start")

    def __init__(self, level: int | None) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor(
            compression_level=_lz4_level(level),
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
        )
        self._start: bytes = self._frame.begin()

    def compress(self, data: bytes, /) -> bytes:
        start, self._start = self._start, b""
        compressed: bytes = start + self._frame.compress(data)
        return compressed

    def flush(self) -> bytes:
        end: bytes = self._start + self._frame.flush()
        return end


class _Lz4Frame:
    __slots__ = ("_frame", "_length_max")

    def __init__(self, size_max: int) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameDecompressor()
        self._length_max = min(PIECE_SIZE, size_max + 1)

    @property
    def eof(self) -> bool:
        eof: bool = self._frame.eof
        return eof

    @property
    def unused_data(self) -> bytes:
        unused: bytes = self._frame.unused_data
        return unused

    def open(self, data: Buffer, /) -> Iterator[bytes]:
        frame, length_max = self._frame, self._length_max
        yield frame.decompress(data, length_max)
        while not frame.eof and not frame.needs_input:
            yield frame.decompress(b"", length_max)


def _open_lz4(data: memoryview, size_max: int, _window_size_max: int) -> Iterator[bytes]:
    try:
        yield from _open_stream(lambda: _Lz4Frame(size_max), _slices(data, _SLICE_SIZE))
    except (RuntimeError, ValueError) as error:
        raise CannotOpen(f"lz4: {error}") from None


ZSTD_LEVEL_DEFAULT = 3

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZE_SIZES = (0, 2, 4, 8)
_ZSTD_BLOCK_HEADER_SIZE = 3
_ZSTD_BLOCK_PLAIN_SIZE_MAX = 128 << 10
_ZSTD_CHECKSUM_SIZE = 4
_ZSTD_RLE_BLOCK = 1
_ZSTD_COMPRESSED_BLOCK = 2
# Data with more blocks than this limit (or than twice as many as are full at the largest plain size), or not made of
# blocks, is cut into slices so small that no slice holds more blocks than may be opened at a time: the smallest block
# has 4 bytes.
_ZSTD_BLOCKS_MAX = 4096
_ZSTD_SLICE_SIZE = PIECE_SIZE // _ZSTD_BLOCK_PLAIN_SIZE_MAX * (_ZSTD_BLOCK_HEADER_SIZE + 1)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)


def _zstd_compressor(level: int | None) -> Compressor:
    """Return a compressor with a window of at most 1 MiB, because the memory of higher levels grows with it."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL_DEFAULT if level is None else level, source_size=PIECE_SIZE, write_content_size=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj()


_ZSTD_WIDE_OPENED_MAX = 16 << 20


class _ZstdFrame:
    __slots__ = ("_frame",)

    def __init__(self, frame: "zstandard.ZstdDecompressionObj") -> None:
        self._frame = frame

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def open(self, data: Buffer, /) -> Iterator[bytes]:
        return iter((self._frame.decompress(data),))


def _open_zstd(data: memoryview, size_max: int, window_size_max: int) -> Iterator[bytes]:
    import zstandard

    content_size, window_size = _zstd_announcement(data)
    if content_size is not None and content_size > size_max:
        raise _too_large(size_max)
    plain_size_max = min(size_max, PIECE_SIZE)
    # No client writes a second frame, so only the first one may have a large window.
    window_sizes_max = chain([RESIDENT_SIZE_MAX], repeat(USUAL_WINDOW_SIZE))
    blocks_max = max(_ZSTD_BLOCKS_MAX, 2 * size_max // _ZSTD_BLOCK_PLAIN_SIZE_MAX)
    slices = _zstd_slices(data, plain_size_max, blocks_max)
    first = next(slices, data)
    if len(first) == len(data) and (content_size is None or 0 < content_size <= plain_size_max):
        # The usual batch is one frame that opens to at most a piece, which takes one call.
        with suppress(zstandard.ZstdError):  # the error is reported below
            yield zstandard.ZstdDecompressor().decompress(data, max_output_size=plain_size_max)
            return
    opened_max = _ZSTD_WIDE_OPENED_MAX if window_size > window_size_max else size_max
    opened_size = 0
    try:
        for opened in _open_stream(
            lambda: _ZstdFrame(zstandard.ZstdDecompressor(max_window_size=next(window_sizes_max)).decompressobj()),
            chain((first,), slices),
        ):
            opened_size += len(opened)
            if opened_size > opened_max:
                raise _too_large(opened_max)
            yield opened
    except zstandard.ZstdError as error:
        raise CannotOpen(f"zstd: {error}") from None


def _zstd_announcement(data: memoryview) -> tuple[int | None, int]:
    """Return the plain size that the first frame announces, or None, and its window size.

    The window size is 0 if there is no frame, which the decompressor reports.
    """
    import zstandard

    with suppress(zstandard.ZstdError):
        frame = zstandard.get_frame_parameters(data)
        return None if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN else frame.content_size, frame.window_size
    return None, 0


def _zstd_slices(view: memoryview, plain_size_max: int, blocks_max: int) -> Iterator[memoryview]:
    """Yield slices of whole blocks (RFC 8878) that open to at most `plain_size_max`, but at least one block each.

    Frame headers and checksums go with the adjacent blocks. The library detects damage; here it only matters that no
    slice opens to more. Invariant: `view[start:position]` is the pending slice, and `plain_size` bounds what it opens
    to.
    """
    position = start = 0
    blocks = 0
    while blocks < blocks_max and view[position : position + len(_ZSTD_MAGIC)] == _ZSTD_MAGIC:
        header_end = _zstd_header_end(view, position)
        has_checksum = header_end <= len(view) and view[position + len(_ZSTD_MAGIC)] & 0x04
        position = header_end
        is_last = False
        plain_size = 0
        while not is_last and blocks < blocks_max and position + _ZSTD_BLOCK_HEADER_SIZE <= len(view):
            blocks += 1
            header = int.from_bytes(view[position : position + _ZSTD_BLOCK_HEADER_SIZE], "little")
            is_last = bool(header & 1)
            kind, size = header >> 1 & 3, header >> 3
            block_plain_size = _ZSTD_BLOCK_PLAIN_SIZE_MAX if kind >= _ZSTD_COMPRESSED_BLOCK else size
            if plain_size + block_plain_size > plain_size_max and plain_size:
                yield view[start:position]
                start, plain_size = position, 0
            plain_size += block_plain_size
            position += _ZSTD_BLOCK_HEADER_SIZE + (1 if kind == _ZSTD_RLE_BLOCK else size)
        if is_last and has_checksum:
            position += _ZSTD_CHECKSUM_SIZE
        yield view[start:position]
        start = position
    yield from _slices(view[position:], _ZSTD_SLICE_SIZE)


def _zstd_header_end(view: memoryview, position: int) -> int:
    """Return the position of the first block of the frame at `position`, possibly beyond the data."""
    position += len(_ZSTD_MAGIC)
    if position == len(view):
        return position + 1
    descriptor = view[position]
    is_single_segment = bool(descriptor & 0x20)
    content_size_size = _ZSTD_CONTENT_SIZE_SIZES[descriptor >> 6] or is_single_segment
    return position + 1 + (not is_single_segment) + _ZSTD_DICTIONARY_ID_SIZES[descriptor & 3] + content_size_size


# --- snappy -----------------------------------------------------------------------------------------------------------

# The stream format of the Java library: a header, then blocks of an int32 size and a raw snappy block each.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 << 10
_BLOCK_SIZE = struct.Struct(">i")

# The preamble of a raw block is its plain size, a little-endian base-128 number of at most 32 bits.
_SNAPPY_PREAMBLE_SIZE_MAX = 5


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    return b"".join((_XERIAL_HEADER, *_xerial_blocks(data)))


def _xerial_blocks(data: Buffer) -> Iterator[bytes]:
    import snappy

    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_SIZE])
        yield _BLOCK_SIZE.pack(len(block))
        yield block


class _SnappyCompressor:
    """Writes the same stream as `_compress_snappy`."""

    __slots__ = ("_rest", "_start")

    def __init__(self) -> None:
        self._start = _XERIAL_HEADER
        self._rest = b""

    def compress(self, data: bytes, /) -> bytes:
        data = self._rest + data
        whole = len(data) // _XERIAL_BLOCK_SIZE * _XERIAL_BLOCK_SIZE
        self._rest = data[whole:]
        return self._stream(data[:whole])

    def flush(self) -> bytes:
        return self._stream(self._rest)

    def _stream(self, data: bytes) -> bytes:
        start, self._start = self._start, b""
        return start + b"".join(_xerial_blocks(data))


def _open_snappy(view: memoryview, size_max: int, _window_size_max: int) -> Iterator[bytes]:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        plain = _open_snappy_block(view, size_max)
        yield from (plain[start : start + PIECE_SIZE] for start in range(0, len(plain), PIECE_SIZE))
        return
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CannotOpen("snappy: the stream header is cut off")
    while position < len(view):
        if len(view) - position < _BLOCK_SIZE.size:
            raise CannotOpen("snappy: a block size is cut off")
        (block_size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 < block_size <= len(view) - position:
            raise CannotOpen(f"snappy: block of {block_size} bytes where {len(view) - position} are left")
        plain = _open_snappy_block(view[position : position + block_size], size_max)
        size_max -= len(plain)
        yield plain
        position += block_size


# A copy element of 3 bytes yields 64 bytes; no element of the format yields more per byte.
_SNAPPY_COPY_PLAIN_SIZE, _SNAPPY_COPY_SIZE = 64, 3


def _open_snappy_block(block: memoryview, size_max: int) -> bytes:
    import snappy

    plain_size = _snappy_plain_size(block)
    if plain_size > min(size_max, RESIDENT_SIZE_MAX):
        raise _too_large(min(size_max, RESIDENT_SIZE_MAX))
    if plain_size * _SNAPPY_COPY_SIZE > len(block) * _SNAPPY_COPY_PLAIN_SIZE:
        raise CannotOpen(
            f"snappy: {len(block)} bytes announce a plain size of {plain_size}, more than they can open to"
        )
    try:
        plain: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise CannotOpen(f"snappy: {error.__cause__}") from None
    return plain


def _snappy_plain_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:_SNAPPY_PREAMBLE_SIZE_MAX]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise CannotOpen("snappy: the block's size is cut off")


# --- the table --------------------------------------------------------------------------------------------------------


class _NoCompressor:
    """Returns the data unchanged."""

    __slots__ = ()

    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Codec(NamedTuple):
    compress: Callable[[Buffer, int | None], bytes]
    compressor: Callable[[int | None], Compressor]
    open: Callable[[memoryview, int, int], Iterator[bytes]]


_CODECS: Mapping[Compression, _Codec] = MappingProxyType(
    {
        Compression.NONE: _Codec(
            lambda data, _level: bytes(data),
            lambda _level: _NoCompressor(),
            lambda data, _size_max, _window_size_max: map(
                bytes, _slices(data, PIECE_SIZE) if len(data) > PIECE_SIZE else (data,)
            ),
        ),
        Compression.GZIP: _Codec(_compress_gzip, _gzip_compressor, _open_gzip),
        Compression.SNAPPY: _Codec(_compress_snappy, lambda _level: _SnappyCompressor(), _open_snappy),
        Compression.LZ4: _Codec(_compress_lz4, _Lz4Compressor, _open_lz4),
        Compression.ZSTD: _Codec(_compress_zstd, _zstd_compressor, _open_zstd),
    }
)
