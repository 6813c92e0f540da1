"""JoinGroup: join a member to its group. The response is sent when the generation is formed.

Version notes: v0 has no rebalance timeout and uses its session timeout; v4 a dynamic member gets its id first and joins
again with it (KIP-394); v5 static members (KIP-345); v7 the response has the protocol type, and null if the protocol is
not known; v9 a returning static leader can be asked to skip the assignment (KIP-814).
"""

from __future__ import annotations

from random import Random
from typing import Protocol
from uuid import UUID

from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.events import JoinRequest, JoinResult, MemberProtocol
from broker.handlers.declaration import MEMBERS, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

FIRST_VERSION_WITH_REQUIRED_MEMBER_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9


API = Declaration(
    ApiKey.JOIN_GROUP,
    permissions=Permissions(group=Operation.READ),
    names=Names(group="group_id"),
    waits_for=MEMBERS,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    random: Random
    groups: GroupCoordinator


async def handle(services: Needs, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    result = await services.groups.join(request.group_id, _join_request(services.random, request, context))
    return _response(result, context)


def failed(request: JoinGroupRequest, context: RequestContext, code: ErrorCode) -> JoinGroupResponse:
    return _response(JoinResult(code, request.member_id), context)


def _join_request(random: Random, request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
    version = context.api_version
    client_id = context.client_id or ""
    unique_id = UUID(int=random.getrandbits(128), version=4)
    return JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(each.name, each.metadata) for each in request.protocols),
        generated_member_id=f"{request.group_instance_id or client_id}-{unique_id}",
        requires_known_member_id=version >= FIRST_VERSION_WITH_REQUIRED_MEMBER_ID,
        supports_skipping_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
        reason=request.reason or "",
    )


def _response(result: JoinResult, context: RequestContext) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and context.api_version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.group_instance_id, metadata=each.metadata
            )
            for each in result.members
        ],
    )
