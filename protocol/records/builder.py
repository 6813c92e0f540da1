"""Build record batches of magic 2.

Owns the encoding of records and the assembly of a batch. Must not know what the batch is for.

Invariants: `protocol.records.batch` reads what is built here as the same records, byte for byte in key, value and
headers; the CRC is computed last.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from protocol.crc import crc32c
from protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERED,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    TimestampType,
)
from protocol.records.compression import PIECE_SIZE, BoundedCompression, Compression, compress
from protocol.records.pieces import Chunks, PieceReader


class RecordData(NamedTuple):
    """A record without an offset. Key None is valid except in compacted topics; value None is a tombstone."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


NumberedRecord = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""The fields of a `Record`: offset, timestamp, key, value, headers."""


def build_batch(
    records: Iterable[RecordData],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build one batch of the records, at consecutive offsets. At least one record is required."""
    numbered = [(offset, *record) for offset, record in enumerate(records, base_offset)]
    assert numbered, "a batch needs a record; only the cleaner leaves empty batches, with rebuild_batch"
    attributes = (
        compression
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
    )
    base_timestamp = numbered[0][1]
    max_timestamp = max([timestamp for _, timestamp, _, _, _ in numbered])
    count = len(numbered)
    data = compress(compression, encode_records(numbered, base_offset, base_timestamp), level)
    covered = (
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return _assembled(base_offset, leader_epoch, covered, data)


def build_record_batch(
    record: RecordData,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build a batch of one uncompressed record without headers, at a quarter of the cost of `build_batch`.

    Each step of a transaction, each marker and most commits are such a batch. `attributes` are those of the batch.
    """
    timestamp, key, value, _ = record
    body = (
        _FIRST_OF_BATCH
        + (_NULL if key is None else _varint(len(key)) + key)
        + (_NULL if value is None else _varint(len(value)) + value)
        + _NO_HEADERS
    )
    covered = (attributes, 0, timestamp, timestamp, producer_id, producer_epoch, base_sequence, 1)
    return _assembled(0, leader_epoch, covered, _varint(len(body)) + body)


class BatchWriter:
    """Builds the batch that `build_batch` builds, from records that come one at a time. At least one is required.

    It takes the memory of the result and of one piece of the records. `plain_size` is the size of the records before
    their compression, once `finish` was called.
    """

    __slots__ = ("_attributes", "_base_timestamp", "_compressed", "_count", "_data", "_max_timestamp", "plain_size")

    def __init__(
        self, compression: Compression, level: int | None, timestamp_type: TimestampType, size_max: int
    ) -> None:
        self._attributes = compression | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        self._compressed = BoundedCompression(compression, level, size_max - HEADER_SIZE)
        self._data = bytearray()
        self.plain_size = 0
        self._count = 0
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP

    def add(self, timestamp: int, key: bytes | Chunks | None, value: bytes | Chunks | None) -> None:
        if not self._count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        start = _ATTRIBUTES + _varint(timestamp - self._base_timestamp) + _varint(self._count)
        self._count += 1
        if isinstance(key, Chunks) or isinstance(value, Chunks):
            self._add_in_chunks(start, key, value)
            return
        body = (
            start
            + (_NULL if key is None else _varint(len(key)) + key)
            + (_NULL if value is None else _varint(len(value)) + value)
            + _NO_HEADERS
        )
        data = self._data
        data += _varint(len(body))
        data += body
        if len(data) >= PIECE_SIZE:
            self._compress_pending()

    def finish(self, *, base_offset: int, leader_epoch: int) -> bytes | None:
        """Return the batch; None if it exceeds `size_max` bytes and did not fit into one piece."""
        self._compress_pending()
        data = self._compressed.finish()
        if data is None:
            return None
        covered = (
            self._attributes,
            self._count - 1,
            self._base_timestamp,
            self._max_timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            self._count,
        )
        return _assembled(base_offset, leader_epoch, covered, data)

    def _add_in_chunks(self, start: bytes, key: bytes | Chunks | None, value: bytes | Chunks | None) -> None:
        size = len(start) + _field_size(key) + _field_size(value) + len(_NO_HEADERS)
        self._data += _varint(size)
        self._data += start
        for field in (key, value):
            if isinstance(field, Chunks):
                self._data += _NULL if field.is_null() else _varint(field.size)
                for chunk in field:
                    self._data += chunk
                    self._compress_pending()
            else:
                self._data += _NULL if field is None else _varint(len(field)) + field
        self._data += _NO_HEADERS

    def _compress_pending(self) -> None:
        if self._data:
            piece = bytes(self._data)
            self._data.clear()
            self.plain_size += len(piece)
            self._compressed.write(piece)


def _field_size(field: bytes | Chunks | None) -> int:
    if field is None:
        return len(_NULL)
    size = field.size if isinstance(field, Chunks) else len(field)
    return len(_varint(size)) + size


def renumbered(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the plain bytes of `count` whole records, in pieces, with the offset deltas 0 to `count` - 1."""
    reader = PieceReader(pieces)
    data = bytearray()
    for number in range(count):
        end = reader.varint()
        end += reader.offset
        reader.skip(len(_ATTRIBUTES))
        timestamp_delta = reader.varint(64)
        reader.varint()
        start = _ATTRIBUTES + _varint(timestamp_delta) + _varint(number)
        data += _varint(len(start) + end - reader.offset)
        data += start
        for chunk in reader.chunks(end - reader.offset):
            data += chunk
            if len(data) >= PIECE_SIZE:
                yield bytes(data)
                data.clear()
    if data:
        yield bytes(data)


def rebuild_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None, level: int | None = None
) -> bytes:
    """Return the batch of `header` with only `records`, a subset of its own, as compaction leaves it.

    Offsets, codec, timestamp type and producer fields are kept, so that last offset and last sequence stay known.
    Without records the result is a header alone. `delete_horizon_ms` replaces the base timestamp, which loses nothing:
    the records' timestamps are stored as differences from it.
    """
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    if not records:
        return assemble(
            header._replace(attributes=attributes & ~CODEC_MASK, base_timestamp=NO_TIMESTAMP, records_count=0),
            b"",
        )
    base_timestamp = records[0].timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(record.timestamp for record in records)
    kept = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        records_count=len(records),
    )
    return assemble(
        kept, compress(header.compression, encode_records(records, header.base_offset, base_timestamp), level)
    )


