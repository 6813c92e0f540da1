"""CreateAcls: fails with SECURITY_DISABLED, as in Kafka without an authorizer."""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import NO_AUTHORIZER, refuse_unknown
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(services: object, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    for each in request.creations:
        refuse_unknown(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )


def failed(request: CreateAclsRequest, context: RequestContext, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(error_code=code) for _ in request.creations])
