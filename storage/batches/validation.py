"""The leader's validation of the records of a produce request (docs/formats/record-batch.md).

Owns the decision about the records of one partition: reject them, append the bytes as they are, or rebuild them as one
batch of magic 2. Pure: the log passes its next offset, its leader epoch and the time. Must not know files, producers
(the log passes the returned header to `producer_state` next), or who waits for the response.

Invariants:
- If a function raises, it has not written to the caller's buffer.
- Accepted records are always exactly one batch.
- A batch that needs no conversion keeps its bytes except base offset, leader epoch and, with LogAppendTime, timestamp
  type, max timestamp and CRC.

Each check decides or passes the records on:

    plain path      _plain_header       one batch, not compressed, for a topic that changes nothing
                    | None
    full path       _validate_fully     magic 0 or 1: _validate_message_set, which builds a new batch
                    |                   magic 2: extent, CRC and header fields
                    | _is_regular       proves the records without parsing them; then the batch is patched in place
                    | not proven, or their timestamps or codec matter
                    _validate_records   proves or parses the records; patches the batch or builds a new one

Regularity
----------
Every batch is checked as Kafka checks it, whatever its size: it holds as many records as its header says, each field
ends within its record, and the offset deltas are 0, 1, 2, ... A stored batch that breaks one of these rules would stop
consumers or show them offsets that do not exist. For batches as clients send them, `protocol.records.regularity` proves
the rules at a fraction of the cost of parsing. A batch without this proof is parsed. It is then rejected with the index
of the invalid record. If only its offset deltas are wrong, it is rebuilt, as Kafka does with compressed batches.

The proof reads every field but the content of keys and values. Compiled it costs 0.25 us for a batch and 0.02 us for
each record, interpreted 2 us for each record. A compressed batch must be decompressed for it. Two cheaper checks were
rejected because invalid records would pass them and stop consumers for good: stepping over the records by their lengths
alone, and checking only a sample of the batches.

The timestamps of a regular batch are not read if its codec is the topic's and the topic has no timestamp window. Then
they are not compared with max_timestamp, which determines the time index and retention. A producer may write any time
into its records anyway. A lookup by time reads the batch that the index names, and the batches after it if no record in
it qualifies. If the topic is compacted, the proof includes that each record has a key.

The timestamps are read for a timestamp window, records that are compressed again, and a client's claim of
LogAppendTime, which must be reverted. If the batch is regular and opens to one piece, the earliest and the latest
timestamp decide, which takes a quarter of the time of parsing. Otherwise, and if one of them is outside the window,
each record is parsed: the response names those that are invalid. Batches of the broker's own coordinators are trusted:
their regularity, keys and timestamps are not checked.

Memory
------
Whatever a batch opens to, only a piece of about 1 MiB is in memory at a time. The proof and the checks skip over the
content of a larger record. A conversion writes each piece into a compressor and stops at max.message.bytes. Data that
cannot be decompressed is the first reason to reject a batch, so the rest is decompressed before a record is reported.

Time
----
Opening a batch takes time in proportion to its plain size, so that is limited by who waits:

    on the event loop               1 MiB, or less for slow codecs and conversions
    in a thread that others share   100 MiB, with zstd windows of up to 8 MiB
    in a thread for such batches    1,032 times the compressed size, but at least 100 MiB and at most 2 GiB, with zstd
                                    windows of up to 128 MiB; such a window is in memory

No data of gzip, snappy or lz4 opens to more than 1,032 times its size; zstd does for long runs of equal bytes. With the
factor, each byte that a client sends causes a bounded amount of work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from enum import Enum
from itertools import chain
from typing import NamedTuple

from base.dataclass import dataclass
from config.log_config import LogConfig
from config.topic_properties import LONG_MAX
from protocol.crc import crc32c
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
from protocol.records.builder import BatchWriter, TimestampTooFar, assemble, renumbered
from protocol.records.compression import (
    PLAIN_SIZE_MAX,
    RESIDENT_SIZE_MAX,
    USUAL_WINDOW_SIZE,
    BoundedCompression,
    Buffer,
    CannotOpen,
    Compression,
    OpensTooFar,
)
from protocol.records.plain_messages import Message
from protocol.records.plain_records import ANY_NUMBER, pass_regular, timestamp_deltas
from protocol.records.regularity import are_regular, are_regular_pieces

# The decompressed size of a batch that is opened in a thread that others share: what a client could send uncompressed
# by default, see socket.request.max.bytes.
SHARED_PLAIN_SIZE_MAX = 100 << 20
# How many bytes may come from one byte in a thread that only such batches use: gzip expresses no more.
PLAIN_RATIO_MAX = 1032

# At most this many invalid records of a batch are reported, so that the response stays small.
RECORD_ERRORS_MAX = 1000

# Batches with a base timestamp beyond this are parsed, which detects a sum of base and delta that is no int64.
_BASE_TIMESTAMP_MAX = 1 << 62

_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class
_unpack_header = HEADER.unpack_from
_pack_start = START.pack_into
_CRC_COVERED = slice(CRC_COVERED_POSITION, None)

# Parsing messages of an old format takes more than a millisecond from this size on.
COSTLY_SIZE = 16 << 10
COSTLY_RECORDS_COUNT = 4096  # interpreted, their check takes 8 ms
HEADERS_MAX = 4096  # in all records of a batch; interpreted, reading one takes 0.6 us

# A compressed batch of this size is not opened on the event loop: it may consist of many tiny blocks, and to open one
# costs as much as to open thousands of bytes.
COSTLY_COMPRESSED_SIZE = 64 << 10
# The decompressed size that a smaller batch may have there: a few milliseconds. gzip takes five times as long as the
# other codecs. The limit is lower if the timestamps of the records are read, because the records are perhaps compressed
# again, and still lower if a high level of compression makes that slow.
OPENED_SIZE_MAX = 1 << 20
GZIP_OPENED_SIZE_MAX = 256 << 10
CONVERTED_SIZE_MAX = 64 << 10
SLOW_LEVEL, SLOWLY_CONVERTED_SIZE_MAX = 10, 16 << 10
NO_LEADER_EPOCH = -1

_MESSAGE_SIZE_MIN = LOG_OVERHEAD + 14  # a message of magic 0 with neither key nor value

_LOG_APPEND_TIME = "LogAppendTime"
_COMPACT = "compact"
_INT64_MIN = -(1 << 63)
_PLAIN_ATTRIBUTES = (0, TRANSACTIONAL_BIT)
_COORDINATOR_ATTRIBUTES = (*_PLAIN_ATTRIBUTES, TRANSACTIONAL_BIT | CONTROL_BIT)
_CODECS_BY_CONFIG = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class AppendOrigin(Enum):
    """Who appends. Determines which formats are accepted; only a coordinator may write control records."""

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
    """Kafka's meters of rejected records, by reason."""

    INVALID_MAGIC_NUMBER = "InvalidMagicNumberRecordsPerSec"
    INVALID_MESSAGE_CRC = "InvalidMessageCrcRecordsPerSec"
    INVALID_OFFSET_OR_SEQUENCE = "InvalidOffsetOrSequenceRecordsPerSec"
    NO_KEY_COMPACTED_TOPIC = "NoKeyCompactedTopicRecordsPerSec"


