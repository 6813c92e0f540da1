"""Record batches of magic 2: the header, the batches of a buffer, the records of a batch, and in-place changes.

Owns the layout in both directions (the builder uses these structs). Must not know where batches are stored, who sent
them, or which are acceptable: `storage.batches.validation` decides that. The layout is in docs/formats/record-batch.md.

A batch stays opaque until its records are requested: the log needs only the 61-byte header. Only the records after it
are compressed. Offset, length, leader epoch and magic lie outside the CRC, so a leader writes offset and epoch without
recomputing it.

Invariants: hostile bytes raise only Malformed; a Record's offset and timestamp fit int64; opening a batch takes the
memory of one piece (`protocol.records.compression`) and of records of up to `READ_SIZE` bytes, an outline only that of
the piece.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from functools import partial
from typing import NamedTuple

from protocol.crc import crc32c
from protocol.errors import Malformed
from protocol.records.compression import USUAL_WINDOW_SIZE, Buffer, CannotOpen, Compression, open_pieces
from protocol.records.pieces import PieceReader
from protocol.records.plain_records import (
    ANY_NUMBER,
    INT64_MAX,
    INT64_MIN,
    RECORD_SIZE_MIN,
    pass_headers,
    read_records,
)

MAGIC = 2

# base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
# max_timestamp, producer_id, producer_epoch, base_sequence, records_count
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12  # base_offset and batch_length; batch_length counts what follows

# The part of the header that the CRC covers, which starts with the attributes.
CRC_COVERED = struct.Struct(">hiqqqhii")
CRC_COVERED_POSITION = HEADER_SIZE - CRC_COVERED.size

START = struct.Struct(">qii")
"""Base offset, batch length and leader epoch, the first fields of a batch."""
BASE_OFFSET = struct.Struct(">q")
LEADER_EPOCH = struct.Struct(">i")
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC = struct.Struct(">I")
CRC_POSITION = 17
ATTRIBUTES = struct.Struct(">h")
MAX_TIMESTAMP = struct.Struct(">q")
MAX_TIMESTAMP_POSITION = 35

CODEC_MASK = 0b111
LOG_APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
CONTROL_BIT = 1 << 5
DELETE_HORIZON_BIT = 1 << 6

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
"""Every id up to it is none, as in Kafka."""
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

_INT32_MAX = (1 << 31) - 1
_COMPRESSIONS = tuple(Compression)  # by codec; a tenth of the cost of a call


class TimestampType(IntEnum):
    """The clock that set a record's timestamp: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as read; only magic and batch_length have been checked."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec. Raises Malformed for undefined codec ids."""
        codec = self.attributes & CODEC_MASK
        if codec > Compression.ZSTD:
            raise Malformed(f"unknown compression codec {codec}")
        return _COMPRESSIONS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the batch's tombstones or marker may be removed; None until the log cleaner has set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 without sequence numbers. 2147483647 is followed by 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX


