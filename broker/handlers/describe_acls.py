"""DescribeAcls: list the ACLs that match a filter. Without an authorizer it fails with SECURITY_DISABLED.

Version notes: v0 knows literal patterns only; v1 prefixed ones (KIP-290), v3 the resource type of users (KIP-373).
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.acl_elements import filter_of
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acl_store import AclStore
from broker.security.acls import Operation, PatternType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode
from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

API = Declaration(
    ApiKey.DESCRIBE_ACLS,
    permissions=Permissions(cluster=Operation.DESCRIBE),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    acls: AclStore


async def handle(services: Needs, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    wanted = filter_of(request)
    if not services.authorizer.is_active:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for pattern, acls in await services.acls.find(wanted)
            if context.api_version > 0 or pattern.pattern_type is PatternType.LITERAL
        ],
    )


def failed(request: DescribeAclsRequest, context: RequestContext, code: ErrorCode) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=ERRORS[code].message)
