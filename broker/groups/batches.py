"""The batches that the group coordinator appends, and the errors that clients get when an append fails. Pure.

Owns: which records form one batch, and the translation of append errors. Must not know: the log, or parked requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from base.pause import Pause
from broker.coordination.coordinator_log import APPEND_ERRORS, BATCH_SIZE_MAX, RECORD_OVERHEAD_MAX
from broker.groups.machine.offsets import Offsets
from broker.groups.machine.records import (
    GROUP_VALUE_VERSION,
    OFFSET_VALUE_VERSION,
    GroupMetadataValue,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from protocol.errors import ErrorCode
from protocol.records.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from protocol.records.builder import RecordData, assemble, build_batch, build_record_batch
from protocol.records.compression import Compression, compress
from protocol.records.plain_records import encode_records

if TYPE_CHECKING:
    from broker.groups.machine.consumer.records import Change

COMMIT_STEP_SIZE: Final = 200
"""Offsets of one commit that are checked or encoded before other requests get their turn: a millisecond or two."""
_INT64: Final = Struct(">q")

COMMIT_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        **APPEND_ERRORS,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""The error of OffsetCommit when the append failed with the error on the left; others are returned unchanged."""

_GROUP_TOO_LARGE: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    dict.fromkeys(
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)

GROUP_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        **COMMIT_APPEND_ERRORS,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
        **_GROUP_TOO_LARGE,
    }
)
"""The error of JoinGroup and SyncGroup when the group could not be stored."""

CHANGE_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        **APPEND_ERRORS,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        **_GROUP_TOO_LARGE,
    }
)
"""The error of ConsumerGroupHeartbeat when the changes that it has caused could not be stored."""


class StoredForm(NamedTuple):
    """How records are stored."""

    compression: Compression = Compression.NONE
    offset_version: int = OFFSET_VALUE_VERSION
    group_version: int = GROUP_VALUE_VERSION


class CommittingProducer(NamedTuple):
    """The transactional producer on whose behalf offsets are committed."""

    producer_id: int
    producer_epoch: int


def commit_batch(
    group_id: str, offsets: Offsets, producer: CommittingProducer | None, now_ms: int, form: StoredForm
) -> bytes:
    """Build the batch of a commit. It is a single one, so that the log has all of the commit or nothing of it.

    Its base sequence is 0, as in Kafka.
    """
    producer_id, producer_epoch = (-1, -1) if producer is None else producer
    compression, version, _ = form
    records = [
        RecordData(now_ms, offset_key(group_id, topic, index), offset_value(value, version))
        for (topic, index), value in offsets.items()
    ]
    if len(records) == 1 and compression is Compression.NONE:
        return build_record_batch(
            records[0],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            attributes=0 if producer is None else TRANSACTIONAL_BIT,
        )
    return build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=producer is not None,
    )


async def commit_batch_in_slices(
    group_id: str,
    offsets: Offsets,
    producer: CommittingProducer | None,
    now_ms: int,
    form: StoredForm,
    pause: Pause,
) -> bytes:
    """As `commit_batch`, in slices of a few milliseconds. `offsets` must not change before the last slice."""
    values = list(offsets.items())
    compression, version, _ = form
    data = bytearray()
    for start in range(0, len(values), COMMIT_STEP_SIZE):
        if start:
            await pause()
        numbered = enumerate(values[start : start + COMMIT_STEP_SIZE], start)
        data += encode_records(
            [
                (number, now_ms, offset_key(group_id, topic, index), offset_value(value, version), ())
                for number, ((topic, index), value) in numbered
            ],
            0,
            now_ms,
        )
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=compression | (0 if producer is None else TRANSACTIONAL_BIT),
        last_offset_delta=len(values) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=-1 if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.producer_epoch,
        base_sequence=0,
        records_count=len(values),
    )
    return assemble(header, compress(compression, data))


def group_batch(group_id: str, value: GroupMetadataValue, now_ms: int, form: StoredForm) -> bytes:
    """Build the batch that stores one generation of a group."""
    record = RecordData(now_ms, group_key(group_id), group_value(value, form.group_version))
    return build_batch([record], compression=form.compression)


def change_batches(
    removed: Iterable[bytes], changes: Iterable[Change], now_ms: int, compression: Compression
) -> Iterator[bytes]:
    """Build the batches that remove records and store changes: a single one, unless it would be too large."""
    from broker.groups.machine.consumer.records import encode_key, encode_value  # on demand: no start waits for it

    records = [RecordData(now_ms, key, None) for key in removed]
    records += [
        RecordData(now_ms, encode_key(key), None if value is None else encode_value(value)) for key, value in changes
    ]
    return _batches(records, compression)


def conversion_batch(
    removed: Iterable[bytes], group_id: str, value: GroupMetadataValue, now_ms: int, form: StoredForm
) -> bytes:
    """Build the batch that stores a group of the consumer protocol as a classic one."""
    records = [RecordData(now_ms, key, None) for key in removed]
    records.append(RecordData(now_ms, group_key(group_id), group_value(value, form.group_version)))
    return build_batch(records, compression=form.compression)


def tombstone_batches(keys: Iterable[bytes], now_ms: int, compression: Compression) -> Iterator[bytes]:
    """Build batches that remove the records of these keys."""
    return _batches((RecordData(now_ms, key, None) for key in keys), compression)


def _batches(records: Iterable[RecordData], compression: Compression) -> Iterator[bytes]:
    """Build batches of records, none larger than the topic accepts."""
    size = 0
    gathered: list[RecordData] = []
    for record in records:
        gathered.append(record)
        size += RECORD_OVERHEAD_MAX + len(record.key or b"") + len(record.value or b"")
        if size >= BATCH_SIZE_MAX:
            yield build_batch(gathered, compression=compression)
            size, gathered = 0, []
    if gathered:
        yield build_batch(gathered, compression=compression)
