"""UpdateMetadata (6): the controller sends all brokers the metadata that they serve.

v0 knows brokers by host and port only, v1+ by endpoint. v5 groups partitions by topic and adds the broker epoch
(KIP-380), v7 topic ids, v8 migration to KRaft (KIP-866).
"""

from typing import Final

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, boolean, int8, int16, int32, int64, message, since, string, struct, uuid

UPDATE: Final = 0
UPDATE_OF_ALL: Final = 2


@struct
class UpdateMetadataPartitionState:
    topic_name: string = since(0, until=4, ignorable=True, default="")
    partition_index: int32
    controller_epoch: int32
    leader: int32  # -1: none, -2: the topic is being deleted
    leader_epoch: int32
    isr: list[int32]
    zk_version: int32  # version of the partition's state znode
    replicas: list[int32]
    offline_replicas: list[int32] = since(4, ignorable=True, default=[])


@struct
class UpdateMetadataTopicState:
    topic_name: string
    topic_id: uuid = since(7, ignorable=True, default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataEndpoint:
    port: int32
    host: string
    listener: string = since(3, ignorable=True, default="")
    security_protocol: int16  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL


@struct
class UpdateMetadataBroker:
    id: int32
    v0_host: string = since(0, until=0, ignorable=True, default="")
    v0_port: int32 = since(0, until=0, ignorable=True, default=0)
    endpoints: list[UpdateMetadataEndpoint] = since(1, ignorable=True, default=[])
    rack: string | None = since(2, ignorable=True, default=None)


@message(ApiKey.UPDATE_METADATA, versions=range(0, 9), flexible=6)
class UpdateMetadataRequest:
    controller_id: int32
    is_kraft_controller: boolean = since(8, default=False)
    type: int8 = since(8, tag=0, default=0)  # 0: unknown, 1: incremental, 2: the states of all partitions
    controller_epoch: int32
    broker_epoch: int64 = since(5, ignorable=True, default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since(0, until=4, default=[])
    topic_states: list[UpdateMetadataTopicState] = since(5, default=[])
    live_brokers: list[UpdateMetadataBroker]


@message(ApiKey.UPDATE_METADATA, versions=range(0, 9), flexible=6)
class UpdateMetadataResponse:
    error_code: int16 = 0
