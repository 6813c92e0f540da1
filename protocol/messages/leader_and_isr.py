"""LeaderAndIsr (4): the controller makes brokers leaders and followers of partitions.

v0-1 list partitions flat, v2+ by topic with the broker epoch (KIP-380). v3 adds reassignment, v5 topic ids, v6
recovery after unclean elections (KIP-704), v7 migration to KRaft (KIP-866).
"""

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, boolean, int8, int16, int32, int64, message, since, string, struct, uuid


@struct
class LeaderAndIsrPartitionState:
    topic_name: string = since(0, until=1, ignorable=True, default="")
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    partition_epoch: int32  # version of the partition's state znode
    replicas: list[int32]
    adding_replicas: list[int32] = since(3, ignorable=True, default=[])
    removing_replicas: list[int32] = since(3, ignorable=True, default=[])
    is_new: boolean = since(1, ignorable=True, default=False)
    leader_recovery_state: int8 = since(6, default=0)  # 1: recovers from an unclean election


@struct
class LeaderAndIsrTopicState:
    topic_name: string
    topic_id: uuid = since(5, ignorable=True, default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader:
    broker_id: int32
    host_name: string
    port: int32


@message(ApiKey.LEADER_AND_ISR, versions=range(0, 8), flexible=4)
class LeaderAndIsrRequest:
    controller_id: int32
    is_kraft_controller: boolean = since(7, default=False)
    controller_epoch: int32
    broker_epoch: int64 = since(2, ignorable=True, default=-1)
    type: int8 = since(5, default=0)  # 0: unknown, 1: incremental, 2: all replicas of the broker
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since(0, until=1, default=[])
    topic_states: list[LeaderAndIsrTopicState] = since(2, default=[])
    live_leaders: list[LeaderAndIsrLiveLeader]


@struct
class LeaderAndIsrPartitionError:
    topic_name: string = since(0, until=4, default="")
    partition_index: int32
    error_code: int16 = 0


@struct
class LeaderAndIsrTopicError:
    topic_id: uuid
    partition_errors: list[LeaderAndIsrPartitionError]


@message(ApiKey.LEADER_AND_ISR, versions=range(0, 8), flexible=4)
class LeaderAndIsrResponse:
    error_code: int16 = 0
    partition_errors: list[LeaderAndIsrPartitionError] = since(0, until=4, default=[])
    topics: list[LeaderAndIsrTopicError] = since(5, default=[])
