"""DescribeAcls (29): lists the ACLs that match a filter.

v1 adds pattern types (KIP-290), v3 the resource type of users (KIP-373).
"""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, message, since, string, struct


@message(ApiKey.DESCRIBE_ACLS, versions=range(0, 4), flexible=2)
class DescribeAclsRequest:
    resource_type_filter: int8
    resource_name_filter: string | None  # None: any
    pattern_type_filter: int8 = since(1, default=3)  # 1: any, 2: match, 3: literal, 4: prefixed
    principal_filter: string | None  # None: any
    host_filter: string | None  # None: any
    operation: int8
    permission_type: int8


@struct
class AclDescription:
    principal: string
    host: string
    operation: int8
    permission_type: int8


@struct
class DescribeAclsResource:
    resource_type: int8
    resource_name: string
    pattern_type: int8 = since(1, default=3)
    acls: list[AclDescription]


@message(ApiKey.DESCRIBE_ACLS, versions=range(0, 4), flexible=2)
class DescribeAclsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    resources: list[DescribeAclsResource] = []
