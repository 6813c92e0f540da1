"""DeleteAcls: delete the ACLs that match filters; each filter has its own result, with the ACLs that it deleted.

Without an authorizer each filter fails with SECURITY_DISABLED.

Version notes: v1 prefixed patterns (KIP-290), v3 the resource type of users (KIP-373).
"""

from __future__ import annotations

from typing import Protocol

from base.pause import each
from broker.handlers.acl_elements import filter_of
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import NO_AUTHORIZER
from broker.loop.slices import SlicedWork
from broker.security.acl_store import AclStore
from broker.security.acls import Filter, Operation
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

API = Declaration(
    ApiKey.DELETE_ACLS,
    permissions=Permissions(cluster=Operation.ALTER),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    acls: AclStore
    sliced_work: SlicedWork


async def handle(services: Needs, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    filters = await each(request.filters, filter_of, services.sliced_work.pause)
    if not services.authorizer.is_active:
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                for _ in filters
            ]
        )
    return DeleteAclsResponse(filter_results=[await _result(services, wanted) for wanted in filters])


def failed(request: DeleteAclsRequest, context: RequestContext, code: ErrorCode) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_code=code) for _ in request.filters])


async def _result(services: Needs, wanted: Filter) -> DeleteAclsFilterResult:
    try:
        deleted = await services.acls.delete(wanted)
    except KafkaError as error:
        return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for pattern, acl in deleted
        ]
    )
