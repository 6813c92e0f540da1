"""The records of `__consumer_offsets` that store groups of the consumer protocol (KIP-848), and share groups.

Owns: their layouts, as Kafka 3.9 and 4.0 write them, with its names of fields, which `kafka-dump-log` prints. Must not
know: what they mean to a group, or other records of the topic (`broker.groups.machine.records`). The layouts of share
groups are in `broker.groups.machine.share.records`. The format page is
docs/formats/consumer-offsets.md.

A group is the sum of the last values of its keys: its epoch, the topics as last seen, each member's subscription, what
each member is to have (target) and what it has (current).
"""

from struct import Struct as Layout
from typing import Final, NamedTuple

from broker.groups.machine.consumer.stored_partitions import StoredPartitions
from broker.groups.machine.share.records import SHARE_LAYOUTS, ShareKey, ShareValue
from protocol.codec import decode, encoder
from protocol.errors import Malformed
from protocol.schema import bytes_, int8, int32, int64, since, stored, string, struct, uuid

_VERSION = Layout(">h")
VALUE_VERSION: Final = 0


@stored(versions=range(3, 4), flexible=None)
class GroupEpochKey:
    group_id: string


@stored(versions=range(1), flexible=0)
class GroupEpochValue:
    epoch: int32


@stored(versions=range(4, 5), flexible=None)
class TopicsKey:
    group_id: string


@struct
class PartitionMetadata:
    """Not written: nothing reads it since Kafka 4.0."""

    partition: int32
    racks: list[string]


@struct
class StoredTopic:
    topic_id: uuid
    topic_name: string
    num_partitions: int32
    partition_metadata: list[PartitionMetadata] = []


@stored(versions=range(1), flexible=0)
class TopicsValue:
    """The subscribed topics as they were when the group's epoch was raised last."""

    topics: list[StoredTopic]


@stored(versions=range(5, 6), flexible=None)
class SubscriptionKey:
    group_id: string
    member_id: string


@struct
class ClassicProtocol:
    name: string
    metadata: bytes_


@struct
class ClassicMember:
    """What a member of the classic protocol has sent when it joined."""

    session_timeout_ms: int32
    supported_protocols: list[ClassicProtocol]


@stored(versions=range(1), flexible=0)
class SubscriptionValue:
    instance_id: string | None = None
    rack_id: string | None = None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None = None
    rebalance_timeout_ms: int32 = -1
    server_assignor: string | None = None
    classic_member_metadata: ClassicMember | None = since(0, nullable=0, tag=0, default=None)


@stored(versions=range(6, 7), flexible=None)
class TargetEpochKey:
    group_id: string


@stored(versions=range(1), flexible=0)
class TargetEpochValue:
    """The epoch of the group for which the targets of all members were computed."""

    assignment_epoch: int32


@stored(versions=range(7, 8), flexible=None)
class TargetKey:
    group_id: string
    member_id: string


@stored(versions=range(1), flexible=0)
class TargetValue:
    topic_partitions: list[StoredPartitions]


@stored(versions=range(8, 9), flexible=None)
class CurrentKey:
    group_id: string
    member_id: string


@stored(versions=range(1), flexible=0)
class CurrentValue:
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[StoredPartitions]
    partitions_pending_revocation: list[StoredPartitions]


@stored(versions=range(16, 17), flexible=None)
class RegexKey:
    group_id: string
    regular_expression: string


@stored(versions=range(1), flexible=0)
class RegexValue:
    """The topics that a regular expression stood for, and when (Kafka 4.0)."""

    topics: list[string]
    version: int64
    timestamp: int64


Key = GroupEpochKey | TopicsKey | SubscriptionKey | TargetEpochKey | TargetKey | CurrentKey | RegexKey | ShareKey
Value = (
    GroupEpochValue
    | TopicsValue
    | SubscriptionValue
    | TargetEpochValue
    | TargetValue
    | CurrentValue
    | RegexValue
    | ShareValue
)

LAYOUTS: Final[dict[int, tuple[type[Key], type[Value]]]] = {
    3: (GroupEpochKey, GroupEpochValue),
    4: (TopicsKey, TopicsValue),
    5: (SubscriptionKey, SubscriptionValue),
    6: (TargetEpochKey, TargetEpochValue),
    7: (TargetKey, TargetValue),
    8: (CurrentKey, CurrentValue),
    **SHARE_LAYOUTS,
    16: (RegexKey, RegexValue),
}
"""The classes of key and value by the version of the key, which names the kind of a record."""
_KEY_VERSIONS: Final[dict[type[Key], int]] = {key: version for version, (key, _) in LAYOUTS.items()}
_VALUES: Final[dict[type[Key], type[Value]]] = dict(LAYOUTS.values())


class Change(NamedTuple):
    """A record: the new value of a key, None if the key is removed."""

    key: Key
    value: Value | None


def read_value(key: Key, data: bytes) -> Value:
    """Decode the value of a record. Raises Malformed, also for an unknown version."""
    cls = _VALUES[type(key)]
    if len(data) < _VERSION.size:
        raise Malformed(f"value of {len(data)} bytes, expected at least 2 for its version")
    (version,) = _VERSION.unpack_from(data)
    if version != VALUE_VERSION:
        raise Malformed(f"{cls.__name__} of version {version}, expected {VALUE_VERSION}")
    return decode(cls, version, data, _VERSION.size)


def encode_key(key: Key) -> bytes:
    return _encode(key, _KEY_VERSIONS[type(key)])


def encode_value(value: Value) -> bytes:
    return _encode(value, VALUE_VERSION)


def _encode(part: Key | Value, version: int) -> bytes:
    out: list[bytes | bytearray | memoryview] = []
    encoder(type(part), version)(part, out)
    return b"".join((_VERSION.pack(version), *out))
