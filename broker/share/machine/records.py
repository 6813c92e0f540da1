"""The records of `__share_group_state`: how far a share group is in a partition (KIP-932).

Owns: their layouts, as Kafka 4.1 writes them, with its names of fields, which `kafka-dump-log` prints. Must not know:
what they mean to the group, or batches. The format page is docs/formats/share-group-state.md.

A key is an int16 that names the kind of a record, then group, topic id and partition. A snapshot is the whole state; an
update has what has changed since. This broker writes snapshots alone, so that the topic can be compacted, and reads
both.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from protocol.codec import decode, encoder
from protocol.errors import Malformed
from protocol.ids import id_text, parse_id
from protocol.schema import int8, int16, int32, int64, stored, string, struct, uuid

_VERSION = Layout(">h")
SNAPSHOT, UPDATE = 0, 1
VALUE_VERSION: Final = 0


class ShareKey(NamedTuple):
    """One partition of one share group."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def place(self) -> tuple[UUID, int]:
        """The partition alone."""
        return self.topic_id, self.partition


def text_of(key: ShareKey) -> str:
    """Return the text by which Kafka names a state, and finds its partition."""
    return f"{key.group_id}:{id_text(key.topic_id)}:{key.partition}"


def key_of(text: str) -> ShareKey:
    """Return the key of a text. Raises ValueError."""
    group_id, *rest = text.rsplit(":", 2)
    if not group_id or len(rest) != 2:
        raise ValueError(f"{text!r} names no state, expected group:topic id:partition")
    topic_id, partition = rest
    return ShareKey(group_id, parse_id(topic_id), int(partition))


@stored(versions=range(1), flexible=None)
class ShareSnapshotKey:
    group_id: string
    topic_id: uuid
    partition: int32


@struct
class StoredBatch:
    """Consecutive records in the same state."""

    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@stored(versions=range(1), flexible=0)
class ShareSnapshotValue:
    snapshot_epoch: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64  # -1: not known yet
    create_timestamp: int64
    write_timestamp: int64
    state_batches: list[StoredBatch]


@stored(versions=range(1, 2), flexible=None)
class ShareUpdateKey:
    group_id: string
    topic_id: uuid
    partition: int32


@stored(versions=range(1), flexible=0)
class ShareUpdateValue:
    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64  # -1: as before
    state_batches: list[StoredBatch]


Key = ShareSnapshotKey | ShareUpdateKey
Value = ShareSnapshotValue | ShareUpdateValue


def snapshot_key(key: ShareKey) -> bytes:
    """Return the key of a partition's snapshots."""
    return _encode(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), SNAPSHOT)


def snapshot_value(value: ShareSnapshotValue) -> bytes:
    return _encode(value, VALUE_VERSION)


def read_key(data: bytes) -> Key | None:
    """Decode a key; None if its kind is not known. Raises Malformed."""
    kind = _version(data)
    if kind == SNAPSHOT:
        return decode(ShareSnapshotKey, kind, data, _VERSION.size)
    if kind == UPDATE:
        return decode(ShareUpdateKey, kind, data, _VERSION.size)
    return None


def read_value(key: Key, data: bytes) -> Value:
    """Decode the value of a record. Raises Malformed, also for an unknown version."""
    return read_snapshot(data) if isinstance(key, ShareSnapshotKey) else read_update(data)


def read_snapshot(data: bytes) -> ShareSnapshotValue:
    """Decode a snapshot. Raises Malformed, also for an unknown version."""
    _require_version(data)
    return decode(ShareSnapshotValue, VALUE_VERSION, data, _VERSION.size)


def read_update(data: bytes) -> ShareUpdateValue:
    """Decode an update. Raises Malformed, also for an unknown version."""
    _require_version(data)
    return decode(ShareUpdateValue, VALUE_VERSION, data, _VERSION.size)


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise Malformed(f"record of {len(data)} bytes, expected at least 2 for its version")
    (version,) = _VERSION.unpack_from(data)
    return int(version)


def _require_version(data: bytes) -> None:
    version = _version(data)
    if version != VALUE_VERSION:
        raise Malformed(f"value of version {version}, expected {VALUE_VERSION}")


def _encode(part: ShareSnapshotKey | ShareSnapshotValue, version: int) -> bytes:
    out: list[bytes | bytearray | memoryview] = []
    encoder(type(part), 0)(part, out)
    return b"".join((_VERSION.pack(version), *out))
