"""ListOffsets: offsets by timestamp, or the ends of the log.

Version notes: v0 returns segment base offsets by file time; v1+ one offset by record time; v2 isolation level; v4
leader epoch; v5 OFFSET_NOT_AVAILABLE; v7 -3 (largest timestamp); v8 -4 (earliest local); v9 -5 (latest tiered);
v10 a timeout for remote storage, which this broker does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from base.clock import Clock
from base.pause import Pause, never, whole
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.replica.manager import ReplicaManager
from broker.replica.partition import FetchIsolation, Partition
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    ListOffsetsTopicRow,
    ScannedListOffsets,
)
from protocol.row_writer import NO_ERRORS, RowResponse, other_counts, row_writer

CONSUMER = -1
TOOL = -2
"""The replica id of a tool that compares replicas: each of them responds, up to the end of its log."""
ISOLATIONS: Mapping[int, FetchIsolation] = MappingProxyType(
    {0: FetchIsolation.HIGH_WATERMARK, 1: FetchIsolation.LAST_STABLE_OFFSET}
)
"""What a consumer may read, by the isolation level of its request."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
# The first version that supports each special timestamp.
SINCE_VERSION = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
"""Older clients get LEADER_NOT_AVAILABLE, which they retry as well."""

UNKNOWN_OFFSET = -1
UNKNOWN_TIMESTAMP = -1
UNKNOWN_EPOCH = -1

SCANNED = ScannedListOffsets

Response = RowResponse | ListOffsetsResponse
"""A `ListOffsetsResponse` in v0, whose results are lists, and if a topic is empty or has the name before it."""

_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class

T = TypeVar("T")


API = Declaration(
    ApiKey.LIST_OFFSETS,
    permissions=Permissions(topic=Operation.DESCRIBE),
    names=Names(each=Each(ResourceType.TOPIC, "topics", "topics")),
    elements=Elements.BULK,
)


class Found(NamedTuple):
    """The result for one partition."""

    error_code: int = ErrorCode.NONE
    timestamp: int = UNKNOWN_TIMESTAMP
    offset: int = UNKNOWN_OFFSET
    leader_epoch: int = UNKNOWN_EPOCH
    old_style_offsets: Sequence[int] = ()
    """The result in v0, whose responses have none of the three above."""


NOTHING_FOUND = Found()


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    replica_manager: ReplicaManager
    sliced_work: SlicedWork

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]: ...


def handle(
    services: Needs, request: ScannedListOffsets, context: RequestContext
) -> Response | Coroutine[Any, Any, Response]:
    topics, version = request.topics, context.api_version
    if len(topics) == 1 and version > 0:
        name, partitions = topics[0]
        if len(partitions) == 1 and not _reads_records(partitions[0].timestamp):
            # Each task of Spark asks twice before each poll, so this is one of its most frequent requests.
            wanted = partitions[0]
            found = _find(services, request, version, name, wanted)
            return _in_rows([name], [wanted.partition_index], [found], version)
    return _handle_all(services, request, version)


def failed(request: ScannedListOffsets, context: RequestContext, code: ErrorCode) -> ListOffsetsResponse:
    return whole(_in_objects(request.topics, repeat(Found(code)), never))


async def _handle_all(services: Needs, request: ScannedListOffsets, version: int) -> Response:
    pause = services.sliced_work.pause
    asked: Counter[tuple[str, int]] = Counter()
    reads_records = False
    for topic in request.topics:
        await pause()
        for wanted in topic.partitions:
            asked[topic.name, wanted.partition_index] += 1
            reads_records |= _reads_records(wanted.timestamp)
            await pause()
    if not reads_records:
        return await _find_all(services, request, version, asked, pause)
    return await services.in_thread(lambda: whole(_find_all(services, request, version, asked, never)))


