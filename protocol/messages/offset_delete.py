"""OffsetDelete (47): deletes the offsets of a group for some partitions (KIP-496).

Never flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: int32


@struct
class OffsetDeleteRequestTopic:
    name: string
    partitions: list[OffsetDeleteRequestPartition]


@message(ApiKey.OFFSET_DELETE, versions=range(0, 1), flexible=None)
class OffsetDeleteRequest:
    group_id: string
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: int32
    error_code: int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: string
    partitions: list[OffsetDeleteResponsePartition]


@message(ApiKey.OFFSET_DELETE, versions=range(0, 1), flexible=None)
class OffsetDeleteResponse:
    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
