"""AlterPartitionReassignments (45): moves partitions to other brokers, or cancels the move (KIP-455)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct


@struct
class ReassignablePartition:
    partition_index: int32
    replicas: list[int32] | None = None  # None: cancel


@struct
class ReassignableTopic:
    name: string
    partitions: list[ReassignablePartition]


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=range(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int32 = 60000
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = None


@struct
class ReassignableTopicResponse:
    name: string
    partitions: list[ReassignablePartitionResponse]


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=range(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    responses: list[ReassignableTopicResponse] = []
