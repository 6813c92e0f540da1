"""Writes record batches of magic 2.

Owns the encoding of records and the assembly of a batch. Must not know who the batch is for.

Invariants: what is built here, `protocol.records.batch` reads back as the same records, byte for byte in key, value and
headers; the CRC is the last thing computed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

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
from protocol.records.compression import Compression, compress


class RecordData(NamedTuple):
    """A record before it has an offset. A key None is legal except in compacted topics; a value None is a tombstone."""

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
    """One batch of the records, at consecutive offsets. There must be at least one."""
    numbered = [(offset, *record) for offset, record in enumerate(records, base_offset)]
    assert numbered, "only the cleaner leaves batches without records, and it uses rebuild_batch"
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
    """`build_batch` of one record without headers, not compressed, at a quarter of its price.

    Each step of a transaction is such a batch, and so are each marker and most commits. `attributes` are those of the
    batch.
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


def rebuild_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None, level: int | None = None
) -> bytes:
    """The batch of `header` with only `records`, which are some of its own: what compaction leaves of it.

    Offsets, codec, timestamp type and producer fields stay, so that last offset and last sequence stay known. With no
    records left the result is a header alone. `delete_horizon_ms` is stored in place of the base timestamp, which costs
    nothing: the records' times are stored as the difference to whatever stands there.
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
    """Header and (already compressed) records as one batch; batch_length and crc of `header` are computed here."""
    return _assembled(header.base_offset, header.partition_leader_epoch, header[5:], records)


def _assembled(base_offset: int, leader_epoch: int, covered: tuple[int, ...], records: bytes) -> bytes:
    checksum = crc32c(records, crc32c(CRC_COVERED.pack(*covered)))
    batch_length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    return HEADER.pack(base_offset, batch_length, leader_epoch, MAGIC, checksum, *covered) + records


def encode_records(records: Iterable[NumberedRecord], base_offset: int, base_timestamp: int) -> bytes:
    """The plain bytes that follow a batch header with these base values."""
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
_ATTRIBUTES = b"\0"  # of a record: no bit has a meaning
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)
_FIRST_OF_BATCH = _ATTRIBUTES + _varint(0) + _varint(0)  # the time and the offset of the first record are the batch's
