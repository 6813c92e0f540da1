"""The records of groups of the newer protocol (KIP-848) in `__consumer_offsets`, for kafka-dump-log.

Owns their layouts. Milena does not write them. A key is an int16 type and fields, a value an int16 version and fields.
"""

from collections.abc import Mapping
from typing import NamedTuple

from protocol.schema import bytes_, int8, int32, since, stored, string, struct, uuid


@stored(versions=range(3, 4), flexible=None)
class ConsumerGroupMetadataKey:
    group_id: string


@stored(versions=range(0, 1), flexible=0)
class ConsumerGroupMetadataValue:
    epoch: int32


@stored(versions=range(4, 5), flexible=None)
class ConsumerGroupPartitionMetadataKey:
    group_id: string


@struct
class PartitionMetadata:
    partition: int32
    racks: list[string]


@struct
class TopicMetadata:
    topic_id: uuid
    topic_name: string
    num_partitions: int32
    partition_metadata: list[PartitionMetadata]


@stored(versions=range(0, 1), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata]


@stored(versions=range(5, 6), flexible=None)
class ConsumerGroupMemberMetadataKey:
    group_id: string
    member_id: string


@struct
class ClassicProtocol:
    name: string
    metadata: bytes_


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int32
    supported_protocols: list[ClassicProtocol]


@stored(versions=range(0, 1), flexible=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None
    rebalance_timeout_ms: int32
    server_assignor: string | None
    classic_member_metadata: ClassicMemberMetadata | None = since(0, nullable=0, tag=0, default=None)


@stored(versions=range(6, 7), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: string


@stored(versions=range(0, 1), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32


@stored(versions=range(7, 8), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: string
    member_id: string


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]


@stored(versions=range(0, 1), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartitions]


@stored(versions=range(8, 9), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: string
    member_id: string


@stored(versions=range(0, 1), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class GroupRecordType(NamedTuple):
    key: type
    value: type


GROUP_RECORD_TYPES: Mapping[int, GroupRecordType] = {
    3: GroupRecordType(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: GroupRecordType(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: GroupRecordType(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: GroupRecordType(ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: GroupRecordType(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: GroupRecordType(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
}
"""By type: the version of a key is the type of its record."""
