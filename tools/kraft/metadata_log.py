"""The bytes of `__cluster_metadata-0`: batches of framed records, and snapshots.

Owns the names of the files, and the layout of a snapshot: a control batch with its header, batches of records, and a
control batch with its footer. Must not know what a record means. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct as Layout
from typing import Final, NamedTuple

from protocol.codec import encode
from protocol.errors import Malformed
from protocol.records.batch import BatchHeader, batches, crc_is_valid, records
from protocol.records.builder import RecordData, build_batch
from tools.kraft.frames import framed, read_framed
from tools.kraft.metadata_records import (
    NEWEST_METADATA_RECORDS,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)

PARTIAL: Final = ".part"
"""The ending of a snapshot that is being written."""
RECORDS_PER_BATCH: Final = 1000
BATCH_SIZE_MAX: Final = 1 << 30

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = Layout(">hh")  # version, type
_RETIRED_VERSION: Final = 99
_HEADER_TYPE: Final = 3
_FOOTER_TYPE: Final = 4


class SnapshotId(NamedTuple):
    """The end of a snapshot: it replaces the records of the log below `offset`; the last of them has `epoch`."""

    offset: int
    epoch: int


def snapshot_name(end: SnapshotId) -> str:
    return f"{end.offset:020d}-{end.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """Return the end of a snapshot with this name, None for other names."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))


def snapshot(versioned: Iterable[VersionedRecord], end: SnapshotId, now_ms: int) -> Iterator[bytes]:
    """Yield the batches of a snapshot of these records."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms)
    yield _control_batch(_HEADER_TYPE, header, 0, end.epoch, now_ms)
    offset = 1
    pending = iter(versioned)
    while part := list(islice(pending, RECORDS_PER_BATCH)):
        data = [RecordData(now_ms, None, framed(*record)) for record in part]
        yield build_batch(data, base_offset=offset, leader_epoch=end.epoch)
        offset += len(part)
    yield _control_batch(_FOOTER_TYPE, SnapshotFooterRecord(version=0), offset, end.epoch, now_ms)


def quorum_state(epoch: int, *, is_retired: bool = False) -> bytes:
    """Return the content of `quorum-state` of a voter that knows no leader of `epoch` and has not voted in it.

    With `is_retired` it has a version that no Kafka reads, so that none starts on a log that is out of date.
    """
    members = {"clusterId": "", "leaderId": -1, "leaderEpoch": epoch, "votedId": -1, "appliedOffset": 0}
    version = _RETIRED_VERSION if is_retired else 0
    return json.dumps({**members, "currentVoters": [], "data_version": version}, separators=(",", ":")).encode()


def is_retired(quorum_state: bytes) -> bool:
    """Return whether the file says that the log is out of date."""
    try:
        content = json.loads(quorum_state)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("data_version") == _RETIRED_VERSION


class VersionedRecord(NamedTuple):
    """A metadata record, with its type and the version in which it is stored."""

    record_type: int
    version: int
    fields: object


def _control_batch(control_type: int, fields: object, offset: int, epoch: int, now_ms: int) -> bytes:
    record = RecordData(now_ms, _CONTROL_KEY.pack(0, control_type), b"".join(encode(fields, 0)))
    return build_batch([record], base_offset=offset, leader_epoch=epoch, is_control=True)


class StoredRecord(NamedTuple):
    """A record as read. `fields` is None for a control record, whose type is then `control_type`."""

    offset: int
    epoch: int
    fields: object | None
    control_type: int | None


def read_records(data: bytes) -> Iterator[StoredRecord]:
    """Yield the records of a snapshot, or of a segment of the log, up to the first batch that is cut off or damaged.

    Raises:
        Malformed: a record of a whole batch has an unknown type or version, or cannot be decoded.
    """
    for position, header in _undamaged_batches(data):
        for record in records(data, position, size_max=BATCH_SIZE_MAX):
            epoch = header.partition_leader_epoch
            if header.is_control:
                if record.key is None or len(record.key) < _CONTROL_KEY.size:
                    raise Malformed(f"control record at offset {record.offset} without a type")
                _, control_type = _CONTROL_KEY.unpack_from(record.key)
                yield StoredRecord(record.offset, epoch, None, control_type)
            else:
                fields = read_framed(record.value, NEWEST_METADATA_RECORDS).fields
                yield StoredRecord(record.offset, epoch, fields, None)


def _undamaged_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    try:
        for position, header in batches(data):
            if not crc_is_valid(data, position, header):
                return
            yield position, header
    except Malformed:  # bytes that a power cut has left behind the last batch
        return


def is_whole_snapshot(found: Iterable[StoredRecord]) -> bool:
    """Return whether the records begin with a snapshot's header and end with its footer."""
    types = [record.control_type for record in found]
    return bool(types) and types[0] == _HEADER_TYPE and types[-1] == _FOOTER_TYPE
