"""ReadShareGroupStateSummary: the group coordinator reads where a share group begins (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers import share_state_requests
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_state_requests import refused, served
from broker.security.acls import Operation
from broker.share.machine.state_calls import ReadSummary
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

API = Declaration(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(share_state_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""


async def handle(
    services: Needs, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    response: ReadShareGroupStateSummaryResponse = await served(services, request, context, ReadSummary)
    return response


def failed(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext, code: ErrorCode
) -> ReadShareGroupStateSummaryResponse:
    response: ReadShareGroupStateSummaryResponse = refused(request, ReadSummary, code)
    return response
