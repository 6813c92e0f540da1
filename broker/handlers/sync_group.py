"""SyncGroup: return the assignment of a member; the leader brings the assignments of all.

Version notes: v3 static members; v5 the request has to name the protocol of the generation (KIP-559).
"""

from __future__ import annotations

from typing import Protocol

from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.events import SyncRequest, SyncResult
from broker.handlers.declaration import MEMBERS, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL = 5


API = Declaration(
    ApiKey.SYNC_GROUP,
    permissions=Permissions(group=Operation.READ),
    names=Names(group="group_id"),
    waits_for=MEMBERS,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    groups: GroupCoordinator


async def handle(services: Needs, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        return failed(request, context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    result = await services.groups.sync(
        request.group_id,
        SyncRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: each.assignment for each in request.assignments},
        ),
    )
    return _response(result)


def failed(request: SyncGroupRequest, context: RequestContext, code: ErrorCode) -> SyncGroupResponse:
    return _response(SyncResult(code))


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
