"""DeleteShareGroupOffsets: an empty share group forgets what it has read of topics (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from base.pause import through
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)
from protocol.schema import ZERO_UUID

API = Declaration(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    permissions=Permissions(group=Operation.DELETE, topic=Operation.READ),
    names=Names(group="group_id"),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    metadata_cache: MetadataCache
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    pause, authorizer = services.sliced_work.pause, services.authorizer
    allowed: dict[str, None] = {}
    async for topic in through(request.topics, pause):
        if authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic.topic_name):
            allowed[topic.topic_name] = None
    try:
        codes = await services.groups.shares.forget(request.group_id, allowed)
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    names = dict.fromkeys([topic.topic_name async for topic in through(request.topics, pause)])
    return DeleteShareGroupOffsetsResponse(
        responses=[
            _result(services, name, codes.get(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            async for name in through(names, pause)
        ]
    )


def _result(services: Needs, name: str, code: ErrorCode) -> TopicResult:
    if code:
        return TopicResult(topic_name=name, topic_id=ZERO_UUID, error_code=code, error_message=ERRORS[code].message)
    return TopicResult(topic_name=name, topic_id=services.metadata_cache.id_of(name))
