"""DescribeShareGroupOffsets: where share groups are in their partitions (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from base.pause import through
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.groups.share_protocol import StartOffset
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Each, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from broker.share.machine.stored_states import NO_START
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_share_group_offsets import (
    DescribedGroup,
    DescribedPartition,
    DescribedTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestedGroup,
)

API = Declaration(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    permissions=Permissions(group=Operation.DESCRIBE, topic=Operation.DESCRIBE),
    names=Names(each=Each(ResourceType.GROUP, "groups", "groups", lambda group: group.group_id)),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)
DENIED = StartOffset(NO_START, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    metadata_cache: MetadataCache
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group once, and each partition of it once, however often they are named."""
    pause = services.sliced_work.pause
    groups = {wanted.group_id: wanted async for wanted in through(request.groups, pause)}
    return DescribeShareGroupOffsetsResponse(
        groups=[await _described(services, context, wanted) async for wanted in through(groups.values(), pause)]
    )


def failed(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext, code: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[DescribedGroup(group_id=wanted.group_id, error_code=code) for wanted in request.groups]
    )


async def _described(services: Needs, context: RequestContext, wanted: RequestedGroup) -> DescribedGroup:
    try:
        return DescribedGroup(group_id=wanted.group_id, topics=await _topics(services, context, wanted))
    except KafkaError as error:
        return DescribedGroup(group_id=wanted.group_id, error_code=error.code, error_message=error.message)


async def _topics(services: Needs, context: RequestContext, wanted: RequestedGroup) -> list[DescribedTopic]:
    """Return where a group is. Raises KafkaError if it is not a share group, or not coordinated here."""
    shares, group_id, pause = services.groups.shares, wanted.group_id, services.sliced_work.pause
    known = shares.known_partitions(group_id)
    asked = known
    if wanted.topics is not None:
        asked = {
            topic.topic_name: list(dict.fromkeys(topic.partitions)) async for topic in through(wanted.topics, pause)
        }
    topics = []
    async for name, numbers in through(asked.items(), pause):
        may_see = services.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        if not may_see and wanted.topics is None:
            continue
        offsets = await shares.start_offsets(group_id, name, numbers) if may_see else [DENIED] * len(numbers)
        partitions = [
            DescribedPartition(partition_index=number, start_offset=offset, leader_epoch=leader_epoch, error_code=code)
            async for number, (offset, leader_epoch, code) in through(zip(numbers, offsets, strict=True), pause)
        ]
        topics.append(
            DescribedTopic(topic_name=name, topic_id=services.metadata_cache.id_of(name), partitions=partitions)
        )
    return topics
