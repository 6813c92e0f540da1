"""Message sets of magic 0 and 1: what clients before 0.11 send and read, and what old installations left on disk.

Owns their layout, reading and writing. Converting up is reading here and building with `protocol.records.builder`;
converting down is `protocol.records.down_conversion`. Must not know who asks.

A message set is a run of entries: offset, size, message. A compressed set is one message, the wrapper, whose value is a
whole message set. It carries the offset of its last inner message; the inner offsets are absolute in magic 0 and count
from 0 in magic 1, where a broker can therefore move a wrapper without opening it.

Invariants: from hostile bytes only Malformed escapes, and opening a wrapper costs memory in proportion to `size_max`.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import LOG_OVERHEAD, MAGIC_POSITION, NO_TIMESTAMP, Record, TimestampType
from protocol.records.compression import Buffer, Compression, compress, decompress
from protocol.records.lz4_checksum import with_historic_checksum, with_true_checksum

LEGACY_MAGICS = (0, 1)

# offset, message_size, crc, magic, attributes; magic 1 goes on with the timestamp, then both with key and value.
_HEADER = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_ENTRY = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_BODY_START = {0: struct.Struct(">bb"), 1: struct.Struct(">bbq")}
_LENGTH = struct.Struct(">i")
_NULL_LENGTH = -1

_CRC_COVERED_POSITION = MAGIC_POSITION
_KEY_POSITION = {0: _HEADER.size, 1: _HEADER.size + _TIMESTAMP.size}

# Of the message alone, with null key and null value.
MESSAGE_SIZE_MIN = {0: 14, 1: 22}

_CODEC_MASK = 0b111
_LOG_APPEND_TIME_BIT = 1 << 3

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


class ForbiddenMessage(Malformed):
    """Every byte is where it belongs, but the whole is not allowed: compression inside compression, two magics, ..."""


class ZstdMessage(ForbiddenMessage):
    """A message of magic 0 or 1 in the codec that only magic 2 has. Clients are told this one apart."""


class MessageHeader(NamedTuple):
    """What stands before key and value. `offset` of a wrapper is that of its last inner message."""

    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int  # -1 in magic 0

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return LOG_OVERHEAD + self.message_size

    @property
    def last_offset(self) -> int:
        return self.offset

    @property
    def compression(self) -> Compression:
        """Raises ForbiddenMessage for ids that magic 0 and 1 do not have; as ZstdMessage for that of zstd."""
        codec = self.attributes & _CODEC_MASK
        if codec == Compression.ZSTD:
            raise ZstdMessage(f"ZStandard in a message of magic {self.magic}")
        if codec > Compression.ZSTD:
            raise ForbiddenMessage(f"unknown compression codec {codec}")
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic and self.attributes & _LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME


# --- reading ----------------------------------------------------------------------------------------------------------


def read_message_header(buffer: Buffer, position: int = 0) -> MessageHeader:
    """The header of the entry at `position`; the rest of the message need not be there yet.

    Raises Malformed when it is cut off, magic is neither 0 nor 1, or message_size is below the minimum.
    """
    try:
        offset, message_size, crc, magic, attributes = _HEADER.unpack_from(buffer, position)
        timestamp = _TIMESTAMP.unpack_from(buffer, position + _HEADER.size)[0] if magic == 1 else NO_TIMESTAMP
    except struct.error:
        raise Malformed(f"message header cut off: {len(buffer) - position} bytes") from None
    if magic not in LEGACY_MAGICS:
        raise Malformed(f"message of magic {magic} where 0 or 1 was expected")
    if message_size < MESSAGE_SIZE_MIN[magic]:
        raise Malformed(f"message_size {message_size} is below the minimum of {MESSAGE_SIZE_MIN[magic]}")
    return MessageHeader(offset, message_size, crc, magic, attributes, timestamp)


def messages(buffer: Buffer) -> Iterator[tuple[int, MessageHeader]]:
    """(position, header) of each whole entry; a partial last one ends the iteration, as a fetch may be cut anywhere.

    Raises Malformed at a whole entry that is not one of magic 0 or 1.
    """
    position = 0
    while (size := entry_size(buffer, position)) is not None:
        yield position, read_message_header(buffer, position)
        position += size


def entry_size(buffer: Buffer, position: int) -> int | None:
    """Size of the entry at `position`, of any magic; None when it is not all there. Raises Malformed if it is none."""
    left = len(buffer) - position
    if left <= MAGIC_POSITION:
        return None
    _, length = _ENTRY.unpack_from(buffer, position)
    if length <= MAGIC_POSITION - LOG_OVERHEAD:
        raise Malformed(f"entry of {length} bytes at position {position}")
    size = LOG_OVERHEAD + int(length)
    return size if size <= left else None


def message_crc_is_valid(buffer: Buffer, position: int, header: MessageHeader) -> bool:
    """Whether the entry at `position` is all there and its CRC-32 is the one in its header."""
    end = position + header.size
    if end > len(buffer):
        return False
    return zlib.crc32(memoryview(buffer)[position + _CRC_COVERED_POSITION : end]) == header.crc


def message_records(buffer: Buffer, position: int = 0, *, size_max: int) -> list[Record]:
    """The record of the entry at `position`, or those of a wrapper, with absolute offsets and their own times.

    The CRC of the entry is left to the caller, those of inner messages are checked. Raises Malformed on any damage, and
    as ForbiddenMessage for nested compression and an inner magic that is not the wrapper's.
    """
    header = read_message_header(buffer, position)
    key, value = _key_and_value(buffer, position, header)
    if header.compression is Compression.NONE:
        return [Record(header.offset, header.timestamp, key, value, [])]
    return _moved_under(header, _inner_records(_message_set(header, value, size_max=size_max), header.magic))


def wrapped_messages(buffer: Buffer, position: int = 0, *, size_max: int) -> bytes:
    """The plain messages in the wrapper at `position`, as they were written: their offsets may count from the first.

    Without compression that is the entry itself. Raises Malformed on damage; the inner messages are not looked at.
    """
    header = read_message_header(buffer, position)
    _, value = _key_and_value(buffer, position, header)
    if header.compression is Compression.NONE:
        return bytes(buffer[position : position + header.size])
    return _message_set(header, value, size_max=size_max)


def _message_set(wrapper: MessageHeader, value: bytes | None, *, size_max: int) -> bytes:
    if not value:
        raise Malformed("wrapper message without a message set")
    if wrapper.compression is Compression.LZ4 and wrapper.magic == 0:
        value = bytes(with_true_checksum(value))
    return decompress(wrapper.compression, value, size_max=size_max)


def _inner_records(data: bytes, magic: int) -> list[Record]:
    inner = _plain_messages(data, magic)
    if not inner.records:
        raise Malformed("wrapper message without a message set")
    if inner.end != len(data):
        raise Malformed(f"{len(data) - inner.end} bytes after the last inner message")
    return inner.records


def _moved_under(wrapper: MessageHeader, inner: list[Record]) -> list[Record]:
    """The inner records with the offsets and the time that their wrapper gives them."""
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
        inner = [record._replace(timestamp=wrapper.timestamp) for record in inner]
    if wrapper.magic == 0:
        return inner
    base_offset = wrapper.offset - inner[-1].offset
    return [record._replace(offset=_in_range(base_offset + record.offset)) for record in inner]


class MessageSet(NamedTuple):
    """A whole set as a producer sent it. `entry_size_max` is the size of its largest entry."""

    compression: Compression
    claims_append_time: bool
    entry_size_max: int
    records: list[Record]


def read_message_set(buffer: Buffer, *, size_max: int) -> MessageSet:
    """What an old producer sent: messages of one magic, or one wrapper. A partial last entry is left out.

    Raises Malformed when an entry is damaged, its CRC is wrong or a wrapper opens to more than `size_max` bytes; as
    ForbiddenMessage when magics are mixed, or when a wrapper is not alone or holds compressed messages.
    """
    data = bytes(buffer)
    if entry_size(data, 0) is None:
        return MessageSet(Compression.NONE, claims_append_time=False, entry_size_max=0, records=[])
    first = read_message_header(data)
    if not first.attributes & _CODEC_MASK:
        plain = _plain_messages(data, first.magic)
        return MessageSet(Compression.NONE, plain.claims_append_time, plain.entry_size_max, plain.records)
    if not message_crc_is_valid(data, 0, first):
        raise Malformed(f"message is corrupt (stored crc = {first.crc})")
    if entry_size(data, first.size) is not None:
        raise ForbiddenMessage("message set with a wrapper message and others")
    claims_append_time = first.timestamp_type is TimestampType.LOG_APPEND_TIME
    return MessageSet(first.compression, claims_append_time, first.size, message_records(data, size_max=size_max))


class _PlainMessages(NamedTuple):
    records: list[Record]
    end: int
    entry_size_max: int
    claims_append_time: bool


def _plain_messages(data: bytes, magic: int) -> _PlainMessages:
    """The whole entries of `data`, all uncompressed and of one magic. Raises Malformed, also for a wrong CRC."""
    records: list[Record] = []
    end = entry_size_max = all_attributes = 0
    for position, header in messages(data):
        if not message_crc_is_valid(data, position, header):
            raise Malformed(f"message is corrupt (stored crc = {header.crc})")
        if header.magic != magic:
            raise ForbiddenMessage(f"message of magic {header.magic} among those of magic {magic}")
        if header.attributes & _CODEC_MASK:
            raise ForbiddenMessage("compressed message among others")
        key, value = _key_and_value(data, position, header)
        records.append(Record(header.offset, header.timestamp, key, value, []))
        all_attributes |= header.attributes
        entry_size_max = max(entry_size_max, header.size)
        end = position + header.size
    return _PlainMessages(records, end, entry_size_max, bool(magic and all_attributes & _LOG_APPEND_TIME_BIT))


def _key_and_value(buffer: Buffer, position: int, header: MessageHeader) -> tuple[bytes | None, bytes | None]:
    end = position + header.size
    if end > len(buffer):
        raise Malformed(f"message cut off: {len(buffer) - position} bytes of {header.size}")
    key, position = _nullable_bytes(buffer, position + _KEY_POSITION[header.magic], end)
    value, position = _nullable_bytes(buffer, position, end)
    if position != end:
        raise Malformed(f"{end - position} bytes after the value of a message")
    return key, value


def _nullable_bytes(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    if end - position < _LENGTH.size:
        raise Malformed("message ends before a length")
    (length,) = _LENGTH.unpack_from(buffer, position)
    position += _LENGTH.size
    if length == _NULL_LENGTH:
        return None, position
    if not 0 <= length <= end - position:
        raise Malformed(f"{length} bytes in a message where {end - position} are left")
    return bytes(buffer[position : position + length]), position + length


def _in_range(offset: int) -> int:
    if not _INT64_MIN <= offset <= _INT64_MAX:
        raise Malformed(f"offset {offset} is out of range")
    return offset


# --- writing ----------------------------------------------------------------------------------------------------------


def build_message_set(
    records: Sequence[Record],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """The records as messages with their own offsets, in one wrapper if there is a codec. Headers are dropped.

    With LogAppendTime all records must have the same timestamp. zstd is not possible here.
    """
    assert compression is not Compression.ZSTD
    attributes = _LOG_APPEND_TIME_BIT if magic and timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    if compression is Compression.NONE or not records:
        return b"".join(_message(magic, attributes, record) for record in records)
    base_offset = records[0].offset if magic else 0
    inner = b"".join(
        _message(magic, attributes, record._replace(offset=record.offset - base_offset)) for record in records
    )
    value = compress(compression, inner, level)
    if compression is Compression.LZ4 and magic == 0:
        value = bytes(with_historic_checksum(value))
    timestamp = max(record.timestamp for record in records)
    return _message(magic, attributes | compression, Record(records[-1].offset, timestamp, None, value, []))


def _message(magic: int, attributes: int, record: Record) -> bytes:
    start = (magic, attributes, record.timestamp) if magic else (magic, attributes)
    body = b"".join((_BODY_START[magic].pack(*start), _with_length(record.key), _with_length(record.value)))
    return b"".join((_ENTRY.pack(record.offset, _CRC.size + len(body)), _CRC.pack(zlib.crc32(body)), body))


def _with_length(data: bytes | None) -> bytes:
    return _LENGTH.pack(_NULL_LENGTH) if data is None else _LENGTH.pack(len(data)) + data
