"""InitializeShareGroupState: the group coordinator begins states of a share group (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers import share_state_requests
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_state_requests import refused, served
from broker.security.acls import Operation
from broker.share.machine.state_calls import Initialize
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

API = Declaration(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(share_state_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""


async def handle(
    services: Needs, request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    response: InitializeShareGroupStateResponse = await served(services, request, context, Initialize)
    return response


def failed(
    request: InitializeShareGroupStateRequest, context: RequestContext, code: ErrorCode
) -> InitializeShareGroupStateResponse:
    response: InitializeShareGroupStateResponse = refused(request, Initialize, code)
    return response
