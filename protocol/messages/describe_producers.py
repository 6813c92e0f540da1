"""DescribeProducers (61): returns the active producers of partitions (KIP-664)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct


@struct
class TopicRequest:
    name: string
    partition_indexes: list[int32]


@message(ApiKey.DESCRIBE_PRODUCERS, versions=range(0, 1), flexible=0)
class DescribeProducersRequest:
    topics: list[TopicRequest]


@struct
class ProducerState:
    producer_id: int64
    producer_epoch: int32
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32
    current_txn_start_offset: int64 = -1  # -1: none


@struct
class PartitionResponse:
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = None
    active_producers: list[ProducerState] = []


@struct
class TopicResponse:
    name: string
    partitions: list[PartitionResponse]


@message(ApiKey.DESCRIBE_PRODUCERS, versions=range(0, 1), flexible=0)
class DescribeProducersResponse:
    throttle_time_ms: int32 = 0
    topics: list[TopicResponse]
