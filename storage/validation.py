"""What a leader accepts into its log, and in which form (docs/formats/record-batch.md).

Owns the decision over one partition's records of a produce request: refuse them, take the bytes as they are, or
rebuild them as one batch of magic 2. Pure: the log hands in its next offset, its leader epoch and the time. Must not
know files, producers (the log asks `producer_state` next, with the header that it gets from here), or who waits.

Invariants: when it raises, nothing was written into the caller's buffer; what is accepted is always exactly one batch;
a batch that needs no conversion keeps its bytes apart from base offset, leader epoch and, with LogAppendTime, timestamp
type, max timestamp and CRC.

The hot path
------------
Every batch is checked as Kafka checks it, whatever its size: that it holds as many records as it counts, that each
field ends within its record, and that the offset deltas count up from 0. Any of these, stored, would stop consumers or
show them offsets that the log does not have. `protocol.records.regularity` proves it for a batch as clients send them
at a small part of the cost of parsing, and only what it cannot prove is parsed: then the batch is refused with the
number of the record that is wrong, or rebuilt if only its offset deltas are, as Kafka does with compressed batches.

What that proof costs (one core, two more busy): one record of 100 bytes 0.5 us, of 16 KB 1.5 us; 16 KB of 16 records of
one size 2.5 us, of 160 records of one size 5 us, of 160 records that all differ in size 60 us, which is 0.4 us each. A
compressed batch has to be decompressed for it. Rejected: to step over the records by their lengths alone, which costs
0.06 us each but says nothing about what is in them; and to look at some of the batches only. Both let through what
stops consumers for good.

A batch whose codec is the topic's, for a topic that is not compacted and has no window for timestamps, is not opened
further. What is not looked at is the records' timestamps against max_timestamp. That steers the time index and
retention, and a producer may write any time into its records anyway. A look-up by time opens the batch that the index
names, and goes on to the next one if no record in it qualifies.

Opening each record is demanded by a compacted topic (keys), a timestamp window, another codec than the topic's, and a
client's claim of LogAppendTime that has to be undone. The first two, and the proof, are taken on trust from the
broker's own coordinators.

Memory
------
A batch may open to 100 MiB, but only a piece of about 1 MiB exists at a time. The proof and the checks read over a
record that is larger; a conversion writes each piece into a compressor and gives up beyond max.message.bytes. Data that
cannot be decompressed is the first reason to refuse a batch, so what is left is opened before a record is blamed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from config.log_config import LogConfig
from config.topic_properties import LONG_MAX
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records import legacy
from protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERED_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    START,
    TRANSACTIONAL_BIT,
    BatchHeader,
    HeaderBudget,
    Parts,
    Record,
    TimestampType,
    TooManyHeadersError,
    parse_records,
    plain_pieces,
    read_header,
    set_offset_and_epoch,
    set_timestamps,
)
from protocol.records.builder import BatchWriter, assemble, renumbered
from protocol.records.compression import BoundedCompression, Buffer, CannotOpen, Compression, OpensTooFar
from protocol.records.regularity import are_regular, are_regular_pieces, is_one_plain

# A batch may open to what could also have been sent plain: the default of socket.request.max.bytes.
PLAIN_SIZE_MAX = 100 << 20

# Of a batch with more failing records than this the rest is not named, so that the answer stays small.
RECORD_ERRORS_MAX = 1000

# Batches with a base timestamp beyond are parsed, which finds a sum of base and delta that is no int64.
_BASE_TIMESTAMP_BITS = 62
_BASE_TIMESTAMP_MAX = 1 << _BASE_TIMESTAMP_BITS

_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class
_unpack_header = HEADER.unpack_from
_pack_start = START.pack_into

# Records from this size on that must be opened take more than a millisecond; decompressing alone is cheaper.
COSTLY_SIZE = 16 << 10
COSTLY_COMPRESSED_SIZE = 64 << 10
COSTLY_RECORDS_COUNT = 4096  # if no two of them have one size
HEADERS_MAX = 4096  # of all records of a batch; to read one takes 0.2 us

# What a compressed batch may open to on the event loop: a few milliseconds of gzip, and less when each record has to be
# looked at and perhaps compressed again.
OPENED_SIZE_MAX = 256 << 10
CONVERTED_SIZE_MAX = 64 << 10
NO_LEADER_EPOCH = -1

_MESSAGE_SIZE_MIN = LOG_OVERHEAD + 14  # what a message of magic 0 has around its key and value

_LOG_APPEND_TIME = "LogAppendTime"
_COMPACT = "compact"
_INT64_MIN = -(1 << 63)
_PLAIN_ATTRIBUTES = (0, TRANSACTIONAL_BIT)
_OUR_ATTRIBUTES = (*_PLAIN_ATTRIBUTES, TRANSACTIONAL_BIT | CONTROL_BIT)
_CODECS_BY_CONFIG = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class AppendOrigin(Enum):
    """Who appends. Decides which formats are taken and what only a coordinator may write."""

    CLIENT = "Produce 7 and up"
    CLIENT_BEFORE_ZSTD = "Produce 3 to 6"
    OLD_CLIENT = "Produce 0 to 2, which also carry message sets of magic 0 and 1"
    COORDINATOR = "the broker itself: offsets, transaction states, markers"

    @classmethod
    def of_produce_version(cls, version: int) -> AppendOrigin:
        if version >= 7:
            return cls.CLIENT
        return cls.CLIENT_BEFORE_ZSTD if version >= 3 else cls.OLD_CLIENT

    @property
    def knows_zstd(self) -> bool:
        return self in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)


_OLD_CLIENT = AppendOrigin.OLD_CLIENT
_COORDINATOR = AppendOrigin.COORDINATOR


class RejectionMeter(Enum):
    """The meters that count refused records, by what was wrong with them."""

    INVALID_MAGIC_NUMBER = "InvalidMagicNumberRecordsPerSec"
    INVALID_MESSAGE_CRC = "InvalidMessageCrcRecordsPerSec"
    INVALID_OFFSET_OR_SEQUENCE = "InvalidOffsetOrSequenceRecordsPerSec"
    NO_KEY_COMPACTED_TOPIC = "NoKeyCompactedTopicRecordsPerSec"


class Refusal(NamedTuple):
    """Why records are refused: what is kept of the error until the response is built.

    The error itself holds a traceback, whose frames hold the request and all that was opened of it.
    """

    code: ErrorCode
    message: str
    meter: RejectionMeter | None = None
    record_errors: Sequence[tuple[int, str]] = ()

    @classmethod
    def of(cls, error: KafkaError) -> Refusal:
        if isinstance(error, RecordsRejected):
            return cls(error.code, error.message, error.meter, error.record_errors)
        return cls(error.code, error.message)


class RecordsRejected(KafkaError):  # noqa: N818 - it says what happened to the records
    """The records are refused. `record_errors` names single ones by their index, where single ones are at fault."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        meter: RejectionMeter | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(code, message)
        self.meter = meter
        self.record_errors = list(record_errors)


