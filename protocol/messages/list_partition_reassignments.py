"""ListPartitionReassignments (46): lists the partitions that are being reassigned (KIP-455)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct


@struct
class ListPartitionReassignmentsTopics:
    name: string
    partition_indexes: list[int32]


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=range(0, 1), flexible=0)
class ListPartitionReassignmentsRequest:
    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None  # None: all


@struct
class OngoingPartitionReassignment:
    partition_index: int32
    replicas: list[int32]
    adding_replicas: list[int32]
    removing_replicas: list[int32]


@struct
class OngoingTopicReassignment:
    name: string
    partitions: list[OngoingPartitionReassignment]


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=range(0, 1), flexible=0)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    topics: list[OngoingTopicReassignment] = []
