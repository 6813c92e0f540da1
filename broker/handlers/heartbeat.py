"""Heartbeat: keep a member's session alive and report a rebalance. v3 static members."""

from __future__ import annotations

from typing import Protocol

from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import MEMBERS, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse, ScannedHeartbeat

SCANNED = ScannedHeartbeat


API = Declaration(
    ApiKey.HEARTBEAT,
    permissions=Permissions(group=Operation.READ),
    names=Names(group="group_id"),
    waits_for=MEMBERS,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    groups: GroupCoordinator


def handle(services: Needs, request: ScannedHeartbeat, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(
        error_code=services.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    )


def failed(request: ScannedHeartbeat, context: RequestContext, code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