class TimestampWindow(NamedTuple):
    """How far a producer's timestamp may lie behind and ahead of the broker's clock."""

    before_max_ms: int
    after_max_ms: int


@dataclass(frozen=True, slots=True)
class AppendRules:
    """What a topic's configuration says about the records it takes. Derived once a configuration, not once a batch."""

    is_compacted: bool = False
    compression: Compression | None = None  # None: whatever the producer used
    level: int | None = None
    is_log_append_time: bool = False
    timestamp_window: TimestampWindow | None = None  # None: any time will do
    max_message_bytes: int = 1048588
    segment_bytes: int = 1 << 30
    plain_size_max: int = field(init=False)
    """Up to which size nothing is done to a batch that is not compressed; 0 where something is done to all."""
    our_plain_size_max: int = field(init=False)
    """The same for a coordinator's batch."""

    def __post_init__(self) -> None:
        size_max = min(self.max_message_bytes, self.segment_bytes)
        keep_ours = not self.is_log_append_time and self.compression in (None, Compression.NONE)
        keep_all = keep_ours and not self.is_compacted and self.timestamp_window is None
        object.__setattr__(self, "plain_size_max", size_max if keep_all else 0)
        object.__setattr__(self, "our_plain_size_max", size_max if keep_ours else 0)

    @classmethod
    def of(cls, config: LogConfig) -> AppendRules:
        compression = _CODECS_BY_CONFIG.get(config.compression_type)
        levels = {
            Compression.GZIP: config.compression_gzip_level,
            Compression.LZ4: config.compression_lz4_level,
            Compression.ZSTD: config.compression_zstd_level,
        }
        is_log_append_time = config.message_timestamp_type == _LOG_APPEND_TIME
        window = TimestampWindow(config.timestamp_before_max_ms, config.timestamp_after_max_ms)
        is_open = is_log_append_time or window == (LONG_MAX, LONG_MAX)
        return cls(
            is_compacted=_COMPACT in config.cleanup_policy,
            compression=compression,
            level=None if compression is None else levels.get(compression),
            is_log_append_time=is_log_append_time,
            timestamp_window=None if is_open else window,
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
        )


