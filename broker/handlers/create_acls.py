"""CreateAcls: create ACLs, each with its own result. Without an authorizer each fails with SECURITY_DISABLED.

Version notes: v1 prefixed patterns (KIP-290), v3 the resource type of users (KIP-373).
"""

from __future__ import annotations

from typing import Protocol

from base.pause import each
from broker.handlers.acl_elements import acl_of
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import NO_AUTHORIZER
from broker.loop.slices import SlicedWork
from broker.security.acl_store import AclStore
from broker.security.acls import Operation, is_only_for_filters
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

API = Declaration(
    ApiKey.CREATE_ACLS,
    permissions=Permissions(cluster=Operation.ALTER),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    acls: AclStore
    sliced_work: SlicedWork


async def handle(services: Needs, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    creations = await each(request.creations, acl_of, services.sliced_work.pause)
    if not services.authorizer.is_active:
        disabled = KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[_result(disabled) for _ in creations])
    if any(is_only_for_filters(pattern, acl) for pattern, acl in creations):
        return failed(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    return CreateAclsResponse(results=[_result(error) for error in await services.acls.create(creations)])


def failed(request: CreateAclsRequest, context: RequestContext, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(error_code=code) for _ in request.creations])


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message="")
    message = None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message
    return AclCreationResult(error_code=error.code, error_message=message)
