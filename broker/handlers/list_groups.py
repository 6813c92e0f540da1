"""ListGroups: the groups that this broker coordinates; a client asks every broker for the full list.

Version notes: v4 states and a filter of them (KIP-518); v5 types and a filter of them (KIP-848).
"""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUP_TYPE = "classic"


def handle(services: Services, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    code, groups = services.groups.groups()
    return ListGroupsResponse(
        error_code=code,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in groups
            if (not states or group.state.value.lower() in states) and (not types or GROUP_TYPE in types)
        ],
    )


def failed(request: ListGroupsRequest, context: RequestContext, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])
