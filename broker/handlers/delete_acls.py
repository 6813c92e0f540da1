"""DeleteAcls: fails with SECURITY_DISABLED, as in Kafka without an authorizer."""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import NO_AUTHORIZER, refuse_unknown
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(services: object, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    for each in request.filters:
        refuse_unknown(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.filters
        ]
    )


def failed(request: DeleteAclsRequest, context: RequestContext, code: ErrorCode) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_code=code) for _ in request.filters])
