"""Message sets of magic 0 and 1, which clients before 0.11 send and read, and old installations left on disk.

Owns headers and wrappers, and the choice between the compiled reader of small messages (`plain_messages`) and that of
any. Converting up is reading here and building with `protocol.records.builder`; `protocol.records.down_conversion`
converts down. Must not know the caller. The layout is in docs/formats/message-set.md.

A message set is a sequence of entries: offset, size, message. A compressed set is one message, the wrapper, whose value
is a whole message set. The wrapper has the offset of its last inner message. Inner offsets are absolute in magic 0 and
count from 0 in magic 1, where a broker can therefore assign offsets without opening the wrapper.

Invariants: hostile bytes raise only Malformed. Reading a producer's set takes the memory of one opened piece
(`protocol.records.compression`); reading a stored wrapper takes that of its records.
"""

import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import LOG_OVERHEAD, MAGIC_POSITION, NO_TIMESTAMP, Record, TimestampType
from protocol.records.compression import PIECE_SIZE, BoundedCompression, Buffer, Compression, open_pieces
from protocol.records.pieces import Chunks, PieceReader
from protocol.records.plain_messages import Message, read_messages, write_message
from protocol.records.plain_records import INT64_MAX, INT64_MIN

LEGACY_MAGICS = (0, 1)

# offset, message_size, crc, magic, attributes; magic 1 continues with the timestamp, then both have key and value.
_HEADER = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_ENTRY = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_NULL_LENGTH = -1

_CRC_COVERED_POSITION = MAGIC_POSITION
_KEY_POSITION = {0: _HEADER.size, 1: _HEADER.size + _TIMESTAMP.size}

# The size of a message with null key and null value, without offset and size.
MESSAGE_SIZE_MIN = {0: 14, 1: 22}

_CODEC_MASK = 0b111
_LOG_APPEND_TIME_BIT = 1 << 3


class ForbiddenMessage(Malformed):
    """The layout is valid, but the content is not allowed: nested compression, mixed magics, and the like."""


class ZstdMessage(ForbiddenMessage):
    """A message of magic 0 or 1 in zstd, which only magic 2 allows. Clients get an error of its own for it."""


