"""ReadShareGroupState: the leader of a partition reads how far a share group is in it (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers import share_state_requests
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_state_requests import refused, served
from broker.security.acls import Operation
from broker.share.machine.state_calls import Read
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse

API = Declaration(
    ApiKey.READ_SHARE_GROUP_STATE,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(share_state_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""


async def handle(
    services: Needs, request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:
    response: ReadShareGroupStateResponse = await served(services, request, context, Read)
    return response


def failed(
    request: ReadShareGroupStateRequest, context: RequestContext, code: ErrorCode
) -> ReadShareGroupStateResponse:
    response: ReadShareGroupStateResponse = refused(request, Read, code)
    return response
