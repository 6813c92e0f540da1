"""CreateTopics (19): creates topics.

v1 can validate only and explains errors, v4 uses the broker's defaults for -1, v5 returns configs, v7
topic ids.
"""

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, boolean, int8, int16, int32, message, since, string, struct, uuid


@struct
class CreatableReplicaAssignment:
    partition_index: int32
    broker_ids: list[int32]


@struct
class CreatableTopicConfig:
    name: string
    value: string | None


@struct
class CreatableTopic:
    name: string
    num_partitions: int32  # -1: the broker's default, or given by the assignments
    replication_factor: int16  # -1: the broker's default, or given by the assignments
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(ApiKey.CREATE_TOPICS, versions=range(0, 8), flexible=5)
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: int32 = 60000
    validate_only: boolean = since(1, default=False)


@struct
class CreatableTopicConfigs:
    name: string
    value: string | None
    read_only: boolean
    config_source: int8 = -1
    is_sensitive: boolean


@struct
class CreatableTopicResult:
    name: string
    topic_id: uuid = since(7, default=ZERO_UUID)
    error_code: int16 = 0
    error_message: string | None = since(1, default=None)
    topic_config_error_code: int16 = since(5, tag=0, default=0)
    num_partitions: int32 = since(5, default=-1)
    replication_factor: int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, default=None)


@message(ApiKey.CREATE_TOPICS, versions=range(0, 8), flexible=5)
class CreateTopicsResponse:
    throttle_time_ms: int32 = since(2, default=0)
    topics: list[CreatableTopicResult] = since(0, takes_encoded=True)