class Refusal(NamedTuple):
    """Why records are rejected. It replaces the error until the response is built.

    The error would keep its traceback alive, whose frames hold the request and its decompressed records.
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
    """The records are rejected. `record_errors` lists the invalid ones by index, if the error is about single ones."""

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
    """How far a producer's timestamp may be behind and ahead of the broker's clock."""

    before_max_ms: int
    after_max_ms: int


@dataclass(frozen=True, slots=True)
class AppendRules:
    """What a topic's configuration requires of records. Derived once a configuration, not once a batch."""

    is_compacted: bool = False
    compression: Compression | None = None  # None: the producer's codec is kept
    level: int | None = None
    is_log_append_time: bool = False
    timestamp_window: TimestampWindow | None = None  # None: any timestamp is valid
    max_message_bytes: int = 1048588
    segment_bytes: int = 1 << 30
    plain_size_max: int = field(init=False)
    """The largest uncompressed batch that is appended unchanged; 0 if the topic changes or parses every batch."""
    coordinator_plain_size_max: int = field(init=False)
    """The same for a batch of a coordinator."""

    def __post_init__(self) -> None:
        size_max = min(self.max_message_bytes, self.segment_bytes)
        is_unchanged = not self.is_log_append_time and self.compression in (None, Compression.NONE)
        is_unparsed = is_unchanged and self.timestamp_window is None
        object.__setattr__(self, "plain_size_max", size_max if is_unparsed else 0)
        object.__setattr__(self, "coordinator_plain_size_max", size_max if is_unchanged else 0)

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
        is_unlimited = is_log_append_time or window == (LONG_MAX, LONG_MAX)
        return cls(
            is_compacted=_COMPACT in config.cleanup_policy,
            compression=compression,
            level=None if compression is None else levels.get(compression),
            is_log_append_time=is_log_append_time,
            timestamp_window=None if is_unlimited else window,
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
        )


