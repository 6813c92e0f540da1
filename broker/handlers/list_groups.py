"""ListGroups: list the groups that this broker coordinates; for all groups a client sends it to every broker.

Version notes: v4 states and a filter by state (KIP-518); v5 types and a filter by type (KIP-848).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Protocol

from base.pause import through
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.consumer.group import ConsumerGroup
from broker.groups.machine.group import Group
from broker.groups.machine.share.group import ShareGroup
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"

API = Declaration(
    ApiKey.LIST_GROUPS,
    permissions=Permissions(
        group=Operation.DESCRIBE, cluster_instead=Operation.DESCRIBE, note="other groups are not listed"
    ),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    groups: GroupCoordinator
    sliced_work: SlicedWork


async def handle(services: Needs, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    pause = services.sliced_work.pause
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    code, groups = services.groups.inspection.groups()
    listed = [
        _listed(group)
        async for group in through(groups, pause)
        if (not states or group.state.value.lower() in states) and (not types or _type(group) in types)
    ]
    return ListGroupsResponse(error_code=code, groups=listed)


def _type(group: Group | ConsumerGroup | ShareGroup) -> str:
    if isinstance(group, ShareGroup):
        return SHARE
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


def _listed(group: Group | ConsumerGroup | ShareGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=_type(group),
    )


def failed(request: ListGroupsRequest, context: RequestContext, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    outcome = guard.begun(services, request, context)
    may_see_all = guard.has_instead(context)
    response = await guard.settled(services, outcome, context)
    if not may_see_all:
        response.groups = await guard.visible(
            services, context, ResourceType.GROUP, response.groups, attrgetter("group_id")
        )
    return response
