"""OffsetForLeaderEpoch (23): finds the end offset of a leader epoch, where logs diverge.

v1 adds the epoch found, v2 the reader's own epoch, v3 the requesting replica.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, since, string, struct


@struct
class OffsetForLeaderPartition:
    partition: int32
    current_leader_epoch: int32 = since(2, ignorable=True, default=-1)
    leader_epoch: int32


@struct
class OffsetForLeaderTopic:
    topic: string
    partitions: list[OffsetForLeaderPartition]


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=range(0, 5), flexible=4)
class OffsetForLeaderEpochRequest:
    replica_id: int32 = since(3, ignorable=True, default=-2)  # -1: a consumer, -2: a debugger
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    error_code: int16 = 0
    partition: int32
    leader_epoch: int32 = since(1, default=-1)
    end_offset: int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: string
    partitions: list[EpochEndOffset]


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=range(0, 5), flexible=4)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int32 = since(2, default=0)
    topics: list[OffsetForLeaderTopicResult]
