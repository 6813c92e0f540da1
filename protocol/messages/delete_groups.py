"""DeleteGroups (42): deletes empty groups with their offsets.

v2 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct


@message(ApiKey.DELETE_GROUPS, versions=range(0, 3), flexible=2)
class DeleteGroupsRequest:
    groups_names: list[string]


@struct
class DeletableGroupResult:
    group_id: string
    error_code: int16 = 0


@message(ApiKey.DELETE_GROUPS, versions=range(0, 3), flexible=2)
class DeleteGroupsResponse:
    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult]
