"""AlterShareGroupOffsets (91): moves the start offsets of the partitions of an empty share group (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct, uuid


@struct
class AlteredPartition:
    partition_index: int32
    start_offset: int64


@struct
class AlteredTopic:
    topic_name: string
    partitions: list[AlteredPartition]


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=range(0, 1), flexible=0)
class AlterShareGroupOffsetsRequest:
    group_id: string
    topics: list[AlteredTopic]


@struct
class PartitionResult:
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = None


@struct
class TopicResult:
    topic_name: string
    topic_id: uuid
    partitions: list[PartitionResult]


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=range(0, 1), flexible=0)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    responses: list[TopicResult] = []