class ValidatedAppend(NamedTuple):
    """One batch, ready to be written. `header` is what stands in `records`, except where the batch goes.

    Its base offset and leader epoch may be those that were sent: who appends knows the right ones.
    """

    records: Buffer
    header: BatchHeader
    log_append_time_ms: int  # -1 with CreateTime
    records_converted: int  # records that had to be encoded or compressed again, for the conversion meters


class PreparedAppend(NamedTuple):
    """Records that were decided on before their place in the log was known."""

    validated: ValidatedAppend | None  # at offset 0, without a leader epoch
    size: int
    """Bytes of the records as they were received."""

    def at(self, next_offset: int, leader_epoch: int) -> ValidatedAppend | None:
        """The batch at its place; to be asked once, when nothing can come in between any more."""
        if self.validated is None:
            return None
        data, header, log_append_time_ms, records_converted = self.validated
        records = memoryview(data)
        set_offset_and_epoch(records, 0, next_offset, leader_epoch)
        return _new_tuple(ValidatedAppend, (records, header, log_append_time_ms, records_converted))


class TooCostlyError(Exception):
    """The decision on some records would take milliseconds, which its caller must not wait for. Nothing has changed."""


def first_batch(records: Buffer) -> Buffer:
    """Return what there is to prepare of `records` that were too costly: without a batch of magic 2 that is cut off."""
    if records[MAGIC_POSITION] != MAGIC:
        return records
    return records[: LOG_OVERHEAD + int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True)]


def prepare(records: memoryview, rules: AppendRules, *, now_ms: int, origin: AppendOrigin) -> PreparedAppend | Refusal:
    """Do all of `validate_and_assign_offsets` that does not need the log, however long it takes; for any thread."""
    try:
        validated = validate_and_assign_offsets(
            records, rules, next_offset=0, leader_epoch=NO_LEADER_EPOCH, now_ms=now_ms, origin=origin
        )
    except KafkaError as error:
        return Refusal.of(error)
    if validated is not None and isinstance(validated.records, bytes):
        validated = validated._replace(records=bytearray(validated.records))  # to be patched
    return PreparedAppend(validated, len(records))


def validate_and_assign_offsets(
    records: memoryview,
    rules: AppendRules,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    may_take_long: bool = True,
) -> ValidatedAppend | None:
    """Return the batch to append at `next_offset`; None when an old client sent nothing whole, which is no error.

    Where no conversion is needed the result is a view of `records`, patched in place. Raises KafkaError, as
    RecordsRejected where single records or a meter have to be named. Unless it `may_take_long`, raises TooCostlyError
    for what would take milliseconds; what was begun in vain is bounded.
    """
    try:
        header = _plain_header(records, rules, origin, may_take_long)
        if header is not None:
            _pack_start(records, 0, next_offset, header[1], leader_epoch)
            return _new_tuple(ValidatedAppend, (records, header, NO_TIMESTAMP, 0))
        return _validate_closely(records, rules, next_offset, leader_epoch, now_ms, origin, may_take_long)
    except (OpensTooFar, TooManyHeadersError) as error:
        raise TooCostlyError(str(error)) from None


