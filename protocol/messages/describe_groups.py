"""DescribeGroups (15): returns state, protocol and members of groups.

v3 adds authorized operations, v4 static members, v6 an error for a group that does not exist (KIP-1043).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, bytes_, int16, int32, message, since, string, struct


@message(ApiKey.DESCRIBE_GROUPS, versions=range(0, 7), flexible=5)
class DescribeGroupsRequest:
    groups: list[string]
    include_authorized_operations: boolean = since(3, default=False)


@struct
class DescribedGroupMember:
    member_id: string
    group_instance_id: string | None = since(4, default=None)
    client_id: string
    client_host: string
    member_metadata: bytes_
    member_assignment: bytes_


@struct
class DescribedGroup:
    error_code: int16 = 0
    error_message: string | None = since(6, default=None)
    group_id: string
    group_state: string = ""
    protocol_type: string = ""
    protocol_data: string = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: int32 = since(3, default=-0x8000_0000)  # the lowest number: not requested


@message(ApiKey.DESCRIBE_GROUPS, versions=range(0, 7), flexible=5)
class DescribeGroupsResponse:
    throttle_time_ms: int32 = since(1, default=0)
    groups: list[DescribedGroup]
