"""DescribeGroups: describe the state and the members of groups. Before version 6, one that does not exist is Dead.

So is one of the consumer protocol, which ConsumerGroupDescribe describes.

The protocol, the metadata and the assignments of members are returned for stable groups only.

Version notes: v3 authorised operations (KIP-430); v4 instance ids; v6 GROUP_ID_NOT_FOUND in place of Dead (KIP-1043).
"""

from __future__ import annotations

from typing import Protocol

from base.pause import each
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.group import Group
from broker.groups.machine.states import GroupState
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions, itself
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.schema import first_version

FIRST_VERSION_WITH_MISSING_GROUPS = first_version(DescribedGroup, "error_message")

API = Declaration(
    ApiKey.DESCRIBE_GROUPS,
    permissions=Permissions(group=Operation.DESCRIBE),
    names=Names(each=Each(ResourceType.GROUP, "groups", "groups", itself)),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    sliced_work: SlicedWork


async def handle(services: Needs, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Each group once, however often the request names it."""
    pause = services.sliced_work.pause
    groups = await each(
        dict.fromkeys(request.groups), lambda group_id: _describe(services, request, context, group_id), pause
    )
    return DescribeGroupsResponse(groups=groups)


def failed(request: DescribeGroupsRequest, context: RequestContext, code: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_nothing(group_id, "", code) for group_id in request.groups])


def _describe(
    services: Needs, request: DescribeGroupsRequest, context: RequestContext, group_id: str
) -> DescribedGroup:
    try:
        group = services.groups.inspection.group(group_id)
    except KafkaError as error:
        return _nothing(group_id, "", error.code)
    if isinstance(group, Group):
        described = _existing(group)
    elif context.api_version < FIRST_VERSION_WITH_MISSING_GROUPS:
        described = _nothing(group_id, GroupState.DEAD.value, ErrorCode.NONE)
    else:
        described = _nothing(group_id, GroupState.DEAD.value, ErrorCode.GROUP_ID_NOT_FOUND)
        described.error_message = (
            f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        )
    if request.include_authorized_operations:
        described.authorized_operations = services.authorizer.operations(context, ResourceType.GROUP, group_id)
    return described


def _existing(group: Group) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


def _nothing(group_id: str, state: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
    )
