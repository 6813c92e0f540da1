"""DescribeShareGroupOffsets (90): returns the start offsets of the partitions of share groups (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct, uuid


@struct
class RequestedTopic:
    topic_name: string
    partitions: list[int32]


@struct
class RequestedGroup:
    group_id: string
    topics: list[RequestedTopic] | None  # None: all that the group has


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=range(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    groups: list[RequestedGroup]


@struct
class DescribedPartition:
    partition_index: int32
    start_offset: int64 = -1
    leader_epoch: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None


@struct
class DescribedTopic:
    topic_name: string
    topic_id: uuid
    partitions: list[DescribedPartition]


@struct
class DescribedGroup:
    group_id: string
    topics: list[DescribedTopic] = []
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=range(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]
