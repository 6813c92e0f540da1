"""ListGroups (16): lists the groups that a broker coordinates.

v4 adds states, v5 types of groups (KIP-848).
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, since, string, struct


@message(ApiKey.LIST_GROUPS, versions=range(0, 6), flexible=3)
class ListGroupsRequest:
    states_filter: list[string] = since(4, default=[])
    types_filter: list[string] = since(5, default=[])


@struct
class ListedGroup:
    group_id: string
    protocol_type: string
    group_state: string = since(4, default="")
    group_type: string = since(5, default="")


@message(ApiKey.LIST_GROUPS, versions=range(0, 6), flexible=3)
class ListGroupsResponse:
    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = 0
    groups: list[ListedGroup] = []