def _plain_header(
    records: memoryview, rules: AppendRules, origin: AppendOrigin, may_take_long: bool
) -> BatchHeader | None:
    """Return the header of a good batch to which nothing is to be done, as most clients send to most topics.

    None when that cannot be told at one look: then `_validate_closely` decides. Nothing is changed.
    """
    size = len(records)
    is_ours = origin is _COORDINATOR
    if size > (rules.our_plain_size_max if is_ours else rules.plain_size_max) or size < HEADER_SIZE:
        return None
    fields = _unpack_header(records)
    base_offset, length, _, magic, crc, attributes, delta, base_time, _, producer_id, _, sequence, count = fields
    if (
        length != size - LOG_OVERHEAD
        or magic != MAGIC
        or base_offset
        or (attributes and attributes not in (_OUR_ATTRIBUTES if is_ours else _PLAIN_ATTRIBUTES))
        or count != delta + 1
    ):
        return None
    if count >= COSTLY_RECORDS_COUNT and not may_take_long:
        raise TooCostlyError(f"{count} records")
    if crc32c(records[CRC_COVERED_POSITION:]) != crc:
        return None
    if is_ours:
        if count <= 0:
            return None
    elif (sequence < 0 and producer_id > NO_PRODUCER_ID) or not (
        (count == 1 and not base_time >> _BASE_TIMESTAMP_BITS and is_one_plain(records, HEADER_SIZE))
        or (
            count > 0
            and -_BASE_TIMESTAMP_MAX < base_time < _BASE_TIMESTAMP_MAX
            and are_regular(records[HEADER_SIZE:], count, _header_budget(may_take_long))
        )
    ):
        return None
    return _new_tuple(BatchHeader, fields)


def _validate_closely(
    records: memoryview,
    rules: AppendRules,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    may_take_long: bool,
) -> ValidatedAppend | None:
    """Decide on records that are not plain.

    Raises as `validate_and_assign_offsets`; OpensTooFar or TooManyHeadersError for what is too costly.
    """
    if origin is _OLD_CLIENT and len(records) > MAGIC_POSITION and records[MAGIC_POSITION] in legacy.LEGACY_MAGICS:
        if len(records) >= COSTLY_SIZE and not may_take_long:
            raise TooCostlyError(f"{len(records)} bytes of an old format")
        plain_size_max = PLAIN_SIZE_MAX if may_take_long else CONVERTED_SIZE_MAX
        return _validate_message_set(records, rules, next_offset, leader_epoch, now_ms, plain_size_max)
    header = _first_header(records, origin)
    if header is None:
        return None
    size = LOG_OVERHEAD + header.batch_length
    if size != len(records):
        records = _without_rest(records, size)
    # Before the batch is found too costly: its caller copies it, and what is too large is not worth a copy.
    _check_extent(records, header, rules)
    must_open = _must_open(header, rules, origin)
    plain_size_max = PLAIN_SIZE_MAX
    budget = _header_budget(may_take_long)
    if not may_take_long:
        plain_size_max = CONVERTED_SIZE_MAX if must_open else OPENED_SIZE_MAX
        if (
            header.records_count >= COSTLY_RECORDS_COUNT
            or (must_open and size >= COSTLY_SIZE)
            or (header.attributes & CODEC_MASK and size >= COSTLY_COMPRESSED_SIZE)
        ):
            raise TooCostlyError(f"{header.records_count} records in {size} bytes")
    _check_batch(records, header, rules, origin)
    try:
        if must_open or (origin is not _COORDINATOR and not _is_regular(records, header, plain_size_max, budget)):
            return _validate_opened(records, header, rules, next_offset, leader_epoch, now_ms, plain_size_max, budget)
    except CannotOpen as error:
        if isinstance(error, OpensTooFar) and plain_size_max < PLAIN_SIZE_MAX:
            raise
        raise _corrupt(f"Record batch cannot be decompressed: {error}") from None
    set_offset_and_epoch(records, 0, next_offset, leader_epoch)
    if rules.is_log_append_time:
        set_timestamps(records, 0, header.attributes | LOG_APPEND_TIME_BIT, now_ms)
        return ValidatedAppend(records, read_header(records), now_ms, records_converted=0)
    return ValidatedAppend(records, header, NO_TIMESTAMP, records_converted=0)


def _header_budget(may_take_long: bool) -> HeaderBudget | None:
    return None if may_take_long else HeaderBudget(HEADERS_MAX)


# --- which batch ------------------------------------------------------------------------------------------------------


def _first_header(records: memoryview, origin: AppendOrigin) -> BatchHeader | None:
    """The header of the first batch, which is all there. None or RecordsRejected when nothing whole was sent."""
    try:
        header = read_header(records)
        if LOG_OVERHEAD + header.batch_length <= len(records):
            return header
    except Malformed as error:
        _reject_malformed_batch(records, error)
    if origin is _OLD_CLIENT:
        return None
    raise _rejected("Produce requests must have exactly one record batch per partition, and this has no whole one")


