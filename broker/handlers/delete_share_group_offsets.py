"""DeleteShareGroupOffsets: an empty share group forgets what it has read of topics (KIP-932)."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
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


async def handle(
    services: Needs, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    names = [topic.topic_name for topic in request.topics]
    allowed = [name for name in names if services.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, name)]
    try:
        codes = await services.groups.shares.forget(request.group_id, dict.fromkeys(allowed))
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    return DeleteShareGroupOffsetsResponse(
        responses=[
            TopicResult(
                topic_name=name,
                topic_id=_id_of(services, name),
                error_code=codes.get(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            )
            for name in names
        ]
    )


def _id_of(services: Needs, name: str) -> UUID:
    topic = services.metadata_cache.topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id
