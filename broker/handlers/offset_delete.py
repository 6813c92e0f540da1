"""OffsetDelete: delete the offsets of a group for partitions that no member of it reads (KIP-496)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.partial_service import with_field
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API = Declaration(
    ApiKey.OFFSET_DELETE,
    permissions=Permissions(group=Operation.DELETE, topic=Operation.READ),
    names=Names(group="group_id"),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    metadata_cache: MetadataCache
    groups: GroupCoordinator
    sliced_work: SlicedWork


async def handle(services: Needs, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    requested, known = await _requested(services, request)
    codes = await services.groups.removal.delete_offsets(request.group_id, known)
    return await _response(requested, codes, services.sliced_work.pause)


def failed(request: OffsetDeleteRequest, context: RequestContext, code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


async def _requested(
    services: Needs, request: OffsetDeleteRequest
) -> tuple[dict[TopicPartition, None], list[TopicPartition]]:
    """Return the requested partitions, each once, and those of them that exist."""
    pause = services.sliced_work.pause
    requested: dict[TopicPartition, None] = {}
    known = []
    for topic in request.topics:
        await pause()
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if key not in requested and services.metadata_cache.contains(*key):
                known.append(key)
            requested[key] = None
            await pause()
    return requested, known


async def _response(
    requested: Iterable[TopicPartition], codes: Mapping[TopicPartition, ErrorCode], pause: Pause
) -> OffsetDeleteResponse:
    topics = await group_by_topic(
        ((partition, _result(partition, codes)) for partition in requested),
        lambda name, partitions: OffsetDeleteResponseTopic(name=name, partitions=partitions),
        pause,
    )
    return OffsetDeleteResponse(topics=topics)


def _result(partition: TopicPartition, codes: Mapping[TopicPartition, ErrorCode]) -> OffsetDeleteResponsePartition:
    code = codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetDeleteResponsePartition(partition_index=partition[1], error_code=code)


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    guard.require(context, ResourceType.GROUP, request.group_id)
    allowed, denied = await guard.split(services, context, ResourceType.TOPIC, request.topics)

    def refused() -> list[Any]:
        return [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                    for one in topic.partitions
                ],
            )
            for topic in denied
        ]

    outcome = guard.begun(services, with_field(request, "topics", allowed), context)
    return await guard.extended(services, outcome, context, "topics", refused)