def _reject_malformed_batch(records: memoryview, error: Malformed) -> None:
    if len(records) <= MAGIC_POSITION:
        return
    is_batch = records[MAGIC_POSITION] == MAGIC
    if _size_at_start(records) < (HEADER_SIZE if is_batch else _MESSAGE_SIZE_MIN):
        raise _corrupt(f"Record batch is corrupt: {error}")
    if not is_batch:
        raise _rejected(f"Record batch is invalid: {error}", RejectionMeter.INVALID_MAGIC_NUMBER)


def _without_rest(records: memoryview, size: int) -> memoryview:
    """The first batch alone. A second one must not follow; if one is cut off it was not sent."""
    rest = records[size:]
    if len(rest) > MAGIC_POSITION:
        next_size = _size_at_start(rest)
        if next_size <= LOG_OVERHEAD:
            raise _corrupt(f"Record batch is followed by {len(rest)} bytes that are no batch")
        if next_size <= len(rest):
            raise _rejected("Produce requests must have exactly one record batch per partition, and this has more")
    return records[:size]


def _size_at_start(records: memoryview) -> int:
    return LOG_OVERHEAD + int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True)


# --- what its header says ---------------------------------------------------------------------------------------------


def _check_extent(batch: memoryview, header: BatchHeader, rules: AppendRules) -> None:
    if header.base_offset:
        raise _rejected(
            f"The base offset of the record batch should be 0, but it is {header.base_offset}",
            RejectionMeter.INVALID_OFFSET_OR_SEQUENCE,
        )
    _check_size(len(batch), rules)


def _check_batch(batch: memoryview, header: BatchHeader, rules: AppendRules, origin: AppendOrigin) -> None:
    if crc32c(batch[CRC_COVERED_POSITION:]) != header.crc:
        raise _corrupt(f"Record batch is corrupt (stored crc = {header.crc})")
    count = header.records_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise _rejected(
            f"Record batch counts {count} records for the offsets 0 to {header.last_offset_delta}",
            RejectionMeter.INVALID_OFFSET_OR_SEQUENCE,
        )
    if header.attributes:
        _check_attributes(header, rules, origin)
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0 and origin is not AppendOrigin.COORDINATOR:
        raise _rejected(
            f"Invalid sequence number {header.base_sequence} in record batch with producer id {header.producer_id}",
            RejectionMeter.INVALID_OFFSET_OR_SEQUENCE,
        )


def _check_attributes(header: BatchHeader, rules: AppendRules, origin: AppendOrigin) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > Compression.ZSTD:
        raise _rejected(f"Unknown compression type id: {codec}")
    if codec == Compression.ZSTD and not origin.knows_zstd:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Produce requests before version 7 cannot use ZStandard compression"
        )
    if header.is_control and origin is not AppendOrigin.COORDINATOR:
        raise _rejected("Clients are not allowed to write control records")
    if header.attributes & LOG_APPEND_TIME_BIT and (rules.is_log_append_time or header.max_timestamp == NO_TIMESTAMP):
        raise _false_append_time(header.records_count)


def _check_size(size: int, rules: AppendRules) -> None:
    if size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {size} bytes, which exceeds the maximum configured value of "
            f"{rules.max_message_bytes}",
        )
    if size > rules.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch size is {size} bytes, which exceeds the maximum configured segment size of "
            f"{rules.segment_bytes}",
        )


def _is_regular(batch: memoryview, header: BatchHeader, plain_size_max: int, budget: HeaderBudget | None) -> bool:
    """See "The hot path" above. Raises CannotOpen and TooManyHeadersError."""
    if abs(header.base_timestamp) >= _BASE_TIMESTAMP_MAX:
        return False
    if not header.attributes & CODEC_MASK:
        return are_regular(batch[HEADER_SIZE:], header.records_count, budget)
    pieces = plain_pieces(batch, 0, header, size_max=plain_size_max)
    return are_regular_pieces(pieces, header.records_count, budget)


# --- what its records say ---------------------------------------------------------------------------------------------


def _must_open(header: BatchHeader, rules: AppendRules, origin: AppendOrigin) -> bool:
    """What the broker itself has just built has keys and the present time; it is opened only to be converted."""
    return (
        ((rules.is_compacted or rules.timestamp_window is not None) and origin is not AppendOrigin.COORDINATOR)
        or (rules.compression is not None and rules.compression != header.attributes & CODEC_MASK)
        or header.attributes & LOG_APPEND_TIME_BIT != 0
    )


