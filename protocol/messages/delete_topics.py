"""DeleteTopics (20): deletes topics.

v5 explains errors, v6 accepts topic ids.
"""

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, int16, int32, message, since, string, struct, uuid


@struct
class DeleteTopicState:
    name: string | None = None  # None: by id
    topic_id: uuid


@message(ApiKey.DELETE_TOPICS, versions=range(0, 7), flexible=4)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = since(6, default=[])
    topic_names: list[string] = since(0, until=5, ignorable=True, default=[])
    timeout_ms: int32


@struct
class DeletableTopicResult:
    name: string | None = since(0, nullable=6)
    topic_id: uuid = since(6, default=ZERO_UUID)
    error_code: int16 = 0
    error_message: string | None = since(5, default=None)


@message(ApiKey.DELETE_TOPICS, versions=range(0, 7), flexible=4)
class DeleteTopicsResponse:
    throttle_time_ms: int32 = since(1, default=0)
    responses: list[DeletableTopicResult]
