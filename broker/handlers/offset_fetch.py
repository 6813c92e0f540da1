"""OffsetFetch: return the committed offsets of groups.

A partition without an offset, or of a group that does not exist, gets offset -1 and no error; the client then applies
auto.offset.reset.

Version notes: v0 reads the offsets of consumers of 0.8 (`/consumers`), where a partition without an offset gets error
3; before v2 every partition has the error of the group; v2 null requests all partitions; v7 may require offsets that no
open transaction can change (KIP-447); v8 several groups; v9 the member of a group of the consumer protocol (KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.groups.legacy_offsets import LegacyOffsets
from broker.groups.machine.offsets import GroupOffsets
from broker.groups.machine.records import NO_LEADER_EPOCH
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.guard import Guard, parted
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.partial_service import with_field
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork, Step
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
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

STEP_SIZE = 500
"""Partitions whose offsets are read in one step of a slice."""

Wanted = Mapping[str, Iterable[int]]
"""Partitions by topic."""

T = TypeVar("T")
P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


API = Declaration(
    ApiKey.OFFSET_FETCH,
    permissions=Permissions(group=Operation.DESCRIBE, topic=Operation.DESCRIBE),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    metadata_cache: MetadataCache
    groups: GroupCoordinator
    legacy_offsets: LegacyOffsets
    sliced_work: SlicedWork


async def handle(services: Needs, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version == VERSION_OF_CONSUMERS_TREE:
        return await _read_consumers_tree(services, request)
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return await _respond_for_groups(services, request)
    return await _respond_for_group(services, request)


def failed(request: OffsetFetchRequest, context: RequestContext, code: ErrorCode) -> OffsetFetchResponse:
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=[_failed_group(group.group_id, code) for group in request.groups])
    if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _without_offset(OffsetFetchResponsePartition, each, code) for each in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


async def _respond_for_group(services: Needs, request: OffsetFetchRequest) -> OffsetFetchResponse:
    pause = services.sliced_work.pause
    offsets = await _consistent(services.groups.offsets.of(request.group_id), request.topics, pause)
    wanted = await _wanted(request.topics, offsets, pause)
    found = await _read_offsets(OffsetFetchResponsePartition, offsets, wanted, request.require_stable, pause)
    topics = await _build_topics(found, lambda name, each: OffsetFetchResponseTopic(name=name, partitions=each), pause)
    return OffsetFetchResponse(topics=topics)


async def _respond_for_groups(services: Needs, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Each group once, with the topics of the first place that names it."""
    pause = services.sliced_work.pause
    groups: list[OffsetFetchResponseGroup] = []
    seen: set[str] = set()
    for group in request.groups:
        if group.group_id in seen:
            await pause()
            continue
        if groups:
            await pause()
        seen.add(group.group_id)
        try:
            services.groups.offsets.require_member(group.group_id, group.member_id, group.member_epoch)
            offsets = await _consistent(services.groups.offsets.of(group.group_id), group.topics, pause)
        except KafkaError as error:
            groups.append(_failed_group(group.group_id, error.code))
            continue
        wanted = await _wanted(group.topics, offsets, pause)
        found = await _read_offsets(OffsetFetchResponsePartitions, offsets, wanted, request.require_stable, pause)
        topics = await _build_topics(
            found, lambda name, each: OffsetFetchResponseTopics(name=name, partitions=each), pause
        )
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
    return OffsetFetchResponse(groups=groups)


async def _build_topics(
    found: Sequence[tuple[str, list[P]]], topic_of: Callable[[str, list[P]], T], pause: Pause
) -> list[T]:
    """Build the topics of a response: `topic_of(name, partitions)` for each."""
    topics: list[T] = []
    for name, partitions in found:
        if topics and len(topics) % STEP_SIZE == 0:
            await pause()
        topics.append(topic_of(name, partitions))
    return topics


def _failed_group(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=code)


async def _consistent(
    offsets: GroupOffsets, topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None, pause: Pause
) -> GroupOffsets:
    """Return offsets that do not change between the steps of the response: a transaction commits all or none."""
    count = 0
    if topics is None:
        count = len(offsets.committed)
    else:
        for number, topic in enumerate(topics, 1):
            count += len(topic.partition_indexes)
            if count > STEP_SIZE:
                break
            if number % STEP_SIZE == 0:
                await pause()
    return offsets.snapshot() if count > STEP_SIZE else offsets


async def _wanted(
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None, offsets: GroupOffsets, pause: Pause
) -> Wanted:
    """Return the partitions to be read, each once, by topic; without `topics`, all with a committed offset."""
    if topics is not None:
        return await _named(topics, pause)
    committed: dict[str, dict[int, None]] = {}
    for number, (topic, partition) in enumerate(list(offsets.committed)):
        if number and number % STEP_SIZE == 0:
            await pause()
        committed.setdefault(topic, {})[partition] = None
    return committed


async def _named(topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics], pause: Pause) -> Wanted:
    partitions: dict[str, dict[int, None]] = {}
    step = Step(STEP_SIZE)
    for topic in topics:
        if topic.partition_indexes:
            partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        if step.is_over(topic.name):
            await pause()
    return partitions