def _validate_opened(
    batch: memoryview,
    header: BatchHeader,
    rules: AppendRules,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    plain_size_max: int,
    budget: HeaderBudget | None,
) -> ValidatedAppend:
    source = header.compression
    # Markers stay as they are: they are too small to gain anything, and nobody expects them compressed.
    target = source if rules.compression is None or header.is_control else rules.compression
    # What a client says about append time is not taken over: the records' own times count.
    attributes = header.attributes & ~(LOG_APPEND_TIME_BIT | CODEC_MASK) | target
    as_sent = header._replace(attributes=attributes)
    converted = None if source == target else BoundedCompression(target, rules.level, _records_size_max(rules))
    pieces = plain_pieces(batch, 0, header, size_max=plain_size_max)
    checked = _check_records(
        parse_records(pieces if converted is None else _written(pieces, converted), as_sent, Parts.OUTLINE, budget),
        header.records_count,
        rules,
        now_ms,
    )
    if checked.refusal is not None:
        _exhaust(pieces)  # what cannot be opened further on is the first thing to be said
        raise RecordsRejected(*checked.refusal)
    max_timestamp = checked.max_timestamp

    log_append_time_ms = NO_TIMESTAMP
    if rules.is_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
        log_append_time_ms = max_timestamp = now_ms

    if converted is None and checked.is_sequential:
        if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
            set_timestamps(batch, 0, attributes, max_timestamp)
        set_offset_and_epoch(batch, 0, next_offset, leader_epoch)
        return ValidatedAppend(batch, read_header(batch), log_append_time_ms, records_converted=0)

    if converted is None or not checked.is_sequential:
        converted = BoundedCompression(target, rules.level, _records_size_max(rules))
        pieces = plain_pieces(batch, 0, header, size_max=plain_size_max)
        _exhaust(_written(renumbered(pieces, header.records_count), converted))
    header = header._replace(
        base_offset=next_offset,
        partition_leader_epoch=leader_epoch,
        attributes=attributes,
        max_timestamp=max_timestamp,
    )
    content = converted.finish()
    if content is None:
        raise _too_large_once_converted(rules)
    rebuilt = assemble(header, content)
    _check_size(len(rebuilt), rules)
    return ValidatedAppend(rebuilt, read_header(rebuilt), log_append_time_ms, records_converted=header.records_count)


def _written(pieces: Iterable[bytes], converted: BoundedCompression) -> Iterator[bytes]:
    """The pieces, each after it was written."""
    for piece in pieces:
        converted.write(piece)
        yield piece


def _exhaust(items: Iterator[object]) -> None:
    deque(items, maxlen=0)


def _records_size_max(rules: AppendRules) -> int:
    return rules.max_message_bytes - HEADER_SIZE


def _too_large_once_converted(rules: AppendRules) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The converted record batch exceeds the maximum configured value of {rules.max_message_bytes} bytes",
    )


def _validate_message_set(
    records: memoryview, rules: AppendRules, next_offset: int, leader_epoch: int, now_ms: int, plain_size_max: int
) -> ValidatedAppend | None:
    """All messages of the set as one batch: only magic 2 is stored."""
    with _message_set_refused(plain_size_max):
        message_set = legacy.read_message_set(records, size_max=plain_size_max)
    append_time_ms = now_ms if rules.is_log_append_time else None
    writer = BatchWriter(
        message_set.compression if rules.compression is None else rules.compression,
        rules.level,
        TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME,
        rules.max_message_bytes,
    )
    checked = _check_records(_written_records(message_set, writer, append_time_ms, plain_size_max), 0, rules, now_ms)
    with _message_set_refused(plain_size_max):
        _exhaust(message_set.records)
    if not message_set.count:
        return None
    _check_size(message_set.entry_size_max, rules)
    if message_set.claims_append_time and (rules.is_log_append_time or message_set.lacks_timestamp):
        raise _false_append_time(message_set.count)
    if checked.refusal is not None:
        raise RecordsRejected(*checked.refusal)
    batch = writer.finish(base_offset=next_offset, leader_epoch=leader_epoch)
    if batch is None:
        raise _too_large_once_converted(rules)
    _check_size(len(batch), rules)
    log_append_time_ms = NO_TIMESTAMP if append_time_ms is None else append_time_ms
    return ValidatedAppend(batch, read_header(batch), log_append_time_ms, records_converted=message_set.count)


