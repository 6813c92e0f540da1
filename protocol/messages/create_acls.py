"""CreateAcls (30): creates ACLs.

v1 adds pattern types (KIP-290), v3 the resource type of users (KIP-373).
"""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, message, since, string, struct


@struct
class AclCreation:
    resource_type: int8
    resource_name: string
    resource_pattern_type: int8 = since(1, default=3)  # 3: literal, 4: prefixed
    principal: string
    host: string
    operation: int8
    permission_type: int8  # 2: deny, 3: allow


@message(ApiKey.CREATE_ACLS, versions=range(0, 4), flexible=2)
class CreateAclsRequest:
    creations: list[AclCreation]


@struct
class AclCreationResult:
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.CREATE_ACLS, versions=range(0, 4), flexible=2)
class CreateAclsResponse:
    throttle_time_ms: int32 = 0
    results: list[AclCreationResult]
