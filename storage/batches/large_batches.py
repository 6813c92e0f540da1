"""Batches that open to more than the cleaner may hold, read and rebuilt piece by piece.

Owns the steps that `storage.cleaning.cleaner` makes with a whole batch, at several times the cost a record. Must not
know which records are kept.

Invariant: only a piece of about 1 MiB, one record, and the compressed result are held.
"""

from collections.abc import Iterator, Sequence
from itertools import compress as chosen
from typing import Final, NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import DELETE_HORIZON_BIT, BatchHeader, Parts, TimestampType
from protocol.records.builder import assemble
from protocol.records.compression import PIECE_SIZE, PLAIN_SIZE_MAX, BoundedCompression, Buffer
from protocol.records.entries import entry_records
from protocol.records.plain_records import encode_records

_KEYS_MAX: Final = 10_000


class KeysAndOffsets(NamedTuple):
    """The keys of some consecutive records, None where there is none, and the offsets of these records.

    `tombstones` are the places of the records without a value.
    """

    keys: list[bytes | None]
    tombstones: list[int]
    offsets: list[int]


def keys_in_chunks(batch: Buffer) -> Iterator[KeysAndOffsets]:
    """Yield the keys of all records of a batch. Raises Malformed if the batch is damaged."""
    chunk = KeysAndOffsets([], [], [])
    size = 0
    for record in entry_records(batch, parts=Parts.NO_HEADERS):
        if record.value is None:
            chunk.tombstones.append(len(chunk.offsets))
        chunk.keys.append(record.key)
        chunk.offsets.append(record.offset)
        size += len(record.key or b"")
        if size >= PIECE_SIZE or len(chunk.offsets) == _KEYS_MAX:
            yield chunk
            chunk, size = KeysAndOffsets([], [], []), 0
    if chunk.offsets:
        yield chunk


def rebuild(batch: Buffer, header: BatchHeader, is_kept: Sequence[int], horizon_ms: int | None) -> bytes:
    """Return the batch with only the records for which `is_kept` has a true value, at least one.

    The base timestamp is the delete horizon, or without a horizon the timestamp of the first kept record.
    Raises Malformed if the batch is damaged.
    """
    compressed = BoundedCompression(header.compression, None, PLAIN_SIZE_MAX)
    data = bytearray()
    base_timestamp = horizon_ms
    latest_timestamp = None
    count = 0
    for record in chosen(entry_records(batch), is_kept):
        count += 1
        if base_timestamp is None:
            base_timestamp = record.timestamp
        if latest_timestamp is None or record.timestamp > latest_timestamp:
            latest_timestamp = record.timestamp
        data += encode_records((record,), header.base_offset, base_timestamp)
        if len(data) >= PIECE_SIZE:
            compressed.write(bytes(data))
            data.clear()
    if data:
        compressed.write(bytes(data))
    content = compressed.finish()
    if content is None or base_timestamp is None or latest_timestamp is None:
        raise Malformed(f"the batch at offset {header.base_offset} cannot be rebuilt from {count} records")
    return assemble(
        header._replace(
            attributes=header.attributes if horizon_ms is None else header.attributes | DELETE_HORIZON_BIT,
            base_timestamp=base_timestamp,
            max_timestamp=latest_timestamp
            if header.timestamp_type is TimestampType.CREATE_TIME
            else header.max_timestamp,
            records_count=count,
        ),
        content,
    )
