"""AlterPartition (56): a leader asks the controller to change the in-sync replicas of its partitions.

v1 adds recovery after unclean elections (KIP-704), v2 topic ids, v3 the epoch of every replica (KIP-903).
"""

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, int8, int16, int32, int64, message, since, string, struct, uuid


@struct
class BrokerState:
    broker_id: int32
    broker_epoch: int64 = -1  # -1: not to be checked


@struct
class PartitionData:
    partition_index: int32
    leader_epoch: int32
    new_isr: list[int32] = since(0, until=2, default=[])
    new_isr_with_epochs: list[BrokerState] = since(3, default=[])
    leader_recovery_state: int8 = since(1, default=0)
    partition_epoch: int32


@struct
class TopicData:
    topic_name: string = since(0, until=1, ignorable=True, default="")
    topic_id: uuid = since(2, ignorable=True, default=ZERO_UUID)
    partitions: list[PartitionData]


@message(ApiKey.ALTER_PARTITION, versions=range(0, 4), flexible=0)
class AlterPartitionRequest:
    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[TopicData]


@struct
class PartitionResult:
    partition_index: int32
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    isr: list[int32] = []
    leader_recovery_state: int8 = since(1, default=0)
    partition_epoch: int32 = 0


@struct
class TopicResult:
    topic_name: string = since(0, until=1, default="")
    topic_id: uuid = since(2, default=ZERO_UUID)
    partitions: list[PartitionResult]


@message(ApiKey.ALTER_PARTITION, versions=range(0, 4), flexible=0)
class AlterPartitionResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicResult] = []