class Record(NamedTuple):
    """One record with absolute offset and timestamp. Header keys that are not UTF-8 are kept as surrogate escapes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Parts(Enum):
    """Which parts of each record to return. The structure of all parts is checked in any case."""

    ALL = "everything"
    NO_HEADERS = "no headers: their list is empty"
    OUTLINE = "offset, timestamp and whether there is a key; key and value may lack bytes"


class TooManyHeadersError(Exception):
    """Reading record headers was stopped at a limit. This says nothing about their validity."""


class HeaderBudget:
    """A limit on the record headers to read. A record may have one header for every two bytes."""

    __slots__ = ("left",)

    def __init__(self, count: int) -> None:
        self.left = count

    def spend(self, count: int) -> None:
        """Subtract `count`, before the headers are read.

        Raises:
            TooManyHeadersError: the budget is exceeded.
        """
        self.left -= count
        if self.left < 0:
            raise TooManyHeadersError(f"{-self.left} headers of records more than may be read in one step")


_new_header = tuple.__new__
_unpack_header = HEADER.unpack_from


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the batch header at `position`; the records after it need not be in the buffer.

    Raises:
        Malformed: fewer than 61 bytes are left, magic is not 2, or batch_length is shorter than the header.
    """
    try:
        header = _new_header(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        raise Malformed(f"batch header cut off: {len(buffer) - position} bytes of {HEADER_SIZE}") from None
    if header.magic != MAGIC:
        raise Malformed(f"batch of magic {header.magic} where {MAGIC} was expected")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise Malformed(f"batch_length {header.batch_length} is below the minimum of {HEADER_SIZE - LOG_OVERHEAD}")
    return header


def batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; a partial last one, as in a fetch response, ends the iteration.

    Raises:
        Malformed: a whole header is not that of a batch of magic 2.
    """
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.size > end - position:
            return
        yield position, header
        position += header.size


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch at `position` is whole and its CRC-32C equals that in its header. Copies nothing."""
    end = position + LOG_OVERHEAD + header.batch_length
    if end > len(buffer):
        return False
    valid: bool = crc32c(memoryview(buffer)[position + CRC_COVERED_POSITION : end]) == header.crc
    return valid


def records(
    buffer: Buffer,
    position: int = 0,
    *,
    size_max: int,
    parts: Parts = Parts.ALL,
    window_size_max: int = USUAL_WINDOW_SIZE,
) -> Iterator[Record]:
    """Yield the records of the batch at `position`, which is opened at the first. The CRC is not checked.

    `window_size_max` is that of `open_pieces`.

    Raises:
        Malformed: the batch is cut off, its codec fails, it opens to more than `size_max` bytes, a record does not end
            where its length says, or the number of records differs from that in the header.
    """
    header = read_header(buffer, position)
    if not 0 <= header.base_offset <= INT64_MAX - _INT32_MAX:
        raise Malformed(f"base offset {header.base_offset} is out of range")
    pieces = plain_pieces(buffer, position, header, size_max=size_max, window_size_max=window_size_max)
    yield from parse_records(pieces, header, parts)


def plain_pieces(
    buffer: Buffer, position: int, header: BatchHeader, *, size_max: int, window_size_max: int = USUAL_WINDOW_SIZE
) -> Iterator[bytes]:
    """Return the bytes after the header, decompressed, in pieces. `window_size_max` is that of `open_pieces`.

    Raises:
        Malformed: the bytes are damaged or more than `size_max`; possibly after some pieces.
    """
    end = position + header.size
    if end > len(buffer):
        raise Malformed(f"batch cut off: {len(buffer) - position} bytes of {header.size}")
    content = memoryview(buffer)[position + HEADER_SIZE : end]
    return open_pieces(header.compression, content, size_max=size_max, window_size_max=window_size_max)


def plain_records(buffer: Buffer, position: int, header: BatchHeader, *, size_max: int) -> bytes:
    """Return `plain_pieces` joined."""
    if not header.attributes & CODEC_MASK and header.size <= min(size_max, len(buffer) - position):
        return bytes(memoryview(buffer)[position + HEADER_SIZE : position + header.size])
    return b"".join(plain_pieces(buffer, position, header, size_max=size_max))


def parse_records(
    pieces: Iterable[bytes], header: BatchHeader, parts: Parts = Parts.ALL, budget: HeaderBudget | None = None
) -> Iterator[Record]:
    """Yield the records in `pieces`, the plain bytes that followed `header`.

    Records that lie within a piece are read by a compiled loop. A record at which it stops, because it crosses pieces
    or is damaged, is read field by field (`_read_record`), which also reports the damage.

    Raises:
        Malformed: as by `records`.
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    reader = PieceReader(pieces)
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    timestamp = base_timestamp if append_time is None else append_time
    has_fields, has_headers = parts is not Parts.OUTLINE, parts is Parts.ALL
    left = header.records_count
    while left > 0:
        headers_max = ANY_NUMBER if budget is None else budget.left
        rows, reader.position, headers_count = read_records(
            reader.data,
            reader.position,
            left,
            headers_max,
            base_offset,
            timestamp,
            append_time is not None,
            has_fields,
            has_headers,
        )
        if budget is not None:
            budget.spend(headers_count)
        yield from map(_new_record, rows)
        left -= len(rows)
        if not rows:
            yield _read_record(reader, base_offset, base_timestamp, append_time, parts, budget)
            left -= 1
    if not reader.is_at_end():
        raise Malformed(f"{reader.drain()} bytes after the last of {header.records_count} records")


_new_record = partial(tuple.__new__, Record)


def outline_across_pieces(reader: PieceReader, budget: HeaderBudget | None = None) -> tuple[int, int, bool]:
    """Read the next record, wherever its pieces end; return its offset delta, timestamp delta and if it has a key.

    Raises:
        Malformed: the record is damaged.
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    offset, timestamp, key, _, _ = _read_record(reader, 0, 0, None, Parts.OUTLINE, budget)
    return offset, timestamp, key is not None


def _read_record(
    reader: PieceReader,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    parts: Parts,
    budget: HeaderBudget | None,
) -> Record:
    """Read the next record, of any size and across pieces. Raise an error that names the damage."""
    try:
        length = reader.varint()
        if length < RECORD_SIZE_MIN - 1:
            raise Malformed(f"record of {length} bytes where {reader.drain()} are left")
        start = reader.offset
        try:
            return _read_fields(reader, start + length, base_offset, base_timestamp, append_time, parts, budget)
        except CannotOpen:
            raise
        except (IndexError, Malformed):
            left = reader.offset - start + reader.drain()
            if length > left:
                raise Malformed(f"record of {length} bytes where {left} are left") from None
            raise
    except IndexError:
        raise Malformed("records cut off") from None


def _read_fields(
    reader: PieceReader,
    end: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    parts: Parts,
    budget: HeaderBudget | None,
) -> Record:
    read = reader.skip if parts is Parts.OUTLINE else reader.take
    reader.skip(1)
    delta = reader.varint(64)
    timestamp = base_timestamp + delta if append_time is None else append_time
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise Malformed(f"timestamp {timestamp} is out of range")
    offset = base_offset + reader.varint()

    def nullable() -> bytes | None:
        size = reader.varint()
        if size < 0:
            return None
        _check_end(reader, size, end)
        return read(size) or b""

    key, value = nullable(), nullable()
    headers: list[tuple[str, bytes | None]] = []
    count = reader.varint()
    if not 0 <= count <= end - reader.offset:  # a header has two bytes at least
        raise Malformed(f"record with {count} headers")
    if budget is not None:
        budget.spend(count)
    if parts is not Parts.ALL:
        _skip_headers(reader, count, end)
    for _ in range(count if parts is Parts.ALL else 0):
        size = reader.varint()
        if size < 0:
            raise Malformed("record header without a key")
        _check_end(reader, size, end)
        headers.append((reader.take(size).decode("utf-8", "surrogateescape"), nullable()))
    if reader.offset != end:
        raise _wrong_end(end)
    return Record(offset, timestamp, key, value, headers)


def _skip_headers(reader: PieceReader, count: int, end: int) -> None:
    """Skip `count` headers of a record, which may have one for every two of its bytes."""
    while True:
        stop = min(len(reader.data), reader.position + end - reader.offset)
        reader.position, count = pass_headers(reader.data, reader.position, stop, count)
        if not count:
            return
        for is_value in (False, True):
            size = reader.varint()
            if size < 0 and not is_value:
                raise Malformed("record header without a key")
            _check_end(reader, max(size, 0), end)
            reader.skip(max(size, 0))
        count -= 1


def _check_end(reader: PieceReader, size: int, end: int) -> None:
    if size > end - reader.offset:
        raise _wrong_end(end)


def _wrong_end(end: int) -> Malformed:
    return Malformed(f"record does not end at byte {end} as its length says")


def set_offset_and_epoch(view: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and leader epoch that the leader assigns. Both lie outside the CRC."""
    BASE_OFFSET.pack_into(view, position, base_offset)
    LEADER_EPOCH.pack_into(view, position + LEADER_EPOCH_POSITION, leader_epoch)


def set_timestamps(view: bytearray | memoryview, position: int, attributes: int, max_timestamp: int) -> None:
    """Write attributes and max_timestamp of a whole, valid batch and recompute the CRC. Records are unchanged."""
    end = position + read_header(view, position).size
    ATTRIBUTES.pack_into(view, position + CRC_COVERED_POSITION, attributes)
    MAX_TIMESTAMP.pack_into(view, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    CRC.pack_into(view, position + CRC_POSITION, crc32c(memoryview(view)[position + CRC_COVERED_POSITION : end]))
