"""AlterShareGroupOffsets: an empty share group begins at other offsets (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from base.pause import each, through
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.alter_share_group_offsets import (
    AlteredPartition,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    TopicResult,
)

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
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    pause, authorizer = services.sliced_work.pause, services.authorizer
    offsets: dict[tuple[str, int], int] = {}
    async for topic in through(request.topics, pause):
        if not authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic.topic_name):
            continue
        async for wanted in through(topic.partitions, pause):
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
                topic_id=services.metadata_cache.id_of(topic.topic_name),
                partitions=await each(topic.partitions, partial(_result, codes, topic.topic_name), pause),
            )
            async for topic in through(request.topics, pause)
        ]
    )


def _result(codes: Mapping[tuple[str, int], ErrorCode], name: str, wanted: AlteredPartition) -> PartitionResult:
    code = codes.get((name, wanted.partition_index), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    message = ERRORS[code].message if code else None
    return PartitionResult(partition_index=wanted.partition_index, error_code=code, error_message=message)
