"""ShareGroupHeartbeat (76): a member of a share group subscribes, stays alive and gets its partitions (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct, uuid


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions=range(1, 2), flexible=0)
class ShareGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: int32  # 0: joins, -1: leaves
    rack_id: string | None = None
    subscribed_topic_names: list[string] | None = None  # None: as before


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions=range(1, 2), flexible=0)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None  # None: as before
