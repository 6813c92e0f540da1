"""DeleteShareGroupState: the group coordinator ends states of a share group (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers import share_state_requests
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_state_requests import refused, served
from broker.security.acls import Operation
from broker.share.machine.state_calls import Delete
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse

API = Declaration(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(share_state_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""


async def handle(
    services: Needs, request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:
    response: DeleteShareGroupStateResponse = await served(services, request, context, Delete)
    return response


def failed(
    request: DeleteShareGroupStateRequest, context: RequestContext, code: ErrorCode
) -> DeleteShareGroupStateResponse:
    response: DeleteShareGroupStateResponse = refused(request, Delete, code)
    return response
