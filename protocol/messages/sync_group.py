"""SyncGroup (14): the leader sends the assignments of a generation, every member receives its own.

v3 adds static members, v5 the protocol, so that the coordinator can check it.
"""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, int32, message, since, string, struct


@struct
class SyncGroupRequestAssignment:
    member_id: string
    assignment: bytes_


@message(ApiKey.SYNC_GROUP, versions=range(0, 6), flexible=4)
class SyncGroupRequest:
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since(3, default=None)
    protocol_type: string | None = since(5, ignorable=True, default=None)
    protocol_name: string | None = since(5, ignorable=True, default=None)
    assignments: list[SyncGroupRequestAssignment]  # from the leader only


@message(ApiKey.SYNC_GROUP, versions=range(0, 6), flexible=4)
class SyncGroupResponse:
    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
    protocol_type: string | None = since(5, default=None)
    protocol_name: string | None = since(5, default=None)
    assignment: bytes_ = b""
