"""Build record batches of magic 2.

Owns the assembly of a batch from records (`protocol.records.plain_records`). Must not know what the batch is for.

Invariants: `protocol.records.batch` reads what is built here as the same records, byte for byte in key, value and
headers; the CRC is computed last.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from protocol.crc import crc32c
from protocol.errors import Malformed
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
from protocol.records.plain_records import (
    INT64_MAX,
    INT64_MIN,
    encode_records,
    renumber,
    varint_size,
    write_field,
    write_record,
    write_varint,
)

_NO_HEADERS = b"\0"


class RecordData(NamedTuple):
    """A record without an offset. Key None is valid except in compacted topics; value None is a tombstone."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


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
    data = bytearray()
    write_record(data, 0, 0, key, value, ())
    covered = (attributes, 0, timestamp, timestamp, producer_id, producer_epoch, base_sequence, 1)
    return _assembled(0, leader_epoch, covered, data)


class TimestampTooFar(Malformed):
    """The timestamps of two records differ by more than an int64 holds, so one batch cannot have both."""


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
        """Append a record. Raises TimestampTooFar."""
        if not self._count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        timestamp_delta = timestamp - self._base_timestamp
        if not INT64_MIN <= timestamp_delta <= INT64_MAX:
            raise TimestampTooFar(f"timestamp {timestamp} is too far from {self._base_timestamp} for one batch")
        if isinstance(key, Chunks) or isinstance(value, Chunks):
            self._add_in_chunks(timestamp_delta, key, value)
        else:
            write_record(self._data, timestamp_delta, self._count, key, value, ())
        self._count += 1
        if len(self._data) >= PIECE_SIZE:
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

    def _add_in_chunks(self, timestamp_delta: int, key: bytes | Chunks | None, value: bytes | Chunks | None) -> None:
        start = bytearray(1)  # no attributes
        write_varint(start, timestamp_delta)
        write_varint(start, self._count)
        write_varint(self._data, len(start) + _field_size(key) + _field_size(value) + len(_NO_HEADERS))
        self._data += start
        for field in (key, value):
            if isinstance(field, Chunks):
                write_varint(self._data, -1 if field.is_null() else field.size)
                for chunk in field:
                    self._data += chunk
                    self._compress_pending()
            else:
                write_field(self._data, field)
        self._data += _NO_HEADERS

    def _compress_pending(self) -> None:
        if self._data:
            piece = bytes(self._data)
            self._data.clear()
            self.plain_size += len(piece)
            self._compressed.write(piece)


def _field_size(field: bytes | Chunks | None) -> int:
    """Return the size of a field with its length. A large field, which is not known to be null yet, is not empty."""
    size = -1 if field is None else field.size if isinstance(field, Chunks) else len(field)
    return varint_size(size) + max(size, 0)


def renumbered(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the plain bytes of `count` whole records, in pieces, with the offset deltas 0 to `count` - 1."""
    reader = PieceReader(pieces)
    data = bytearray()
    number = 0
    while number < count:
        reader.position, number = renumber(reader.data, reader.position, number, count, data)
        if number < count and len(data) < PIECE_SIZE:
            for chunk in _renumbered_across_pieces(reader, number):
                data += chunk
                if len(data) >= PIECE_SIZE:
                    yield bytes(data)
                    data.clear()
            number += 1
        if len(data) >= PIECE_SIZE:
            yield bytes(data)
            data.clear()
    if data:
        yield bytes(data)


def _renumbered_across_pieces(reader: PieceReader, number: int) -> Iterator[bytes | bytearray]:
    """Yield the next record, wherever its pieces end, with `number` as its offset delta."""
    end = reader.varint()
    end += reader.offset
    start = bytearray(1)  # no attributes
    reader.skip(1)
    write_varint(start, reader.varint(64))
    reader.varint()
    write_varint(start, number)
    size = bytearray()
    write_varint(size, len(start) + end - reader.offset)
    yield size + start
    yield from reader.chunks(end - reader.offset)


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


def _assembled(base_offset: int, leader_epoch: int, covered: tuple[int, ...], records: bytes | bytearray) -> bytes:
    checksum = crc32c(records, crc32c(CRC_COVERED.pack(*covered)))
    batch_length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    return HEADER.pack(base_offset, batch_length, leader_epoch, MAGIC, checksum, *covered) + records
