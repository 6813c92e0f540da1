"""CreatePartitions (37): adds partitions to topics.

v2 is flexible, v3 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, message, string, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int32]


@struct
class CreatePartitionsTopic:
    name: string
    count: int32  # the new total
    assignments: list[CreatePartitionsAssignment] | None  # None: the controller assigns


@message(ApiKey.CREATE_PARTITIONS, versions=range(0, 4), flexible=2)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: boolean


@struct
class CreatePartitionsTopicResult:
    name: string
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.CREATE_PARTITIONS, versions=range(0, 4), flexible=2)
class CreatePartitionsResponse:
    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult]
