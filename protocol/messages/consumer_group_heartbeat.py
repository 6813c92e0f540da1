"""ConsumerGroupHeartbeat (68): a member subscribes, stays alive and gets its assignment (KIP-848)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, since, string, struct, uuid


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=range(0, 2), flexible=0)
class ConsumerGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: int32  # 0: joins, -1: leaves, -2: a static member leaves for a while
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1  # -1: as before
    subscribed_topic_names: list[string] | None = None  # None: as before
    subscribed_topic_regex: string | None = since(1, default=None)  # None: as before
    server_assignor: string | None = None
    topic_partitions: list[TopicPartitions] | None = None  # None: as before


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=range(0, 2), flexible=0)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None  # None: as before
