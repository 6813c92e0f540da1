"""OffsetCommit: store the offsets that a group has consumed.

Partitions that do not exist are refused one by one, the rest is committed as one batch. A commit of thousands lets
other requests have their turn in between.

Version notes: v0 stores where consumers of 0.8 read (`/consumers`), without a group; v1 a timestamp for each offset;
v2 to v4 a time to live; v6 leader epochs; v7 static members; v9 the epochs of members of the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import repeat
from typing import Protocol

from base.clock import Clock
from base.pause import Pause, never, whole
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.batches import COMMIT_STEP_SIZE
from broker.groups.coordinator import GroupCoordinator
from broker.groups.legacy_offsets import LegacyOffsets
from broker.groups.machine.offsets import Offsets
from broker.groups.machine.records import NO_TIMESTAMP, OffsetAndMetadata
from broker.groups.offset_commits import NOTHING_REFUSED, Committer
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Each, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from config.topic_properties import LONG_MAX
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import OffsetCommitResponse, OffsetCommitRow, ScannedOffsetCommit
from protocol.row_writer import RowResponse, other_counts, row_writer

SCANNED = ScannedOffsetCommit
VERSION_OF_CONSUMERS_TREE = 0
FIRST_VERSION_WITH_EPOCHS = 9
DEFAULT = -1
"""For a timestamp: now. For a time to live: the broker's."""


API = Declaration(
    ApiKey.OFFSET_COMMIT,
    permissions=Permissions(group=Operation.READ, topic=Operation.READ),
    names=Names(group="group_id", each=Each(ResourceType.TOPIC, "topics", "topics")),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    metadata_cache: MetadataCache
    groups: GroupCoordinator
    legacy_offsets: LegacyOffsets
    sliced_work: SlicedWork


async def handle(services: Needs, request: ScannedOffsetCommit, context: RequestContext) -> RowResponse:
    """Commit offsets. Nothing is stored before the last offset was checked."""
    version = context.api_version
    if version == VERSION_OF_CONSUMERS_TREE:
        return await _store_in_consumers_tree(services, request)
    pause = services.sliced_work.pause
    exists = services.metadata_cache.contains
    now_ms = services.clock.now_ms()
    expires_ms = NO_TIMESTAMP
    if request.retention_time_ms != DEFAULT:
        expires_ms = min(now_ms + request.retention_time_ms, LONG_MAX)
    offsets: Offsets = {}
    unknown: set[TopicPartition] = set()
    for number, row in enumerate(request.topics, 1):
        if number % COMMIT_STEP_SIZE == 0:
            await pause()
        key = row[:2]
        if exists(*key):
            offsets[key] = _offset(row, now_ms, expires_ms)
        else:
            unknown.add(key)
    if not offsets:
        return await _response(request, version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_REFUSED, pause)
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        version >= FIRST_VERSION_WITH_EPOCHS,
    )
    if len(offsets) > COMMIT_STEP_SIZE:
        result = await services.groups.offsets.commit_in_slices(request.group_id, committer, offsets, pause)
        await pause()
    else:
        result = await services.groups.offsets.commit(request.group_id, committer, offsets)
    refused = result.refused
    if unknown:
        refused = {**dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), **refused}
    return await _response(request, version, result.error, refused, pause)


def failed(request: ScannedOffsetCommit, context: RequestContext, code: ErrorCode) -> RowResponse:
    return whole(_response(request, context.api_version, code, NOTHING_REFUSED, never))


def _offset(row: OffsetCommitRow, now_ms: int, expires_ms: int) -> OffsetAndMetadata:
    given_ms = row.commit_timestamp
    return OffsetAndMetadata(
        offset=row.committed_offset,
        leader_epoch=row.committed_leader_epoch,
        metadata=row.committed_metadata or "",
        commit_timestamp_ms=now_ms if given_ms == DEFAULT else given_ms,
        expire_timestamp_ms=expires_ms,
    )


async def _response(
    request: ScannedOffsetCommit,
    version: int,
    error: ErrorCode,
    others: Mapping[TopicPartition, ErrorCode],
    pause: Pause,
) -> RowResponse:
    """`error` for every partition that is not one of the `others`; each once, and all of a topic in one place."""
    by_topic: dict[str, dict[int, ErrorCode]] = {}
    for number, row in enumerate(request.topics, 1):
        if number % COMMIT_STEP_SIZE == 0:
            await pause()
        name, index = key = row[:2]
        code = others.get(key, error) if others else error
        by_topic.setdefault(name, {})[index] = code
    names: list[str] = []
    indexes: list[int] = []
    error_codes: list[ErrorCode] = []
    for name, codes in by_topic.items():
        names += repeat(name, len(codes))
        indexes += codes
        error_codes += codes.values()
        await pause()
    writer = row_writer(OffsetCommitResponse, version)
    counts = other_counts(error_codes)
    if len(names) == 1:
        return RowResponse(1, partial(writer.write_one, names[0], indexes[0], error_codes[0]), counts)
    return RowResponse(len(names), partial(writer.write, names, indexes, error_codes), counts)


async def _store_in_consumers_tree(services: Needs, request: ScannedOffsetCommit) -> RowResponse:
    codes = {}
    pause = services.sliced_work.pause
    for row in request.topics:
        await pause()
        codes[row[:2]] = await _store_one(services, request.group_id, row)
    return await _response(request, VERSION_OF_CONSUMERS_TREE, ErrorCode.NONE, codes, pause)


async def _store_one(services: Needs, group_id: str, row: OffsetCommitRow) -> ErrorCode:
    topic, partition = row[:2]
    if not services.metadata_cache.contains(topic, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(row.committed_metadata or "") > services.groups.settings.offset_metadata_size_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    try:
        await services.legacy_offsets.write(group_id, topic, partition, row.committed_offset)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
