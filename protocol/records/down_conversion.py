"""Convert stored batches down to the message sets that consumers before 0.11 can read.

Owns which part of a new batch an old consumer gets. Must not know requests, quotas or where the bytes come from.

Invariants: it reads only the bytes passed, opens at most `size_max` plain bytes per batch, of which it holds one piece
and one record at a time, and is pure, so that the broker can run it outside the event loop.
"""

from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import BatchHeader, Parts, Record, crc_is_valid
from protocol.records.compression import Buffer, Compression, OpensTooFar
from protocol.records.entries import Entry, entries, entry_records
from protocol.records.legacy import build_message_set, message_crc_is_valid


class DownConverted(NamedTuple):
    """The bytes that an old consumer gets for a piece of a log.

    `records` is empty if the piece holds nothing that the consumer may see, for example only markers. The caller then
    continues at `next_offset`; else the consumer would request the same offset forever. `next_offset` is None if the
    piece held no whole entry.
    """

    records: bytes
    records_converted: int
    next_offset: int | None


def down_convert(buffer: Buffer, *, magic: int, fetch_offset: int, size_max: int) -> DownConverted:
    """Convert the whole entries of `buffer` to a format of at most `magic`, with the same codecs.

    Entries that are old enough are unchanged. Dropped: control batches, headers, producer fields, the timestamps for
    magic 0, and the records of uncompressed batches below `fetch_offset`. Kept: offset, key and value of all others.
    The result ends early before a zstd or damaged batch or one that opens to more than `size_max`.

    Raises:
        KafkaError: the first entry is in zstd (UNSUPPORTED_COMPRESSION_TYPE) or damaged (CORRUPT_MESSAGE).
        OpensTooFar: the first entry opens to more than `size_max` bytes.
    """
    converted: list[bytes] = []
    count = 0
    next_offset: int | None = None
    try:
        for entry in entries(buffer):
            piece, piece_count = _convert_entry(buffer, entry, magic, fetch_offset, size_max)
            converted.append(piece)
            count += piece_count
            next_offset = entry.header.last_offset + 1
    except Malformed as error:
        if next_offset is None:
            if isinstance(error, OpensTooFar):
                raise
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Stored records cannot be converted: {error}") from None
    except KafkaError:
        if next_offset is None:
            raise
    return DownConverted(b"".join(converted), count, next_offset)


def _convert_entry(buffer: Buffer, entry: Entry, magic: int, fetch_offset: int, size_max: int) -> tuple[bytes, int]:
    """Return (bytes, number of converted records) of one entry."""
    header = entry.header
    if isinstance(header, BatchHeader) and header.is_control:
        return b"", 0
    if header.magic <= magic:
        return bytes(memoryview(buffer)[entry.position : entry.end]), 0
    codec = header.compression
    if codec is Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "Batches in ZStandard cannot be converted for Fetch before version 10",
        )
    if isinstance(header, BatchHeader):
        is_valid = crc_is_valid(buffer, entry.position, header)
    else:
        is_valid = message_crc_is_valid(buffer, entry.position, header)
    if not is_valid:  # the converted message gets a CRC of its own, which would hide the damage
        raise Malformed(f"the CRC of the batch with offset {header.last_offset} is wrong")
    takes_all = codec is not Compression.NONE
    count = 0

    def kept() -> Iterator[Record]:
        nonlocal count
        for record in entry_records(buffer, entry.position, size_max=size_max, parts=Parts.NO_HEADERS):
            if takes_all or record.offset >= fetch_offset:
                count += 1
                yield record

    converted = build_message_set(kept(), magic=magic, compression=codec, timestamp_type=header.timestamp_type)
    return converted, count