class ConversionCost(NamedTuple):
    """What it took to open or rebuild records, as Kafka counts it."""

    records_converted: int
    """Records that were encoded or compressed again."""
    temporary_size: int
    """Plain bytes that were read from compressed records, and those that were written to convert them."""
    duration_s: float
    """0.0 if no record was converted."""


NO_CONVERSION = ConversionCost(0, 0, 0.0)


class ValidatedAppend(NamedTuple):
    """One batch, ready to be written. `header` equals the header in `records` except base offset and leader epoch.

    Those two may be the values that the producer sent; the caller knows the assigned ones.
    """

    records: Buffer
    header: BatchHeader
    log_append_time_ms: int  # -1 with CreateTime
    conversion: ConversionCost = NO_CONVERSION

    @property
    def records_converted(self) -> int:
        return self.conversion.records_converted


@dataclass(frozen=True, slots=True)
class PreparedAppend:
    """Records that were validated before their offset was known."""

    validated: ValidatedAppend | None  # at offset 0, without a leader epoch
    size: int
    """Bytes of the records as they were received."""

    def __len__(self) -> int:
        return self.size

    def at(self, next_offset: int, leader_epoch: int) -> ValidatedAppend | None:
        """Return the batch at `next_offset`. Call it once, when no other append can precede this one."""
        if self.validated is None:
            return None
        data, header, log_append_time_ms, conversion = self.validated
        records = memoryview(data)
        set_offset_and_epoch(records, 0, next_offset, leader_epoch)
        return _new_tuple(ValidatedAppend, (records, header, log_append_time_ms, conversion))


class TooCostlyError(Exception):
    """The validation would take longer than the caller may wait. Nothing has changed."""


class _Limits(NamedTuple):
    """How far a batch may be opened. Beyond them it is refused, or left to another thread if `is_final` is False."""

    plain_size_max: int
    window_size_max: int
    is_final: bool

    @classmethod
    def in_thread(cls, size: int, is_alone: bool) -> _Limits:
        """Return the limits of records of `size` bytes in a thread that is not shared (`is_alone`), or that is."""
        if not is_alone:
            return cls(SHARED_PLAIN_SIZE_MAX, USUAL_WINDOW_SIZE, is_final=False)
        plain_size_max = min(max(PLAIN_RATIO_MAX * size, SHARED_PLAIN_SIZE_MAX), PLAIN_SIZE_MAX)
        return cls(plain_size_max, RESIDENT_SIZE_MAX, is_final=True)

    @classmethod
    def on_loop(cls, plain_size_max: int) -> _Limits:
        return cls(plain_size_max, USUAL_WINDOW_SIZE, is_final=False)


def first_batch(records: Buffer) -> Buffer:
    """Return the part of too costly `records` to pass to `prepare`: a batch of magic 2 without what follows it."""
    if records[MAGIC_POSITION] != MAGIC:
        return records
    return records[: LOG_OVERHEAD + int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True)]


