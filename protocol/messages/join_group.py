"""JoinGroup (11): a member joins its group and waits for the generation to form.

v1 adds the rebalance timeout, v4 makes members rejoin with their new member id (MEMBER_ID_REQUIRED), v5 adds
static members, v7 the protocol type, v8 reasons, v9 lets the leader skip the assignment.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, bytes_, int16, int32, message, since, string, struct


@struct
class JoinGroupRequestProtocol:
    name: string
    metadata: bytes_


@message(ApiKey.JOIN_GROUP, versions=range(0, 10), flexible=6)
class JoinGroupRequest:
    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = since(1, ignorable=True, default=-1)  # -1 in v0, which means the session timeout
    member_id: string
    group_instance_id: string | None = since(5, default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = since(8, ignorable=True, default=None)


@struct
class JoinGroupResponseMember:
    member_id: string
    group_instance_id: string | None = since(5, default=None)
    metadata: bytes_


@message(ApiKey.JOIN_GROUP, versions=range(0, 10), flexible=6)
class JoinGroupResponse:
    throttle_time_ms: int32 = since(2, default=0)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: string | None = since(7, default=None)
    protocol_name: string | None = since(0, nullable=7)
    leader: string = ""
    skip_assignment: boolean = since(9, default=False)
    member_id: string
    members: list[JoinGroupResponseMember] = []  # for the leader only
