"""OffsetFetch: read the offsets that groups have committed.

A partition without one, or of a group that does not exist, is answered with offset -1 and no error; clients then start
where they are configured to.

Version notes: v0 reads where consumers of 0.8 store (`/consumers`), where a partition without an offset is error 3;
before v2 an error of the group stands at each partition; v2 null asks for all; v7 can insist on offsets that no open
transaction may change; v8 several groups.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

from broker.groups.offsets import GroupOffsets
from broker.groups.records import NO_LEADER_EPOCH, OffsetAndMetadata
from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

VERSION_OF_CONSUMERS_TREE = 0
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
NO_OFFSET = -1

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)
Found = tuple[int, OffsetAndMetadata | None, ErrorCode]


def handle(
    services: Services, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=[_group(services, group, request) for group in request.groups])
    if context.api_version == VERSION_OF_CONSUMERS_TREE:
        return _read_consumers_tree(services, request)
    offsets = services.groups.offsets(request.group_id)
    return OffsetFetchResponse(
        topics=[
            _topic(topic, _look_up(offsets, topic, partitions, request.require_stable))
            for topic, partitions in _wanted(request.topics, offsets)
        ]
    )


def failed(request: OffsetFetchRequest, context: RequestContext, code: ErrorCode) -> OffsetFetchResponse:
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=each.group_id, topics=[], error_code=code) for each in request.groups
            ]
        )
    if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            _topic(topic.name, [(partition, None, code) for partition in topic.partition_indexes])
            for topic in request.topics or ()
        ]
    )


def _group(
    services: Services, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest
) -> OffsetFetchResponseGroup:
    try:
        offsets = services.groups.offsets(wanted.group_id)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=error.code)
    return OffsetFetchResponseGroup(
        group_id=wanted.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    _partition(OffsetFetchResponsePartitions, *found)
                    for found in _look_up(offsets, topic, partitions, request.require_stable)
                ],
            )
            for topic, partitions in _wanted(wanted.topics, offsets)
        ],
    )


def _wanted(
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None, offsets: GroupOffsets
) -> Iterable[tuple[str, Iterable[int]]]:
    if topics is not None:
        return [(topic.name, topic.partition_indexes) for topic in topics]
    by_topic: dict[str, list[int]] = {}
    for topic, partition in offsets.committed:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic.items()


def _look_up(offsets: GroupOffsets, topic: str, partitions: Iterable[int], require_stable: bool) -> list[Found]:
    found: list[Found] = []
    for partition in partitions:
        key = (topic, partition)
        if require_stable and offsets.is_unstable(key):
            found.append((partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            found.append((partition, offsets.get(key), ErrorCode.NONE))
    return found


def _topic(name: str, found: Iterable[Found]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name, partitions=[_partition(OffsetFetchResponsePartition, *each) for each in found]
    )


def _partition(cls: type[P], partition: int, value: OffsetAndMetadata | None, code: ErrorCode) -> P:
    """Both classes are one layout, which the protocol declares twice."""
    if value is None:
        return cls(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
            error_code=code,
        )
    return cls(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=code,
    )


async def _read_consumers_tree(services: Services, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = []
    for topic in request.topics or ():
        found = [await _read_one(services, request.group_id, topic.name, each) for each in topic.partition_indexes]
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=found))
    return OffsetFetchResponse(topics=topics)


async def _read_one(services: Services, group_id: str, topic: str, partition: int) -> OffsetFetchResponsePartition:
    code, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if services.metadata_cache.contains(topic, partition):
        try:
            offset = await services.groups.legacy_offsets.read(group_id, topic, partition)
        except KafkaError as error:
            code = error.code
    if offset is None:
        return _partition(OffsetFetchResponsePartition, partition, None, code)
    return OffsetFetchResponsePartition(partition_index=partition, committed_offset=offset, metadata="")
