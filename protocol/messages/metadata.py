"""Metadata (3): returns brokers, topics, partitions and their leaders.

v0 asks for all topics with an empty list, v1+ with null. v4 can forbid auto-creation, v7 adds leader epochs, v8
authorized operations, v10 topic ids, v12 lookup by topic id, v13 an error of the whole request (KIP-1102).
"""

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, boolean, int16, int32, message, since, string, struct, uuid


@struct
class MetadataRequestTopic:
    topic_id: uuid = since(10, ignorable=True, default=ZERO_UUID)
    name: string | None = since(0, nullable=10)


@message(ApiKey.METADATA, versions=range(0, 14), flexible=9)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = since(0, nullable=1)  # None, and an empty list in v0: all
    allow_auto_topic_creation: boolean = since(4, default=True)
    include_cluster_authorized_operations: boolean = since(8, until=10, default=False)
    include_topic_authorized_operations: boolean = since(8, default=False)


@struct
class MetadataResponseBroker:
    node_id: int32
    host: string
    port: int32
    rack: string | None = since(1, default=None)


@struct
class MetadataResponsePartition:
    error_code: int16 = 0
    partition_index: int32
    leader_id: int32 = -1  # -1: none
    leader_epoch: int32 = since(7, default=-1)
    replica_nodes: list[int32] = []
    isr_nodes: list[int32] = []
    offline_replicas: list[int32] = since(5, default=[])


@struct
class MetadataResponseTopic:
    error_code: int16 = 0
    name: string | None = since(0, nullable=12)
    topic_id: uuid = since(10, default=ZERO_UUID)
    is_internal: boolean = since(1, default=False)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: int32 = since(8, default=-0x8000_0000)  # the lowest number: not requested


@message(ApiKey.METADATA, versions=range(0, 14), flexible=9)
class MetadataResponse:
    throttle_time_ms: int32 = since(3, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: string | None = since(2, default=None)
    controller_id: int32 = since(1, default=-1)  # -1: none
    topics: list[MetadataResponseTopic] = since(0, takes_encoded=True)
    # the lowest number: not requested
    cluster_authorized_operations: int32 = since(8, until=10, default=-0x8000_0000)
    error_code: int16 = since(13, default=0)