def assemble(header: BatchHeader, records: bytes) -> bytes:
    """Return header and (already compressed) records as one batch; batch_length and crc are computed here."""
    return _assembled(header.base_offset, header.partition_leader_epoch, header[5:], records)


def _assembled(base_offset: int, leader_epoch: int, covered: tuple[int, ...], records: bytes) -> bytes:
    checksum = crc32c(records, crc32c(CRC_COVERED.pack(*covered)))
    batch_length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    return HEADER.pack(base_offset, batch_length, leader_epoch, MAGIC, checksum, *covered) + records


def encode_records(records: Iterable[NumberedRecord], base_offset: int, base_timestamp: int) -> bytes:
    """Return the plain bytes that follow a batch header with these base values."""
    data = bytearray()
    for offset, timestamp, key, value, headers in records:
        body = (
            _ATTRIBUTES
            + _varint(timestamp - base_timestamp)
            + _varint(offset - base_offset)
            + (_NULL if key is None else _varint(len(key)) + key)
            + (_NULL if value is None else _varint(len(value)) + value)
            + (_encode_headers(headers) if headers else _NO_HEADERS)
        )
        data += _varint(len(body))
        data += body
    return bytes(data)


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    data = bytearray(_varint(len(headers)))
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        data += _varint(len(encoded))
        data += encoded
        data += _NULL if content is None else _varint(len(content)) + content
    return bytes(data)


def _varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))
_ATTRIBUTES = b"\0"  # of a record: no bit is defined
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)
_FIRST_OF_BATCH = (
    _ATTRIBUTES + _varint(0) + _varint(0)
)  # the first record has the batch's base timestamp and base offset