def _no_clock() -> float:
    return 0.0


def prepare(
    records: memoryview,
    rules: AppendRules,
    *,
    now_ms: int,
    origin: AppendOrigin,
    is_alone: bool = True,
    monotonic_s: Callable[[], float] = _no_clock,
) -> PreparedAppend | Refusal:
    """Do the part of `validate_and_assign_offsets` that does not need the log. Any thread.

    Raises:
        TooCostlyError: the records need a thread that others do not wait for, and `is_alone` is False.
    """
    try:
        validated = validate_and_assign_offsets(
            records,
            rules,
            next_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            now_ms=now_ms,
            origin=origin,
            is_alone=is_alone,
            monotonic_s=monotonic_s,
        )
    except KafkaError as error:
        return Refusal.of(error)
    if validated is not None and isinstance(validated.records, bytes):
        validated = validated._replace(records=bytearray(validated.records))  # `PreparedAppend.at` patches it
    return PreparedAppend(validated, len(records))


def validate_and_assign_offsets(
    records: memoryview,
    rules: AppendRules,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    may_take_long: bool = True,
    is_alone: bool = True,
    monotonic_s: Callable[[], float] = _no_clock,
) -> ValidatedAppend | None:
    """Return the batch to append at `next_offset`; None if an old client sent no complete message, which is no error.

    If no conversion is needed, the result is a view of `records`, patched in place. `monotonic_s` times conversions.

    Raises:
        KafkaError: the records are rejected. It is a RecordsRejected if single records or a meter are concerned.
        TooCostlyError: the decision would take milliseconds, and `may_take_long` is False, or seconds, and `is_alone`
            is False. The work until then is bounded.
    """
    try:
        header = _plain_header(records, rules, origin, may_take_long)
        if header is None:
            return _validate_fully(
                records, rules, next_offset, leader_epoch, now_ms, origin, may_take_long, is_alone, monotonic_s
            )
    except (OpensTooFar, TooManyHeadersError) as error:
        raise TooCostlyError(str(error)) from None
    _pack_start(records, 0, next_offset, header[1], leader_epoch)
    return _new_tuple(ValidatedAppend, (records, header, NO_TIMESTAMP, NO_CONVERSION))


def _plain_header(
    records: memoryview, rules: AppendRules, origin: AppendOrigin, may_take_long: bool
) -> BatchHeader | None:
    """Return the header of a valid batch that is appended unchanged, as most clients send to most topics.

    If this path cannot decide, it returns None without side effects and the caller takes `_validate_fully`.

    Checked, by position in `records`; a dot marks what may have any value or is checked only by the CRC:

        0            8       12     16     17   21          23     27         35  43           51      53        57
        | base offset | length | epoch | magic | crc | attributes | delta | base time | . | producer id | . | sequence |
          = 0           = all    .       = 2          no codec       = count - 1         with an id: sequence >= 0

        | count | records                                  |
        57      61                                         length + 12
          > 0     regular, unless a coordinator built them
    """
    size = len(records)
    is_coordinator = origin is _COORDINATOR
    if size > (rules.coordinator_plain_size_max if is_coordinator else rules.plain_size_max) or size < HEADER_SIZE:
        return None
    fields = _unpack_header(records)
    base_offset, length, _, magic, crc, attributes, delta, base_time, _, producer_id, _, sequence, count = fields
    if (
        base_offset
        or length != size - LOG_OVERHEAD
        or magic != MAGIC
        or count != delta + 1
        or (attributes and attributes not in (_COORDINATOR_ATTRIBUTES if is_coordinator else _PLAIN_ATTRIBUTES))
    ):
        return None
    if count >= COSTLY_RECORDS_COUNT and not may_take_long:
        raise TooCostlyError(f"{count} records")
    if crc32c(records[_CRC_COVERED]) != crc:
        return None
    if is_coordinator:
        if count <= 0:
            return None
    else:
        if (
            (sequence < 0 and producer_id > NO_PRODUCER_ID)
            or count <= 0
            or not -_BASE_TIMESTAMP_MAX < base_time < _BASE_TIMESTAMP_MAX
        ):
            return None
        headers_max = ANY_NUMBER if may_take_long else HEADERS_MAX
        end, number, _ = pass_regular(records, HEADER_SIZE, 0, count, headers_max, rules.is_compacted)
        if end != size or number != count:
            return None
    return _new_tuple(BatchHeader, fields)


