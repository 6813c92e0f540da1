"""DeleteGroups: delete empty groups with their offsets, each with its own error code (KIP-229)."""

from __future__ import annotations

from typing import Protocol

from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Each, Elements, Names, Permissions, itself
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

API = Declaration(
    ApiKey.DELETE_GROUPS,
    permissions=Permissions(group=Operation.DELETE),
    names=Names(each=Each(ResourceType.GROUP, "groups_names", "results", itself)),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    groups: GroupCoordinator
    sliced_work: SlicedWork


async def handle(services: Needs, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse(results=[])
    pause = services.sliced_work.pause
    for group_id in dict.fromkeys(request.groups_names):
        code = await _delete(services, group_id)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        await pause()
    return response


def failed(request: DeleteGroupsRequest, context: RequestContext, code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


async def _delete(services: Needs, group_id: str) -> ErrorCode:
    try:
        return await services.groups.delete(group_id)
    except KafkaError as error:
        return error.code