class MessageHeader(NamedTuple):
    """The fields before key and value. `offset` of a wrapper is that of its last inner message."""

    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int  # -1 in magic 0

    @property
    def size(self) -> int:
        """The size of the whole entry in bytes."""
        return LOG_OVERHEAD + self.message_size

    @property
    def last_offset(self) -> int:
        return self.offset

    @property
    def compression(self) -> Compression:
        """The codec. Raises ZstdMessage for zstd and ForbiddenMessage for undefined codec ids."""
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
    """Return the header of the entry at `position`; the rest of the message need not be in the buffer.

    Raises:
        Malformed: it is cut off, magic is neither 0 nor 1, or message_size is below the minimum.
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
    """Yield (position, header) of each whole entry; a partial last one, as in a fetch response, ends the iteration.

    Raises:
        Malformed: a whole entry is not of magic 0 or 1.
    """
    position = 0
    while (size := entry_size(buffer, position)) is not None:
        yield position, read_message_header(buffer, position)
        position += size


def entry_size(buffer: Buffer, position: int) -> int | None:
    """Return the size of the entry at `position`, of any magic; None if it is not whole.

    Raises:
        Malformed: the size is too small for an entry.
    """
    left = len(buffer) - position
    if left <= MAGIC_POSITION:
        return None
    size = _announced_size(buffer, position)
    return size if size <= left else None


def _announced_size(buffer: Buffer, position: int) -> int:
    _, length = _ENTRY.unpack_from(buffer, position)
    if length <= MAGIC_POSITION - LOG_OVERHEAD:
        raise Malformed(f"entry of {length} bytes at position {position}")
    return LOG_OVERHEAD + int(length)


def message_crc_is_valid(buffer: Buffer, position: int, header: MessageHeader) -> bool:
    """Return whether the entry at `position` is whole and its CRC-32 equals that in its header."""
    end = position + header.size
    if end > len(buffer):
        return False
    return zlib.crc32(memoryview(buffer)[position + _CRC_COVERED_POSITION : end]) == header.crc


def message_records(buffer: Buffer, position: int = 0, *, size_max: int) -> list[Record]:
    """Return the record of the entry at `position`, or those of a wrapper, with absolute offsets and their timestamps.

    The CRC of the entry is not checked, those of inner messages are.

    Raises:
        ForbiddenMessage: compression is nested, or an inner magic differs from the wrapper's.
        Malformed: the entry is damaged.
    """
    header = read_message_header(buffer, position)
    key, value = _key_and_value(buffer, position, header)
    if header.compression is Compression.NONE:
        return [Record(header.offset, header.timestamp, key, value, [])]
    inner: list[Record] = []
    opened = MessageSet(header.compression, claims_append_time=False, entry_size_max=header.size)
    for run in _inner_records(header, value, opened, size_max=size_max):
        for offset, timestamp, inner_key, inner_value, _ in run:
            assert not isinstance(inner_key, Chunks)
            assert not isinstance(inner_value, Chunks)
            inner.append(Record(offset, timestamp, inner_key, inner_value, []))
    return _with_absolute_offsets(header, inner)


def wrapped_messages(buffer: Buffer, position: int = 0, *, size_max: int) -> bytes:
    """Return the plain messages in the wrapper at `position` as written; their offsets may count from the first.

    For an uncompressed message this is the entry itself. The inner messages are not checked.

    Raises:
        Malformed: the wrapper is damaged.
    """
    header = read_message_header(buffer, position)
    _, value = _key_and_value(buffer, position, header)
    if header.compression is Compression.NONE:
        return bytes(buffer[position : position + header.size])
    return b"".join(_message_set(header, value, size_max=size_max))


def _message_set(wrapper: MessageHeader, value: bytes | None, *, size_max: int) -> Iterator[bytes]:
    """Return the plain bytes of the set in a wrapper, in pieces."""
    if not value:
        raise Malformed("wrapper message without a message set")
    if wrapper.compression is Compression.LZ4 and wrapper.magic == 0:
        from protocol.records.lz4_frame import with_true_checksum  # on demand: only old clients need it

        value = bytes(with_true_checksum(value))
    return open_pieces(wrapper.compression, value, size_max=size_max)


def _with_absolute_offsets(wrapper: MessageHeader, inner: list[Record]) -> list[Record]:
    """Return the inner records with the offsets that their wrapper determines."""
    if wrapper.magic == 0:
        return inner
    base_offset = wrapper.offset - inner[-1].offset
    return [record._replace(offset=base_offset + record.offset) for record in inner]


class MessageSet:
    """A whole set as a producer sent it.

    `runs` are lists of consecutive messages. Each can be read once, before the next one is asked for. Until all were
    read, the other values except `compression` may be wrong.
    `entry_size_max` is the size of the largest entry, `opened_size` the plain size of a wrapper's messages.
    """

    __slots__ = (
        "claims_append_time",
        "compression",
        "count",
        "entry_size_max",
        "lacks_timestamp",
        "opened_size",
        "runs",
    )

    def __init__(
        self,
        compression: Compression = Compression.NONE,
        *,
        claims_append_time: bool = False,
        entry_size_max: int = 0,
    ) -> None:
        self.compression = compression
        self.claims_append_time = claims_append_time
        self.entry_size_max = entry_size_max
        self.count = 0
        self.lacks_timestamp = False
        self.opened_size = 0
        self.runs: Iterator[list[Message]] = iter(())


def read_message_set(buffer: Buffer, *, size_max: int) -> MessageSet:
    """Read an old producer's set: messages of one magic, or one wrapper. A partial last entry is left out.

    A key or value of more than about 1 MiB in a wrapper is returned as Chunks.

    Raises, now or while the records are read:
        ForbiddenMessage: magics are mixed, or a wrapper is not alone or holds compressed messages.
        Malformed: an entry is damaged, its CRC is wrong, or a wrapper opens to more than `size_max` bytes.
    """
    data = bytes(buffer)
    if entry_size(data, 0) is None:
        return MessageSet()
    first = read_message_header(data)
    if not first.attributes & _CODEC_MASK:
        plain = MessageSet()
        plain.runs = _plain_messages(PieceReader((data,)), first.magic, plain)
        return plain
    if not message_crc_is_valid(data, 0, first):
        raise Malformed(f"message is corrupt (stored crc = {first.crc})")
    if entry_size(data, first.size) is not None:
        raise ForbiddenMessage("message set with a wrapper message and others")
    claims_append_time = first.timestamp_type is TimestampType.LOG_APPEND_TIME
    wrapped = MessageSet(first.compression, claims_append_time=claims_append_time, entry_size_max=first.size)
    _, value = _key_and_value(data, 0, first)
    wrapped.runs = _inner_records(first, value, wrapped, size_max=size_max, joined_size_max=PIECE_SIZE)
    return wrapped


def _inner_records(
    wrapper: MessageHeader, value: bytes | None, found: MessageSet, *, size_max: int, joined_size_max: int | None = None
) -> Iterator[list[Message]]:
    """Yield the messages in a wrapper. Raise Malformed, for offsets outside int64 only at the end."""
    append_time = wrapper.timestamp if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    reader = PieceReader(_message_set(wrapper, value, size_max=size_max))
    inner = MessageSet(wrapper.compression)
    offset, lowest, highest = 0, INT64_MAX, INT64_MIN
    runs = _plain_messages(reader, wrapper.magic, inner, append_time=append_time, joined_size_max=joined_size_max)
    for run in runs:
        offsets = [message[0] for message in run]
        offset, lowest, highest = offsets[-1], min(lowest, *offsets), max(highest, *offsets)
        yield run
    if not inner.count:
        raise Malformed("wrapper message without a message set")
    if not reader.is_at_end():
        raise Malformed(f"{reader.drain()} bytes after the last inner message")
    if wrapper.magic:
        base_offset = wrapper.offset - offset
        for each in (base_offset + lowest, base_offset + highest):
            if not INT64_MIN <= each <= INT64_MAX:
                raise Malformed(f"offset {each} is out of range")
    found.count = inner.count
    found.opened_size = reader.offset
    found.lacks_timestamp = inner.lacks_timestamp if append_time is None else append_time == NO_TIMESTAMP


def _plain_messages(
    reader: PieceReader,
    magic: int,
    found: MessageSet,
    *,
    append_time: int | None = None,
    joined_size_max: int | None = None,
) -> Iterator[list[Message]]:
    """Yield the whole entries, all uncompressed and of one magic. Raise Malformed, also for a wrong CRC.

    Small messages that lie within a piece are read by a compiled loop. One at which it stops, because it is large,
    crosses pieces or is damaged, is read here, which also reports the damage. Messages larger than `joined_size_max`
    are returned as Chunks.
    """
    has_append_time = append_time is not None
    while True:
        run, reader.position, size, attributes, lacks_timestamp = read_messages(
            reader.data, reader.position, magic, has_append_time, append_time or 0
        )
        large = None
        if not run:
            if not reader.ensure(MAGIC_POSITION + 1):
                return
            size = _announced_size(reader.data, reader.position)
            key: bytes | Chunks | None
            value: bytes | Chunks | None
            if joined_size_max is not None and size > joined_size_max and reader.ensure(_KEY_POSITION[1]):
                header = read_message_header(reader.data, reader.position)
                large = _LargeMessage(reader, header)
                _, _, key, value, _ = large.message(magic)
            elif reader.ensure(size):
                data, position = reader.data, reader.position
                header = read_message_header(data, position)
                if not message_crc_is_valid(data, position, header):
                    raise Malformed(f"message is corrupt (stored crc = {header.crc})")
                _check_inner(header, magic)
                key, value = _key_and_value(data, position, header)
                reader.position += size
            else:
                return
            run = [(header.offset, header.timestamp if append_time is None else append_time, key, value, ())]
            attributes, lacks_timestamp = header.attributes, header.timestamp == NO_TIMESTAMP
        found.count += len(run)
        found.entry_size_max = max(found.entry_size_max, size)
        if magic and attributes & _LOG_APPEND_TIME_BIT:
            found.claims_append_time = True
        if lacks_timestamp:
            found.lacks_timestamp = True
        yield run
        if large is not None:
            large.finish()


class _LargeMessage:
    """A message too large to be joined: its fields are read in passing, and its CRC is compared last."""

    __slots__ = ("_crc", "_end", "_header", "_key", "_reader", "_start", "_value", "_value_is_null")

    def __init__(self, reader: PieceReader, header: MessageHeader) -> None:
        self._reader = reader
        self._header = header
        self._start = reader.offset
        self._end = self._start + header.size
        self._crc = 0
        self._key: Iterator[bytes] = iter(())
        self._value: Iterator[bytes] = iter(())
        self._value_is_null: bool | None = None
        reader.skip(_CRC_COVERED_POSITION)
        self._take(_KEY_POSITION[header.magic] - _CRC_COVERED_POSITION)

    def message(self, magic: int) -> Message:
        try:
            _check_inner(self._header, magic)
            size = self._length(self._end - self._reader.offset - _LENGTH.size)
            value_size = self._end - self._reader.offset - max(size, 0) - _LENGTH.size
            if value_size < 0:
                raise Malformed("message ends before a length")
        except Malformed:
            self._read_over()
            raise
        self._key = self._chunks(max(size, 0))
        self._value = self._chunks(value_size)
        return (
            self._header.offset,
            self._header.timestamp,
            None if size == _NULL_LENGTH else Chunks(size, self._key, lambda: False),
            Chunks(value_size, self._value, lambda: self._has_null_value(value_size)),
            (),
        )

    def finish(self) -> None:
        """Read the fields that the caller has not read.

        Raises:
            Malformed: the message is damaged or cut off.
        """
        for _ in self._key:
            pass
        if self._value_is_null is None:
            self._has_null_value(self._end - self._reader.offset - _LENGTH.size)
        self._read_over()

    def _has_null_value(self, size: int) -> bool:
        if self._value_is_null is None:
            try:
                length = self._length(size)
                if max(length, 0) != size:
                    raise Malformed(f"{size - max(length, 0)} bytes after the value of a message")
            except Malformed:
                self._read_over()
                raise
            self._value_is_null = length == _NULL_LENGTH
        return self._value_is_null

    def _length(self, left: int) -> int:
        length: int = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        if length != _NULL_LENGTH and not 0 <= length <= left:
            raise Malformed(f"{length} bytes in a message where {left} are left")
        return length

    def _read_over(self) -> None:
        for _ in self._chunks(self._end - self._reader.offset):
            pass
        if self._crc != self._header.crc:
            raise Malformed(f"message is corrupt (stored crc = {self._header.crc})")

    def _take(self, count: int) -> bytes:
        return b"".join(self._chunks(count))

    def _chunks(self, count: int) -> Iterator[bytes]:
        try:
            for chunk in self._reader.chunks(count):
                self._crc = zlib.crc32(chunk, self._crc)
                yield chunk
        except IndexError:
            raise Malformed(f"{self._reader.offset - self._start} bytes after the last inner message") from None


def _check_inner(header: MessageHeader, magic: int) -> None:
    if header.magic != magic:
        raise ForbiddenMessage(f"message of magic {header.magic} among those of magic {magic}")
    if header.attributes & _CODEC_MASK:
        raise ForbiddenMessage("compressed message among others")


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


# --- writing ----------------------------------------------------------------------------------------------------------


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Build messages with the records' offsets, in one wrapper if there is a codec. Headers are dropped.

    With LogAppendTime all records must have the same timestamp. zstd is not supported. It takes the memory of the
    result, of one piece of the messages and of one record.
    """
    assert compression is not Compression.ZSTD
    attributes = _LOG_APPEND_TIME_BIT if magic and timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    data = bytearray()
    if compression is Compression.NONE:
        for offset, record_timestamp, key, value, _ in records:
            write_message(data, offset, record_timestamp, key, value, magic, attributes)
        return bytes(data)
    compressed = BoundedCompression(compression, level, sys.maxsize)
    base_offset = last_offset = None
    timestamp = NO_TIMESTAMP
    for offset, record_timestamp, key, value, _ in records:
        last_offset = offset
        if base_offset is None:
            base_offset, timestamp = offset if magic else 0, record_timestamp
        if record_timestamp > timestamp:
            timestamp = record_timestamp
        write_message(data, offset - base_offset, record_timestamp, key, value, magic, attributes)
        if len(data) >= PIECE_SIZE:
            compressed.write(bytes(data))
            data.clear()
    if last_offset is None:
        return b""
    if data:
        compressed.write(bytes(data))
        data.clear()
    wrapped = compressed.finish()
    if compression is Compression.LZ4 and magic == 0:
        from protocol.records.lz4_frame import with_historic_checksum  # on demand: only old clients need it

        wrapped = bytes(with_historic_checksum(wrapped or b""))
    write_message(data, last_offset, timestamp, None, wrapped, magic, attributes | compression)
    return bytes(data)
