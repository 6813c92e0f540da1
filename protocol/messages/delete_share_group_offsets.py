"""DeleteShareGroupOffsets (92): forgets the start offsets of an empty share group in topics (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct, uuid


@struct
class DeletedTopic:
    topic_name: string


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=range(0, 1), flexible=0)
class DeleteShareGroupOffsetsRequest:
    group_id: string
    topics: list[DeletedTopic]


@struct
class TopicResult:
    topic_name: string
    topic_id: uuid
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=range(0, 1), flexible=0)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    responses: list[TopicResult] = []