async def _read_offsets(
    cls: type[P], offsets: GroupOffsets, wanted: Wanted, require_stable: bool, pause: Pause
) -> list[tuple[str, list[P]]]:
    """Read the offsets."""
    found = []
    read_count = 0
    for topic, partitions in wanted.items():
        results: list[P] = []
        for partition in partitions:
            if read_count == STEP_SIZE:
                read_count = 0
                await pause()
            read_count += 1
            results.append(_partition(cls, offsets, (topic, partition), require_stable))
        found.append((topic, results))
    return found


def _partition(cls: type[P], offsets: GroupOffsets, partition: TopicPartition, require_stable: bool) -> P:
    """Build the result of one partition. `cls` is one of two classes with the same fields."""
    if require_stable and offsets.is_unstable(partition):
        return _without_offset(cls, partition[1], ErrorCode.UNSTABLE_OFFSET_COMMIT)
    value = offsets.get(partition)
    if value is None:
        return _without_offset(cls, partition[1], ErrorCode.NONE)
    return cls(
        partition_index=partition[1],
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _without_offset(cls: type[P], partition: int, code: ErrorCode) -> P:
    return cls(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=code,
    )


async def _read_consumers_tree(services: Needs, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = []
    pause = services.sliced_work.pause
    wanted = await _named(request.topics or (), pause)
    for name, partitions in wanted.items():
        found = []
        for each in partitions:
            await pause()
            found.append(await _fetch_one(services, request.group_id, name, each))
        topics.append(OffsetFetchResponseTopic(name=name, partitions=found))
    return OffsetFetchResponse(topics=topics)


async def _fetch_one(services: Needs, group_id: str, topic: str, partition: int) -> OffsetFetchResponsePartition:
    code, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if services.metadata_cache.contains(topic, partition):
        try:
            offset = await services.legacy_offsets.read(group_id, topic, partition)
        except KafkaError as error:
            code = error.code
    if offset is None:
        return _without_offset(OffsetFetchResponsePartition, partition, code)
    return OffsetFetchResponsePartition(partition_index=partition, committed_offset=offset, metadata="")


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    """Serve what is allowed: groups and topics that are denied get a result of their own."""
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return await _authorize_groups(guard, services, request, context)
    guard.require(context, ResourceType.GROUP, request.group_id)
    return await _authorize_one_group(guard, services, request, context)


async def _authorize_one_group(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    denied: Sequence[Any] = ()
    if request.topics is not None:
        allowed, denied = await guard.split(services, context, ResourceType.TOPIC, request.topics)
        request = with_field(request, "topics", allowed)
    response = await guard.settled(services, guard.begun(services, request, context), context)
    response.topics = await guard.visible(services, context, ResourceType.TOPIC, response.topics)

    def refused() -> list[Any]:
        return [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, **_DENIED_OFFSET)
                    for index in topic.partition_indexes
                ],
            )
            for topic in denied
        ]

    response.topics += await guard.computed(services, context, refused)
    return response


async def _authorize_groups(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    pause = services.sliced_work.pause
    groups, denied_groups = await guard.split(
        services, context, ResourceType.GROUP, request.groups, attrgetter("group_id")
    )
    asked = await guard.computed(services, context, lambda: _topic_names(groups))
    refused_names = await guard.refused(context, ResourceType.TOPIC, asked, pause)
    served, denied_topics = await guard.computed(services, context, lambda: _parted_groups(groups, refused_names))
    response = await guard.settled(
        services, guard.begun(services, with_field(request, "groups", served), context), context
    )
    found = await guard.computed(services, context, lambda: _topic_names(response.groups))
    hidden = await guard.refused(context, ResourceType.TOPIC, found, pause, is_logged_if_denied=False)

    def completed() -> Any:
        for group in response.groups:
            group.topics = [topic for topic in group.topics if topic.name not in hidden]
            group.topics += [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartitions(partition_index=index, **_DENIED_OFFSET)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in denied_topics.get(group.group_id, ())
            ]
        refused = with_field(request, "groups", denied_groups)
        response.groups += failed(refused, context, ErrorCode.GROUP_AUTHORIZATION_FAILED).groups
        return response

    return await guard.computed(services, context, completed)


_DENIED_OFFSET: Mapping[str, Any] = {
    "committed_offset": -1,
    "metadata": "",
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}


def _topic_names(groups: Iterable[Any]) -> Collection[str]:
    return dict.fromkeys(topic.name for group in groups for topic in group.topics or ())


def _parted_groups(groups: Iterable[Any], refused: Collection[str]) -> tuple[list[Any], Mapping[str, Sequence[Any]]]:
    """Return the groups with their allowed topics, and by group the refused ones."""
    served = []
    refused_topics: dict[str, Sequence[Any]] = {}
    for group in groups:
        allowed = group.topics
        if allowed is not None:
            allowed, denied = parted(allowed, attrgetter("name"), refused)
            refused_topics.setdefault(group.group_id, denied)
        served.append(with_field(group, "topics", allowed))
    return served, refused_topics
