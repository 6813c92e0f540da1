"""The records of `__consumer_offsets`: their keys and values in every version Kafka has written.

Owns: the layouts, and which version is written by default. Must not know: who writes when, batches, or what the records
mean to a group. The format page is docs/formats/consumer-offsets.md.

A key is an int16 version and fields. The version also names the kind of record: 0 and 1 an offset, 2 a group, 3 to 8
and 16 a group of the consumer protocol (`broker.groups.machine.consumer.records`); others are kept and not decoded. A
value is an int16 version and fields, or null, which removes the key. Value versions up to 3 are plain, 4 is flexible
(compact lengths, tagged fields).
"""

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, TypeVar

from protocol.codec import decode, encoder
from protocol.errors import Malformed
from protocol.schema import bytes_, int32, int64, since, stored, string, struct

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

if TYPE_CHECKING:
    from broker.groups.machine.consumer.records import Key

_VERSION = Layout(">h")
_LENGTH = Layout(">h")
_OFFSET_KEY_START, _OFFSET_KEY_END = Layout(">hh"), Layout(">i")
_OFFSET_VALUE_START, _OFFSET_VALUE_END = Layout(">hqih"), Layout(">q")
_OFFSET_KEY_VERSION = 1
_GROUP_KEY_VERSION = 2
_VALUE_VERSIONS: Final = range(5)
OFFSET_VALUE_VERSION: Final = 3
_OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""The only version that has room for an expiry time; it has none for a leader epoch."""
GROUP_VALUE_VERSION: Final = 3

T = TypeVar("T")


@stored(versions=range(2), flexible=None)
class OffsetCommitKey:
    """Names the committed offset of one partition in one group. Both versions have one layout."""

    group: string
    topic: string
    partition: int32


@stored(versions=range(2, 3), flexible=None)
class GroupMetadataKey:
    """Names a group."""

    group: string


@stored(versions=_VALUE_VERSIONS, flexible=4)
class OffsetAndMetadata:
    """A committed offset: the offset of the next record to read, and the client's metadata."""

    offset: int64
    leader_epoch: int32 = since(3, default=NO_LEADER_EPOCH)
    metadata: string
    commit_timestamp_ms: int64
    expire_timestamp_ms: int64 = since(1, until=1, default=NO_TIMESTAMP)


@struct
class MemberMetadata:
    """A member of a generation as it is stored."""

    member_id: string
    group_instance_id: string | None = since(3, default=None)
    client_id: string
    client_host: string
    rebalance_timeout_ms: int32 = since(1, default=-1)  # -1 in v0, which means the session timeout
    session_timeout_ms: int32
    subscription: bytes_
    assignment: bytes_


@stored(versions=_VALUE_VERSIONS, flexible=4)
class GroupMetadataValue:
    """A generation of a group as it is stored. An empty group has no members, protocol or leader."""

    protocol_type: string
    generation_id: int32
    protocol_name: string | None
    leader_id: string | None
    state_timestamp_ms: int64 = since(2, default=NO_TIMESTAMP)
    members: list[MemberMetadata]


_KEY_CLASSES: Final[dict[int, type[OffsetCommitKey | GroupMetadataKey]]] = {
    0: OffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
}


def read_key(data: bytes) -> "OffsetCommitKey | GroupMetadataKey | Key | None":
    """Decode a key; None if its version is that of a later release. Raises Malformed."""
    version = _read_version(data, "key")
    cls = _KEY_CLASSES.get(version)
    if cls is not None:
        return decode(cls, version, data, _VERSION.size)
    if version < 0:
        raise Malformed(f"record key of version {version}")
    from broker.groups.machine.consumer.records import LAYOUTS  # on demand: no start waits for this module

    layout = LAYOUTS.get(version)
    return None if layout is None else decode(layout[0], version, data, _VERSION.size)


def read_offset(data: bytes) -> OffsetAndMetadata:
    """Decode the value of an offset's record. Raises Malformed, also for an unknown version."""
    return _read_value(OffsetAndMetadata, data)


def read_group(data: bytes) -> GroupMetadataValue:
    """Decode the value of a group's record. Raises Malformed, also for an unknown version."""
    return _read_value(GroupMetadataValue, data)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Encode the key of an offset's record.

    It is packed by hand, like the common value below: every commit writes both, and the codec takes four times as long.
    """
    group, name = group_id.encode(), topic.encode()
    return (
        _OFFSET_KEY_START.pack(_OFFSET_KEY_VERSION, len(group))
        + group
        + _LENGTH.pack(len(name))
        + name
        + _OFFSET_KEY_END.pack(partition)
    )


def group_key(group_id: str) -> bytes:
    return _write(GroupMetadataKey(group=group_id), _GROUP_KEY_VERSION)


def offset_value(value: OffsetAndMetadata, version: int = OFFSET_VALUE_VERSION) -> bytes:
    """Encode the value of an offset's record. With an expiry time it loses the leader epoch: no version has both."""
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return _write(value, _OFFSET_VALUE_VERSION_WITH_EXPIRY)
    if version != OFFSET_VALUE_VERSION:
        return _write(value, version)
    metadata = value.metadata.encode()
    return (
        _OFFSET_VALUE_START.pack(OFFSET_VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
        + metadata
        + _OFFSET_VALUE_END.pack(value.commit_timestamp_ms)
    )


def group_value(value: GroupMetadataValue, version: int = GROUP_VALUE_VERSION) -> bytes:
    return _write(value, version)


def _read_version(data: bytes, part: str) -> int:
    if len(data) < _VERSION.size:
        raise Malformed(f"record {part} of {len(data)} bytes, expected at least 2 for its version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _read_value(cls: type[T], data: bytes) -> T:
    version = _read_version(data, "value")
    if version not in _VALUE_VERSIONS:
        raise Malformed(f"{cls.__name__} of version {version}, expected one of {list(_VALUE_VERSIONS)}")
    return decode(cls, version, data, _VERSION.size)


def _write(part: OffsetCommitKey | GroupMetadataKey | OffsetAndMetadata | GroupMetadataValue, version: int) -> bytes:
    out: list[bytes | bytearray | memoryview] = []
    encoder(type(part), version)(part, out)
    return b"".join((_VERSION.pack(version), *out))
