"""ElectLeaders (43): elects preferred leaders, or unclean ones.

v1 adds the kind of election and a top-level error (KIP-460).
"""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, message, since, string, struct


@struct
class TopicPartitions:
    topic: string
    partitions: list[int32]


@message(ApiKey.ELECT_LEADERS, versions=range(0, 3), flexible=2)
class ElectLeadersRequest:
    election_type: int8 = since(1, default=0)  # 0: preferred, 1: unclean
    topic_partitions: list[TopicPartitions] | None  # None: all
    timeout_ms: int32 = 60000


@struct
class PartitionResult:
    partition_id: int32
    error_code: int16 = 0
    error_message: string | None = None


@struct
class ReplicaElectionResult:
    topic: string
    partition_result: list[PartitionResult]


@message(ApiKey.ELECT_LEADERS, versions=range(0, 3), flexible=2)
class ElectLeadersResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult] = []
