"""DescribeAcls: fails with SECURITY_DISABLED, as in Kafka without an authorizer."""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import refuse_unknown
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(services: object, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    refuse_unknown(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