def _written_records(
    message_set: legacy.MessageSet, writer: BatchWriter, append_time_ms: int | None, plain_size_max: int
) -> Iterator[legacy.Message]:
    """The messages, each after it was written. Raises KafkaError."""
    with _message_set_refused(plain_size_max):
        for message in message_set.records:
            _, timestamp, key, value, _ = message
            writer.add(timestamp if append_time_ms is None else append_time_ms, key, value)
            yield message


@contextmanager
def _message_set_refused(plain_size_max: int) -> Iterator[None]:
    """Turns what is wrong with a message set into its code."""
    try:
        yield
    except legacy.ZstdMessage as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None
    except legacy.ForbiddenMessage as error:
        raise _rejected(f"Message set is invalid: {error}") from None
    except Malformed as error:
        if isinstance(error, OpensTooFar) and plain_size_max < PLAIN_SIZE_MAX:
            raise
        raise _corrupt(f"Message set is corrupt: {error}") from None


class _Checked(NamedTuple):
    """What is known of a batch's records when all were looked at, or enough to refuse them."""

    max_timestamp: int
    is_sequential: bool  # the offsets are 0, 1, 2, ...
    refusal: Refusal | None


def _check_records(records: Iterable[Record | legacy.Message], count: int, rules: AppendRules, now_ms: int) -> _Checked:
    """Look at the times and keys of records that count their offsets from 0.

    Any failing record refuses the whole batch: with code 32 when a time is among what is wrong, else with 87. One that
    cannot be parsed is the last that is looked at. Raises CannotOpen.
    """
    earliest_ms, latest_ms = _window(rules.timestamp_window, now_ms)
    is_compacted = rules.is_compacted
    without_key: list[tuple[int, str]] = []
    out_of_window: list[tuple[int, str]] = []
    max_timestamp = _INT64_MIN
    is_sequential = True
    index = -1
    refusal = None
    try:
        for index, (offset, timestamp, key, _, _) in enumerate(records):
            if offset != index:
                is_sequential = False
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if key is None and is_compacted:
                without_key.append((index, "Compacted topic cannot accept message without key."))
            elif not earliest_ms <= timestamp <= latest_ms and timestamp != NO_TIMESTAMP:
                message = (
                    f"Timestamp {timestamp} of message with offset {index} is out of range. "
                    f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
                )
                out_of_window.append((index, message))
            else:
                continue
            if len(without_key) + len(out_of_window) == RECORD_ERRORS_MAX:
                break
        refusal = _refusal_of(without_key, out_of_window)
    except CannotOpen:
        raise
    except Malformed as error:
        refusal = _refusal_of_damage(error, index + 1, count)
    return _new_tuple(_Checked, (max_timestamp, is_sequential, refusal))


def _refusal_of(without_key: list[tuple[int, str]], out_of_window: list[tuple[int, str]]) -> Refusal | None:
    if out_of_window:
        return Refusal(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            record_errors=sorted(without_key + out_of_window),
        )
    if without_key:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(without_key)} record errors in total, the first at "
            f"index {without_key[0][0]}: {without_key[0][1]}",
            RejectionMeter.NO_KEY_COMPACTED_TOPIC,
            without_key,
        )
    return None


def _refusal_of_damage(error: Malformed, index: int, count: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_RECORD,
        f"Record batch is invalid: {error}",
        record_errors=[(index, f"Record cannot be read: {error}")] if index < count else (),
    )


def _window(window: TimestampWindow | None, now_ms: int) -> tuple[int, int]:
    if window is None:
        return _INT64_MIN, LONG_MAX
    return now_ms - window.before_max_ms, now_ms + window.after_max_ms


def _false_append_time(records_count: int) -> RecordsRejected:
    message = "Invalid timestamp type. Producer should not set timestamp type to LogAppendTime."
    return RecordsRejected(
        ErrorCode.INVALID_TIMESTAMP,
        message,
        record_errors=[(index, message) for index in range(min(records_count, RECORD_ERRORS_MAX))],
    )


# --- from Malformed to the code ---------------------------------------------------------------------------------------


def _rejected(message: str, meter: RejectionMeter | None = None) -> RecordsRejected:
    return RecordsRejected(ErrorCode.INVALID_RECORD, message, meter=meter)


def _corrupt(message: str) -> RecordsRejected:
    return RecordsRejected(ErrorCode.CORRUPT_MESSAGE, message, meter=RejectionMeter.INVALID_MESSAGE_CRC)
