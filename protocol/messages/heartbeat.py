"""Heartbeat (12): a member reports to its group coordinator that it is alive, and learns of rebalances.

v3 adds static members.
"""

from typing import NamedTuple

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, since, string


@message(ApiKey.HEARTBEAT, versions=range(0, 5), flexible=4)
class HeartbeatRequest:
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since(3, default=None)


class ScannedHeartbeat(NamedTuple):
    """The result of scanning a HeartbeatRequest (`protocol.scanner`)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


@message(ApiKey.HEARTBEAT, versions=range(0, 5), flexible=4)
class HeartbeatResponse:
    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