def _validate_fully(
    records: memoryview,
    rules: AppendRules,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    may_take_long: bool,
    is_alone: bool = True,
    monotonic_s: Callable[[], float] = _no_clock,
) -> ValidatedAppend | None:
    """Validate records that `_plain_header` did not decide.

    Raises:
        KafkaError, TooCostlyError: see `validate_and_assign_offsets`.
        OpensTooFar, TooManyHeadersError: the records are too costly.
    """
    if origin is _OLD_CLIENT and len(records) > MAGIC_POSITION and records[MAGIC_POSITION] in legacy.LEGACY_MAGICS:
        if len(records) >= COSTLY_SIZE and not may_take_long:
            raise TooCostlyError(f"{len(records)} bytes of an old format")
        limits = (
            _Limits.in_thread(len(records), is_alone) if may_take_long else _Limits.on_loop(_converted_size_max(rules))
        )
        return _validate_message_set(records, rules, next_offset, leader_epoch, now_ms, limits, monotonic_s)
    header = _first_header(records, origin)
    if header is None:
        return None
    size = LOG_OVERHEAD + header.batch_length
    if size != len(records):
        records = _without_rest(records, size)
    # Checked before TooCostlyError is raised: its handler copies the batch, and a batch that is too large is rejected.
    _check_extent(records, header, rules)
    codec = header.attributes & CODEC_MASK
    is_large = header.records_count >= COSTLY_RECORDS_COUNT or (codec > 0 and size >= COSTLY_COMPRESSED_SIZE)
    if is_large and not may_take_long:
        raise _too_costly(header)
    is_recompressed = _is_recompressed(records, header, rules)
    reads_times = is_recompressed or _reads_times(header, rules, origin)
    budget = _header_budget(may_take_long)
    if may_take_long:
        limits = _Limits.in_thread(size, is_alone)
    elif reads_times:
        limits = _Limits.on_loop(_converted_size_max(rules))
        if size >= limits.plain_size_max:
            raise _too_costly(header)
    else:
        limits = _Limits.on_loop(GZIP_OPENED_SIZE_MAX if codec == Compression.GZIP else OPENED_SIZE_MAX)
    _check_batch(records, header, rules, origin)
    opened = _Pieces(records, header, limits)
    try:
        if reads_times or (
            origin is not _COORDINATOR
            and not _is_regular(records, header, opened, budget, needs_keys=rules.is_compacted)
        ):
            return _validate_records(
                records,
                header,
                rules,
                next_offset,
                leader_epoch,
                now_ms,
                limits,
                budget,
                monotonic_s,
                is_recompressed=is_recompressed,
                may_be_regular=reads_times,
            )
    except CannotOpen as error:
        if isinstance(error, OpensTooFar):
            if not limits.is_final:
                raise
            raise _opens_too_far(error) from None
        raise _corrupt(f"Record batch cannot be decompressed: {error}") from None
    set_offset_and_epoch(records, 0, next_offset, leader_epoch)
    conversion = opened.cost
    if rules.is_log_append_time:
        set_timestamps(records, 0, header.attributes | LOG_APPEND_TIME_BIT, now_ms)
        return ValidatedAppend(records, read_header(records), now_ms, conversion)
    return ValidatedAppend(records, header, NO_TIMESTAMP, conversion)


def _too_costly(header: BatchHeader) -> TooCostlyError:
    return TooCostlyError(f"{header.records_count} records in {header.size} bytes")


def _converted_size_max(rules: AppendRules) -> int:
    """Return how many decompressed bytes may be compressed again on the event loop."""
    is_slow = rules.level is not None and rules.level >= SLOW_LEVEL
    return SLOWLY_CONVERTED_SIZE_MAX if is_slow else CONVERTED_SIZE_MAX


