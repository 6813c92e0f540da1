"""WriteShareGroupState: the leader of a partition stores what a share group has done in it (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers import share_state_requests
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_state_requests import refused, served
from broker.security.acls import Operation
from broker.share.machine.state_calls import Write
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

API = Declaration(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=COORDINATOR_LOG,
    elements=Elements.CONTROL,  # a state has as many batches as its leader has records in flight, see `BATCHES_MAX`
)


class Needs(share_state_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""


async def handle(
    services: Needs, request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:
    response: WriteShareGroupStateResponse = await served(services, request, context, Write)
    return response


def failed(
    request: WriteShareGroupStateRequest, context: RequestContext, code: ErrorCode
) -> WriteShareGroupStateResponse:
    response: WriteShareGroupStateResponse = refused(request, Write, code)
    return response
