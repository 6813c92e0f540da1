"""Control records: the markers that end a transaction in a partition.

Owns their key and value. Must not know which transaction a marker ends: that is the producer id of its batch.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from protocol.errors import Malformed
from protocol.records.batch import NO_LEADER_EPOCH, Record
from protocol.records.builder import RecordData, build_batch

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator_epoch
_VERSION = 0


class ControlType(IntEnum):
    """What a control record says. Types that are not listed are kept in the log and skipped by readers."""

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
    """The control batch of one marker, ready to be appended by a leader."""
    record = RecordData(
        now_ms, _KEY.pack(_VERSION, marker.control_type), _VALUE.pack(_VERSION, marker.coordinator_epoch)
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def read_marker(record: Record) -> TransactionMarker | None:
    """The marker in a record of a control batch; None for a control type that is not about transactions.

    Later versions may append fields, so longer keys and values are read, not refused. Raises Malformed when either is
    shorter than version 0 or the version is negative.
    """
    key_version, type_id = _unpack(_KEY, record.key, "key")
    if type_id not in _KNOWN_TYPES:
        return None
    value_version, coordinator_epoch = _unpack(_VALUE, record.value, "value")
    if key_version < 0 or value_version < 0:
        raise Malformed(f"control record of version {min(key_version, value_version)}")
    return TransactionMarker(ControlType(type_id), coordinator_epoch)


_KNOWN_TYPES = frozenset(ControlType)


def _unpack(layout: struct.Struct, data: bytes | None, part: str) -> tuple[int, int]:
    if data is None or len(data) < layout.size:
        raise Malformed(f"control record with a {part} of {'no' if data is None else len(data)} bytes")
    first, second = layout.unpack_from(data)
    return first, second