def _reads_records(timestamp: int) -> bool:
    """Return whether the offset is looked up in the log, which may wait for a disk."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


async def _find_all(
    services: Needs, request: ScannedListOffsets, version: int, asked: Mapping[tuple[str, int], int], pause: Pause
) -> Response:
    """Respond for all partitions; `asked` is how often the request names each partition."""
    names: list[str] = []
    indexes: list[int] = []
    found: list[Found] = []
    previous = None
    are_rows = version > 0
    for name, partitions in request.topics:
        are_rows = are_rows and bool(partitions) and name != previous
        previous = name
        for wanted in partitions:
            index = wanted.partition_index
            is_asked_twice = version > 0 and asked[name, index] > 1
            names.append(name)
            indexes.append(index)
            found.append(
                Found(ErrorCode.INVALID_REQUEST) if is_asked_twice else _find(services, request, version, name, wanted)
            )
            await pause()
        await pause()
    if are_rows:
        return _in_rows(names, indexes, found, version)
    return await _in_objects(request.topics, found, pause)


def _in_rows(names: Sequence[str], indexes: Sequence[int], found: Sequence[Found], version: int) -> RowResponse:
    """Return the response. Each topic has partitions, and another name than the one before it."""
    writer = row_writer(ListOffsetsResponse, version)
    if len(names) == 1:
        code, timestamp, offset, leader_epoch, _ = found[0]
        write = partial(writer.write_one, names[0], indexes[0], code, timestamp, offset, leader_epoch)
        return RowResponse(1, write, {code: 1} if code else NO_ERRORS)
    # By columns, no step of the interpreter is spent on a row.
    codes, *numbers, _ = zip(*found, strict=True) if found else ((), (), (), (), ())
    return RowResponse(len(names), partial(writer.write, names, indexes, codes, *numbers), other_counts(codes))


async def _in_objects(
    topics: Sequence[ListOffsetsTopicRow], found: Iterable[Found], pause: Pause
) -> ListOffsetsResponse:
    """Return the response in any version, and with topics that are empty, or named twice."""
    response = ListOffsetsResponse(topics=[])
    results = iter(found)
    for name, partitions in topics:
        responses = []
        for wanted in partitions:
            one = next(results)
            responses.append(
                ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=one.error_code,
                    old_style_offsets=list(one.old_style_offsets),
                    timestamp=one.timestamp,
                    offset=one.offset,
                    leader_epoch=one.leader_epoch,
                )
            )
            await pause()
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=responses))
        await pause()
    return response


def _find(
    services: Needs, request: ScannedListOffsets, version: int, topic: str, wanted: ListOffsetsPartition
) -> Found:
    try:
        return _found(services, request, version, topic, wanted)
    except KafkaError as error:
        return Found(error.code)


def _found(
    services: Needs, request: ScannedListOffsets, version: int, topic: str, wanted: ListOffsetsPartition
) -> Found:
    """Return the result for one partition. Raises KafkaError."""
    replica_id, isolation_level, _ = request
    index, current_leader_epoch, timestamp = wanted.partition_index, wanted.current_leader_epoch, wanted.timestamp
    partition = services.replica_manager.find(topic, index)
    if partition is None:
        raise services.why_not_hosted(topic, index)
    if replica_id == TOOL:
        partition.require_epoch(current_leader_epoch)
    else:
        partition.require_leader(current_leader_epoch)
    is_consumer = replica_id == CONSUMER
    if not is_consumer:
        isolation = FetchIsolation.LOG_END
    elif isolation_level in ISOLATIONS:
        isolation = ISOLATIONS[isolation_level]
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {isolation_level}: expected is 0 or 1")
    end_offset = partition.readable_end_offset(isolation)
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in version {version}")
    if version == 0:
        offsets = partition.log.lookups.legacy_offsets_before(
            timestamp, wanted.max_num_offsets, now_ms=services.clock.now_ms()
        )
        visible = [offset for offset in offsets if offset <= end_offset]
        return Found(old_style_offsets=visible if len(visible) == len(offsets) else [end_offset, *visible])
    if is_consumer and timestamp == LATEST:
        _require_caught_up(partition, version)
    found = _look_up(partition, timestamp, end_offset)
    if found is not None:
        return found
    if is_consumer:
        _require_caught_up(partition, version)
    return NOTHING_FOUND


def _require_caught_up(partition: Partition, version: int) -> None:
    """Check that the high watermark has reached the start of the leader's epoch.

    Before, a new leader may know a lower high watermark than its predecessor, and a consumer would see offsets go back.

    Raises:
        KafkaError: OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE.
    """
    epoch_start_offset = partition.log.leader_epochs.start_offset_of(partition.leader_epoch)
    if epoch_start_offset is not None and partition.log.high_watermark < epoch_start_offset:
        is_known = version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE)


def _look_up(partition: Partition, timestamp: int, end_offset: int) -> Found | None:
    """Return the requested record, or None if there is none."""
    log = partition.log
    if timestamp == LATEST:
        return _at(end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _at(log.log_start_offset, _epoch_of_start(partition))
    if timestamp == LATEST_TIERED:
        return None
    if timestamp == MAX_TIMESTAMP:
        found = log.lookups.max_timestamp(upper_bound_offset=end_offset)
    else:
        found = log.lookups.offset_for_timestamp(timestamp, upper_bound_offset=end_offset)
    return None if found is None else _at(found.offset, found.leader_epoch, found.timestamp_ms)


def _at(offset: int, leader_epoch: int, timestamp: int = UNKNOWN_TIMESTAMP) -> Found:
    return _new_tuple(Found, (ErrorCode.NONE, timestamp, offset, leader_epoch, ()))


def _epoch_of_start(partition: Partition) -> int:
    """Return the leader epoch of the first record; for an empty log, the epoch that its first record will have."""
    log = partition.log
    if log.log_start_offset == log.log_end_offset:
        return partition.leader_epoch
    return log.leader_epochs.epoch_at(log.log_start_offset)
