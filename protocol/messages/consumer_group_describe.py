"""ConsumerGroupDescribe (69): returns state and members of groups with the new protocol (KIP-848)."""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int8, int16, int32, message, since, string, struct, uuid


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=range(0, 2), flexible=0)
class ConsumerGroupDescribeRequest:
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
    instance_id: string | None = None
    rack_id: string | None = None
    member_epoch: int32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: int8 = since(1, default=-1)  # -1: unknown, 0: of the classic protocol, 1: of the consumer protocol


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


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=range(0, 2), flexible=0)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]