def _header_budget(may_take_long: bool) -> HeaderBudget | None:
    return None if may_take_long else HeaderBudget(HEADERS_MAX)


# --- the extent of the batch ------------------------------------------------------------------------------------------


def _first_header(records: memoryview, origin: AppendOrigin) -> BatchHeader | None:
    """Return the header of the first batch, which is complete.

    If no batch is complete, returns None for an old client and raises RecordsRejected for any other.
    """
    try:
        header = read_header(records)
        if LOG_OVERHEAD + header.batch_length <= len(records):
            return header
    except Malformed as error:
        _reject_malformed_batch(records, error)
    if origin is _OLD_CLIENT:
        return None
    raise _rejected("Produce requests must have exactly one record batch per partition, and this one is incomplete")


def _reject_malformed_batch(records: memoryview, error: Malformed) -> None:
    if len(records) <= MAGIC_POSITION:
        return
    is_batch = records[MAGIC_POSITION] == MAGIC
    if _size_at_start(records) < (HEADER_SIZE if is_batch else _MESSAGE_SIZE_MIN):
        raise _corrupt(f"Record batch is corrupt: {error}")
    if not is_batch:
        raise _rejected(f"Record batch is invalid: {error}", RejectionMeter.INVALID_MAGIC_NUMBER)


def _without_rest(records: memoryview, size: int) -> memoryview:
    """Return the first batch alone. No other batch may follow; an incomplete one is ignored."""
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


# --- the header of the batch ------------------------------------------------------------------------------------------


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


def _is_regular(
    batch: memoryview, header: BatchHeader, opened: _Pieces, budget: HeaderBudget | None, *, needs_keys: bool
) -> bool:
    """Return whether regularity is proven, see the module. Raises CannotOpen and TooManyHeadersError."""
    if abs(header.base_timestamp) >= _BASE_TIMESTAMP_MAX:
        return False
    if not header.attributes & CODEC_MASK:
        return are_regular(batch[HEADER_SIZE:], header.records_count, budget, needs_keys=needs_keys)
    return are_regular_pieces(opened, header.records_count, budget, needs_keys=needs_keys)


# --- the records of the batch -----------------------------------------------------------------------------------------


def _reads_times(header: BatchHeader, rules: AppendRules, origin: AppendOrigin) -> bool:
    """Return whether the timestamps of the records matter. A coordinator's records have the current time."""
    return (
        rules.timestamp_window is not None and origin is not AppendOrigin.COORDINATOR
    ) or header.attributes & LOG_APPEND_TIME_BIT != 0


def _is_recompressed(batch: memoryview, header: BatchHeader, rules: AppendRules) -> bool:
    """Return whether the topic wants another codec, or some clients could not open what the producer compressed.

    Markers are never compressed: they are too small to gain anything, and clients expect them uncompressed.
    """
    if header.is_control:
        return False
    codec = header.attributes & CODEC_MASK
    if rules.compression is not None and rules.compression != codec:
        return True
    if codec != Compression.LZ4:
        return False
    from protocol.records.lz4_frame import opens_everywhere  # on demand: many brokers never see lz4

    return not opens_everywhere(batch[HEADER_SIZE:])


