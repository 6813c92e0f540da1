"""AlterShareGroupOffsets: an empty share group begins at other offsets (KIP-932)."""

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
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    TopicResult,
)
from protocol.schema import ZERO_UUID

API = Declaration(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    permissions=Permissions(group=Operation.READ, topic=Operation.READ),
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
    services: Needs, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    allowed = {
        topic.topic_name: services.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic.topic_name)
        for topic in request.topics
    }
    offsets = {}
    for topic in request.topics:
        if allowed[topic.topic_name]:
            for wanted in topic.partitions:
                if wanted.start_offset < 0:
                    return AlterShareGroupOffsetsResponse(
                        error_code=ErrorCode.INVALID_REQUEST,
                        error_message=f"Start offset {wanted.start_offset}: expected an offset from 0 on.",
                    )
                offsets[topic.topic_name, wanted.partition_index] = wanted.start_offset
    try:
        codes = await services.groups.shares.move(request.group_id, offsets)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    return AlterShareGroupOffsetsResponse(
        responses=[
            TopicResult(
                topic_name=topic.topic_name,
                topic_id=_id_of(services, topic.topic_name),
                partitions=[
                    PartitionResult(
                        partition_index=wanted.partition_index,
                        error_code=codes.get(
                            (topic.topic_name, wanted.partition_index), ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        ),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _id_of(services: Needs, name: str) -> UUID:
    topic = services.metadata_cache.topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id
