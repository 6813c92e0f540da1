"""DescribeShareGroupOffsets: where share groups are in their partitions (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from base.pause import through
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
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
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    metadata_cache: MetadataCache
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            await _described(services, context, wanted)
            async for wanted in through(request.groups, services.sliced_work.pause)
        ]
    )


def failed(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext, code: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[DescribedGroup(group_id=wanted.group_id, error_code=code) for wanted in request.groups]
    )


async def _described(services: Needs, context: RequestContext, wanted: RequestedGroup) -> DescribedGroup:
    shares, group_id, pause = services.groups.shares, wanted.group_id, services.sliced_work.pause
    try:
        known = shares.known_partitions(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    asked = (
        known.items() if wanted.topics is None else ((topic.topic_name, topic.partitions) for topic in wanted.topics)
    )
    topics = []
    async for name, numbers in through(asked, pause):
        may_see = services.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        if not may_see and wanted.topics is None:
            continue
        topic = DescribedTopic(topic_name=name, topic_id=services.metadata_cache.id_of(name), partitions=[])
        async for number in through(numbers, pause):
            if not may_see:
                described = DescribedPartition(partition_index=number, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                offset, leader_epoch, code = shares.start_offset(group_id, name, number)
                described = DescribedPartition(
                    partition_index=number, start_offset=offset, leader_epoch=leader_epoch, error_code=code
                )
            topic.partitions.append(described)
        topics.append(topic)
    return DescribedGroup(group_id=group_id, topics=topics)
