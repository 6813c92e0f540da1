"""ConsumerGroupDescribe: rejected for each group, as groups of this protocol are not supported (KIP-848)."""

from __future__ import annotations

from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

API = Declaration(ApiKey.CONSUMER_GROUP_DESCRIBE)


def handle(
    services: object, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    return failed(request, context, ErrorCode.UNSUPPORTED_VERSION)


def failed(
    request: ConsumerGroupDescribeRequest, context: RequestContext, code: ErrorCode
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )
