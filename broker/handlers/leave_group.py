"""LeaveGroup: remove members from their group.

Version notes: before v3 one member, whose error is that of the response; v3 several, each with its own error, and
static ones may be named by their instance id alone; v5 a reason.
"""

from __future__ import annotations

from typing import Protocol

from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import MEMBERS, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


API = Declaration(
    ApiKey.LEAVE_GROUP,
    permissions=Permissions(group=Operation.READ),
    names=Names(group="group_id"),
    waits_for=MEMBERS,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    groups: GroupCoordinator


def handle(services: Needs, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        (code,) = services.groups.leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=code)
    members = request.members
    codes = services.groups.leave(
        request.group_id,
        [(member.member_id, member.group_instance_id) for member in members],
        next((member.reason for member in members if member.reason), ""),
    )
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
            for member, code in zip(members, codes, strict=True)
        ]
    )


def failed(request: LeaveGroupRequest, context: RequestContext, code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
