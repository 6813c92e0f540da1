"""ShareGroupDescribe (77): returns state and members of share groups (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, message, string, struct, uuid


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions=range(1, 2), flexible=0)
class ShareGroupDescribeRequest:
    group_ids: list[string]
    include_authorized_operations: boolean


@struct
class TopicPartitions:
    topic_id: uuid
    topic_name: string
    partitions: list[int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@struct
class Member:
    member_id: string
    rack_id: string | None = None
    member_epoch: int32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    assignment: Assignment


@struct
class DescribedGroup:
    error_code: int16 = 0
    error_message: string | None = None
    group_id: string
    group_state: string = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: string = ""
    members: list[Member] = []
    authorized_operations: int32 = -0x8000_0000  # the lowest number: not requested


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions=range(1, 2), flexible=0)
class ShareGroupDescribeResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]
