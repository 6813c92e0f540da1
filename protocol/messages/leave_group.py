"""LeaveGroup (13): members leave their group.

v0-2 name one member, v3+ several, also static ones. v5 adds reasons.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, since, string, struct


@struct
class MemberIdentity:
    member_id: string
    group_instance_id: string | None = None
    reason: string | None = since(5, ignorable=True, default=None)


@message(ApiKey.LEAVE_GROUP, versions=range(0, 6), flexible=4)
class LeaveGroupRequest:
    group_id: string
    member_id: string = since(0, until=2, default="")
    members: list[MemberIdentity] = since(3, default=[])


@struct
class MemberResponse:
    member_id: string
    group_instance_id: string | None = None
    error_code: int16 = 0


@message(ApiKey.LEAVE_GROUP, versions=range(0, 6), flexible=4)
class LeaveGroupResponse:
    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
    members: list[MemberResponse] = since(3, default=[])
