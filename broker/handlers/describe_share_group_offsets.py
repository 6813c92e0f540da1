"""DescribeShareGroupOffsets: where share groups are in their partitions (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from base.pause import Pause, through
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


Named = dict[str, dict[int, None]]
"""Partitions by topic, each once."""


async def handle(
    services: Needs, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group once, and each partition of it once, however often they are named."""
    pause = services.sliced_work.pause
    named = await _named(request, pause)
    return DescribeShareGroupOffsetsResponse(
        groups=[
            await _described(services, context, group_id, topics)
            async for group_id, topics in through(named.items(), pause)
        ]
    )


async def _named(request: DescribeShareGroupOffsetsRequest, pause: Pause) -> dict[str, Named | None]:
    """Return what is asked of each group; None: of all that it has."""
    groups: dict[str, Named | None] = {}
    async for wanted in through(request.groups, pause):
        topics = groups.setdefault(wanted.group_id, {})
        if wanted.topics is None:
            groups[wanted.group_id] = None
        elif topics is not None:
            async for topic in through(wanted.topics, pause):
                topics.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
    return groups


def failed(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext, code: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[DescribedGroup(group_id=wanted.group_id, error_code=code) for wanted in request.groups]
    )


async def _described(services: Needs, context: RequestContext, group_id: str, named: Named | None) -> DescribedGroup:
    try:
        return DescribedGroup(group_id=group_id, topics=await _topics(services, context, group_id, named))
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


async def _topics(services: Needs, context: RequestContext, group_id: str, named: Named | None) -> list[DescribedTopic]:
    """Return where a group is. Raises KafkaError if it is not a share group, or not coordinated here."""
    shares, pause = services.groups.shares, services.sliced_work.pause
    known = shares.known_partitions(group_id)
    asked: Mapping[str, Iterable[int]] = known if named is None else named
    topics = []
    async for name, asked_numbers in through(asked.items(), pause):
        numbers = list(asked_numbers)
        may_see = services.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        if not may_see and named is None:
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
