"""OffsetCommit: store the offsets that a group has consumed.

Partitions that do not exist are refused one by one, the rest is committed as one batch. A commit of thousands lets
other requests have their turn in between.

Version notes: v0 stores where consumers of 0.8 looked (`/consumers`), without a group; v1 a timestamp for each offset;
v2 to v4 a time to live; v6 leader epochs; v7 static members; v9 is for members of KIP-848 groups, which are not served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from broker.groups.batches import COMMIT_STEP_SIZE
from broker.groups.coordinator import NOTHING_REFUSED, CommitAnswer, Committer
from broker.groups.offsets import Offsets, TopicPartition
from broker.groups.ports import LegacyOffsets
from broker.groups.records import NO_TIMESTAMP, OffsetAndMetadata
from broker.request_context import RequestContext
from broker.services import Services
from broker.slices import Slices, whole
from config.topic_properties import LONG_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

Response = OffsetCommitResponse | Awaitable[Slices[OffsetCommitResponse]]

VERSION_OF_CONSUMERS_TREE = 0
DEFAULT = -1
"""For a timestamp: now. For a time to live: the broker's."""


def handle(
    services: Services, request: OffsetCommitRequest, context: RequestContext
) -> Slices[Response] | Awaitable[Slices[OffsetCommitResponse]]:
    if context.api_version == VERSION_OF_CONSUMERS_TREE:
        return _store_in_consumers_tree(services, request)
    return _commit(services, request)


def failed(request: OffsetCommitRequest, context: RequestContext, code: ErrorCode) -> OffsetCommitResponse:
    return whole(_response(request, code))


def _commit(services: Services, request: OffsetCommitRequest) -> Slices[Response]:
    """Nothing is stored before the last offset was looked at."""
    exists = services.metadata_cache.contains
    now_ms = services.clock.now_ms()
    expires_ms = NO_TIMESTAMP
    if request.retention_time_ms != DEFAULT:
        expires_ms = min(now_ms + request.retention_time_ms, LONG_MAX)
    offsets: Offsets = {}
    unknown: set[TopicPartition] = set()
    looked_at = 0
    for topic in request.topics:
        looked_at += 1
        if looked_at % COMMIT_STEP_SIZE == 0:
            yield
        for partition in topic.partitions:
            looked_at += 1
            if looked_at % COMMIT_STEP_SIZE == 0:
                yield
            key = (topic.name, partition.partition_index)
            if exists(*key):
                offsets[key] = _offset(partition, now_ms, expires_ms)
            else:
                unknown.add(key)
    if not offsets:
        return (yield from _response(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    committer = Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    if len(offsets) > COMMIT_STEP_SIZE:
        answer = yield from services.groups.commit_in_slices(request.group_id, committer, offsets)
        yield
    else:
        answer = services.groups.commit(request.group_id, committer, offsets)
    if isinstance(answer, CommitAnswer):
        return (yield from _answer(request, unknown, answer))
    return _later(request, unknown, answer)


async def _later(
    request: OffsetCommitRequest, unknown: set[TopicPartition], awaited: Awaitable[CommitAnswer]
) -> Slices[OffsetCommitResponse]:
    return _answer(request, unknown, await awaited)


def _offset(partition: OffsetCommitRequestPartition, now_ms: int, expires_ms: int) -> OffsetAndMetadata:
    given_ms = partition.commit_timestamp
    return OffsetAndMetadata(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if given_ms == DEFAULT else given_ms,
        expire_timestamp_ms=expires_ms,
    )


def _answer(
    request: OffsetCommitRequest, unknown: set[TopicPartition], answer: CommitAnswer
) -> Slices[OffsetCommitResponse]:
    refused = {**dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), **answer.refused}
    return _response(request, answer.error, refused)


def _response(
    request: OffsetCommitRequest, error: ErrorCode, others: Mapping[TopicPartition, ErrorCode] = NOTHING_REFUSED
) -> Slices[OffsetCommitResponse]:
    """`error` for every partition that is not one of the `others`; each once, and all of a topic in one place."""
    answers: dict[str, dict[int, OffsetCommitResponsePartition]] = {}
    looked_at = 0
    for topic in request.topics:
        looked_at += 1
        if looked_at % COMMIT_STEP_SIZE == 0:
            yield
        if topic.partitions:
            of_topic = answers.setdefault(topic.name, {})
        for partition in topic.partitions:
            looked_at += 1
            if looked_at % COMMIT_STEP_SIZE == 0:
                yield
            index = partition.partition_index
            code = others.get((topic.name, index), error) if others else error
            of_topic[index] = OffsetCommitResponsePartition(partition_index=index, error_code=code)
    topics = []
    for name, partitions in answers.items():
        topics.append(OffsetCommitResponseTopic(name=name, partitions=list(partitions.values())))
        if len(topics) % COMMIT_STEP_SIZE == 0:
            yield
    return OffsetCommitResponse(topics=topics)


async def _store_in_consumers_tree(services: Services, request: OffsetCommitRequest) -> Slices[OffsetCommitResponse]:
    codes = {}
    for topic in request.topics:
        for partition in topic.partitions:
            codes[topic.name, partition.partition_index] = await _store_one(
                services, services.groups.legacy_offsets, request.group_id, topic.name, partition
            )
    return _response(request, ErrorCode.NONE, codes)


async def _store_one(
    services: Services, store: LegacyOffsets, group_id: str, topic: str, partition: OffsetCommitRequestPartition
) -> ErrorCode:
    if not services.metadata_cache.contains(topic, partition.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(partition.committed_metadata or "") > services.groups.settings.offset_metadata_size_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    try:
        await store.write(group_id, topic, partition.partition_index, partition.committed_offset)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
