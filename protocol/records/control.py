"""Control records: the markers that end a transaction in a partition.

Owns their key and value. Must not know which transaction a marker ends: its batch names the producer id.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
)
from protocol.records.builder import RecordData, build_record_batch
from protocol.records.compression import Buffer

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator_epoch
_VERSION = 0

_USUAL_RECORD = struct.Struct(">BBBBBhhBhiB")
"""The one record of a marker as all brokers write it: length, attributes, timestamp delta, offset delta, key, value and
number of headers. Key and value have the lengths of version 0."""
_USUAL_LENGTHS = (_USUAL_RECORD.size - 1 << 1, 0, 0, 0, _KEY.size << 1, _VALUE.size << 1, 0)


class ControlType(IntEnum):
    """The type of a control record. Other types are kept in the log and skipped by readers."""

    ABORT = 0
    COMMIT = 1


class TransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    control_type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: TransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    now_ms: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the control batch of one marker, ready to be appended by a leader."""
    record = RecordData(
        now_ms, _KEY.pack(_VERSION, marker.control_type), _VALUE.pack(_VERSION, marker.coordinator_epoch)
    )
    return build_record_batch(
        record,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        leader_epoch=leader_epoch,
    )


def read_marker(record: Record) -> TransactionMarker | None:
    """Return the marker in a record of a control batch; None for a control type that is not about transactions.

    Later versions may append fields, so longer keys and values are accepted.

    Raises:
        Malformed: key or value is shorter than in version 0, or the version is negative.
    """
    key_version, type_id = _unpack(_KEY, record.key, "key")
    if type_id not in _KNOWN_TYPES:
        return None
    value_version, coordinator_epoch = _unpack(_VALUE, record.value, "value")
    if key_version < 0 or value_version < 0:
        raise Malformed(f"control record of version {min(key_version, value_version)}")
    return TransactionMarker(ControlType(type_id), coordinator_epoch)


def read_usual_marker(buffer: Buffer, position: int, header: BatchHeader) -> TransactionMarker | None:
    """Return the marker of a control batch at `position` that has the usual form, else None.

    `read_marker` reads every form, but opening the batch takes ten times as long, and each transaction has a marker in
    each of its partitions.
    """
    if (
        header.batch_length != _USUAL_BATCH_LENGTH
        or header.attributes & CODEC_MASK
        or header.records_count != 1
        or len(buffer) - position < HEADER_SIZE + _USUAL_RECORD.size
    ):
        return None
    (
        length,
        attributes,
        time_delta,
        offset_delta,
        key_size,
        key_version,
        type_id,
        value_size,
        value_version,
        epoch,
        headers,
    ) = _USUAL_RECORD.unpack_from(buffer, position + HEADER_SIZE)
    if (length, attributes, time_delta, offset_delta, key_size, value_size, headers) != _USUAL_LENGTHS:
        return None
    control_type = _TYPES.get(type_id)
    if control_type is None or key_version != _VERSION or value_version != _VERSION:
        return None
    return TransactionMarker(control_type, epoch)


_USUAL_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD + _USUAL_RECORD.size
_TYPES = {int(each): each for each in ControlType}
_KNOWN_TYPES = frozenset(ControlType)


def _unpack(layout: struct.Struct, data: bytes | None, part: str) -> tuple[int, int]:
    if data is None or len(data) < layout.size:
        raise Malformed(f"control record with a {part} of {'no' if data is None else len(data)} bytes")
    first, second = layout.unpack_from(data)
    return first, second