def _validate_records(
    batch: memoryview,
    header: BatchHeader,
    rules: AppendRules,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    limits: _Limits,
    budget: HeaderBudget | None,
    monotonic_s: Callable[[], float],
    *,
    is_recompressed: bool,
    may_be_regular: bool,
) -> ValidatedAppend:
    """Check each record, then patch the batch in place, or build a new one with another codec or new offset deltas.

    Raises KafkaError, CannotOpen, TooManyHeadersError.
    """
    started_s = monotonic_s()
    source = header.compression
    target = rules.compression if is_recompressed and rules.compression is not None else source
    # A client's claim of LogAppendTime is reverted: the timestamps of the records count.
    attributes = header.attributes & ~(LOG_APPEND_TIME_BIT | CODEC_MASK) | target
    as_sent = header._replace(attributes=attributes)
    converted = BoundedCompression(target, rules.level, _records_size_max(rules)) if is_recompressed else None
    opened = _Pieces(batch, header, limits)
    pieces: Iterator[bytes] = opened
    if converted is not None:
        pieces = _written(pieces, converted)
    checked = None
    if may_be_regular:
        first, second = next(pieces, b""), next(pieces, None)
        if second is None:
            checked = _check_regular(first, header, rules, now_ms, budget)
        pieces = chain((first,) if second is None else (first, second), pieces)
    if checked is None:
        checked = _check_records(
            parse_records(pieces, as_sent, Parts.OUTLINE, budget), header.records_count, rules, now_ms
        )
    if checked.refusal is not None:
        _exhaust(pieces)  # data that cannot be decompressed is reported first
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
        return ValidatedAppend(batch, read_header(batch), log_append_time_ms, opened.cost)

    if converted is None or not checked.is_sequential:
        converted = BoundedCompression(target, rules.level, _records_size_max(rules))
        pieces = _Pieces(batch, header, limits)
        _exhaust(_written(renumbered(pieces, header.records_count), converted))
    header = header._replace(
        base_offset=next_offset,
        partition_leader_epoch=leader_epoch,
        attributes=attributes,
        max_timestamp=max_timestamp,
    )
    content = converted.finish()
    if content is None:
        raise _converted_too_large(rules)
    rebuilt = assemble(header, content)
    _check_size(len(rebuilt), rules)
    temporary_size = opened.cost.temporary_size + opened.size
    conversion = ConversionCost(header.records_count, temporary_size, monotonic_s() - started_s)
    return ValidatedAppend(rebuilt, read_header(rebuilt), log_append_time_ms, conversion)


class _Pieces(Iterator[bytes]):
    """The plain bytes of a batch in pieces. `size` is the size of the pieces so far."""

    __slots__ = ("_is_compressed", "_pieces", "size")

    def __init__(self, batch: memoryview, header: BatchHeader, limits: _Limits) -> None:
        self.size = 0
        self._is_compressed = header.attributes & CODEC_MASK != 0
        self._pieces = plain_pieces(
            batch, 0, header, size_max=limits.plain_size_max, window_size_max=limits.window_size_max
        )

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self.size += len(piece)
        return piece

    @property
    def cost(self) -> ConversionCost:
        """The cost of reading them without a conversion."""
        return ConversionCost(0, self.size, 0.0) if self._is_compressed and self.size else NO_CONVERSION


def _written(pieces: Iterable[bytes], converted: BoundedCompression) -> Iterator[bytes]:
    """Yield each piece after writing it to `converted`."""
    for piece in pieces:
        converted.write(piece)
        yield piece


def _exhaust(items: Iterator[object]) -> None:
    deque(items, maxlen=0)


def _records_size_max(rules: AppendRules) -> int:
    return rules.max_message_bytes - HEADER_SIZE


def _converted_too_large(rules: AppendRules) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The converted record batch exceeds the maximum configured value of {rules.max_message_bytes} bytes",
    )


def _validate_message_set(
    records: memoryview,
    rules: AppendRules,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    limits: _Limits,
    monotonic_s: Callable[[], float],
) -> ValidatedAppend | None:
    """Return all messages of the set as one batch; only magic 2 is stored. None if no message is complete."""
    started_s = monotonic_s()
    with _message_set_errors(limits):
        message_set = legacy.read_message_set(records, size_max=limits.plain_size_max)
    append_time_ms = now_ms if rules.is_log_append_time else None
    writer = BatchWriter(
        message_set.compression if rules.compression is None else rules.compression,
        rules.level,
        TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME,
        rules.max_message_bytes,
    )
    checked = _check_records(_written_records(message_set, writer, append_time_ms, limits), 0, rules, now_ms)
    with _message_set_errors(limits):
        _exhaust(message_set.runs)
    if not message_set.count:
        return None
    _check_size(message_set.entry_size_max, rules)
    if message_set.claims_append_time and (rules.is_log_append_time or message_set.lacks_timestamp):
        raise _false_append_time(message_set.count)
    if checked.refusal is not None:
        raise RecordsRejected(*checked.refusal)
    batch = writer.finish(base_offset=next_offset, leader_epoch=leader_epoch)
    if batch is None:
        raise _converted_too_large(rules)
    _check_size(len(batch), rules)
    log_append_time_ms = NO_TIMESTAMP if append_time_ms is None else append_time_ms
    temporary_size = writer.plain_size + message_set.opened_size
    conversion = ConversionCost(message_set.count, temporary_size, monotonic_s() - started_s)
    return ValidatedAppend(batch, read_header(batch), log_append_time_ms, conversion)


