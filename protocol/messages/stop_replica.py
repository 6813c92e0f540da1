"""StopReplica (5): the controller stops or deletes replicas on a broker.

v0 lists partitions flat, v1-2 by topic with plain indexes, v3+ with a state each. v1 adds the broker epoch (KIP-380),
v4 migration to KRaft (KIP-866).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, since, string, struct


@struct
class StopReplicaPartitionV0:
    topic_name: string
    partition_index: int32


@struct
class StopReplicaTopicV1:
    name: string
    partition_indexes: list[int32]


@struct
class StopReplicaPartitionState:
    partition_index: int32
    leader_epoch: int32 = -1
    delete_partition: boolean


@struct
class StopReplicaTopicState:
    topic_name: string
    partition_states: list[StopReplicaPartitionState]


@message(ApiKey.STOP_REPLICA, versions=range(0, 5), flexible=2)
class StopReplicaRequest:
    controller_id: int32
    is_kraft_controller: boolean = since(4, default=False)
    controller_epoch: int32
    broker_epoch: int64 = since(1, ignorable=True, default=-1)
    delete_partitions: boolean = since(0, until=2, default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = since(0, until=0, default=[])
    topics: list[StopReplicaTopicV1] = since(1, until=2, default=[])
    topic_states: list[StopReplicaTopicState] = since(3, default=[])


@struct
class StopReplicaPartitionError:
    topic_name: string
    partition_index: int32
    error_code: int16 = 0


@message(ApiKey.STOP_REPLICA, versions=range(0, 5), flexible=2)
class StopReplicaResponse:
    error_code: int16 = 0
    partition_errors: list[StopReplicaPartitionError] = []