def _written_records(
    message_set: legacy.MessageSet, writer: BatchWriter, append_time_ms: int | None, limits: _Limits
) -> Iterator[Message]:
    """Yield each message after adding it to `writer`. Raises KafkaError."""
    with _message_set_errors(limits):
        for run in message_set.runs:
            for _, timestamp, key, value, _ in run:
                writer.add(timestamp if append_time_ms is None else append_time_ms, key, value)
            yield from run


@contextmanager
def _message_set_errors(limits: _Limits) -> Iterator[None]:
    """Convert an error in a message set to the KafkaError with its code."""
    try:
        yield
    except legacy.ZstdMessage as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None
    except (legacy.ForbiddenMessage, TimestampTooFar) as error:
        raise _rejected(f"Message set is invalid: {error}") from None
    except Malformed as error:
        if isinstance(error, OpensTooFar):
            if not limits.is_final:
                raise
            raise _opens_too_far(error) from None
        raise _corrupt(f"Message set is corrupt: {error}") from None


class _Checked(NamedTuple):
    """What is known of a batch's records once all are checked, or enough of them to reject the batch."""

    max_timestamp: int
    is_sequential: bool  # the offsets are 0, 1, 2, ...
    refusal: Refusal | None


def _check_records(records: Iterable[Record | Message], count: int, rules: AppendRules, now_ms: int) -> _Checked:
    """Check the timestamps and keys of records whose offsets start at 0.

    One invalid record rejects the whole batch: with INVALID_TIMESTAMP (32) if any timestamp is invalid, else with
    INVALID_RECORD (87). The check ends at a record that cannot be parsed. Raises CannotOpen.

    Invariant: the records before `index` are checked, and `max_timestamp` is the largest of their timestamps.
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
        refusal = _refusal_of_malformed(error, index + 1, count)
    return _new_tuple(_Checked, (max_timestamp, is_sequential, refusal))


def _check_regular(
    data: bytes, header: BatchHeader, rules: AppendRules, now_ms: int, budget: HeaderBudget | None
) -> _Checked | None:
    """Return the same as `_check_records` if all records are proven to be valid, or else None."""
    base = header.base_timestamp
    count = header.records_count
    if abs(base) >= _BASE_TIMESTAMP_MAX or not are_regular(data, count, budget, needs_keys=rules.is_compacted):
        return None
    earliest_ms, latest_ms = _window(rules.timestamp_window, now_ms)
    first_delta, last_delta = timestamp_deltas(data, count)
    if base + first_delta < earliest_ms or base + last_delta > latest_ms:
        return None
    return _new_tuple(_Checked, (base + last_delta, True, None))


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


def _refusal_of_malformed(error: Malformed, index: int, count: int) -> Refusal:
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


# --- errors -----------------------------------------------------------------------------------------------------------


def _rejected(message: str, meter: RejectionMeter | None = None) -> RecordsRejected:
    return RecordsRejected(ErrorCode.INVALID_RECORD, message, meter=meter)


def _opens_too_far(error: OpensTooFar) -> KafkaError:
    """Return the error of a batch that no thread may open. A Java producer splits such a batch and sends it again."""
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"Record batch is refused: {error}")


def _corrupt(message: str) -> RecordsRejected:
    return RecordsRejected(ErrorCode.CORRUPT_MESSAGE, message, meter=RejectionMeter.INVALID_MESSAGE_CRC)
