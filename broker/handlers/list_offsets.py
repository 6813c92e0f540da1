"""ListOffsets: offsets by timestamp, or the ends of the log.

Version notes: v0 returns segment base offsets by file time; v1+ one offset by record time; v2 isolation level; v4
leader epoch; v5 OFFSET_NOT_AVAILABLE; v7 -3 (largest timestamp); v8 -4 (earliest local); v9 -5 (latest tiered).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from broker.handlers.request_context import RequestContext
from broker.loop.clock import Clock
from broker.loop.slices import Slices, whole
from broker.replica.manager import ReplicaManager
from broker.replica.partition import FetchIsolation, Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

CONSUMER = -1
TOOL = -2
"""The replica id of a tool that compares replicas: each of them responds, up to the end of its log."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

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


T = TypeVar("T")


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    replica_manager: ReplicaManager

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...

    def run_blocking(self, work: Callable[[], T]) -> Awaitable[T]: ...


def handle(
    services: Needs, request: ListOffsetsRequest, context: RequestContext
) -> Slices[ListOffsetsResponse | Awaitable[ListOffsetsResponse]]:
    asked: Counter[tuple[str, int]] = Counter()
    reads_records = False
    for topic in request.topics:
        yield
        for wanted in topic.partitions:
            asked[topic.name, wanted.partition_index] += 1
            reads_records |= _reads_records(wanted.timestamp)
            yield
    finding = _find_all(services, request, context, asked)
    return services.run_blocking(lambda: whole(finding)) if reads_records else (yield from finding)


def _reads_records(timestamp: int) -> bool:
    """Return whether the offset is looked up in the log, which may wait for a disk."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _find_all(
    services: Needs, request: ListOffsetsRequest, context: RequestContext, asked: Mapping[tuple[str, int], int]
) -> Slices[ListOffsetsResponse]:
    """Respond for all partitions; `asked` is how often the request names each partition."""
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            try:
                if context.api_version > 0 and asked[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the same partition was asked twice")
                found = _find(services, topic.name, wanted, request, context)
            except KafkaError as error:
                found = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
            partitions.append(found)
            yield
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield
    return response


def failed(request: ListOffsetsRequest, context: RequestContext, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(
    services: Needs,
    topic: str,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsPartitionResponse:
    partition = services.replica_manager.find(topic, wanted.partition_index)
    if partition is None:
        raise services.why_not_hosted(topic, wanted.partition_index)
    if request.replica_id == TOOL:
        partition.require_epoch(wanted.current_leader_epoch)
    else:
        partition.require_leader(wanted.current_leader_epoch)
    if request.replica_id == CONSUMER:
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"isolation level {request.isolation_level}: expected is 0 or 1"
            )
        is_committed = request.isolation_level == READ_COMMITTED
        isolation = FetchIsolation.LAST_STABLE_OFFSET if is_committed else FetchIsolation.HIGH_WATERMARK
    else:
        isolation = FetchIsolation.LOG_END
    end_offset = partition.readable_end_offset(isolation)
    response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)
    _require_known(wanted.timestamp, context.api_version)
    if context.api_version == 0:
        offsets = partition.log.lookups.legacy_offsets_before(
            wanted.timestamp, wanted.max_num_offsets, now_ms=services.clock.now_ms()
        )
        visible = [offset for offset in offsets if offset <= end_offset]
        response.old_style_offsets = visible if len(visible) == len(offsets) else [end_offset, *visible]
        return response
    may_lag = request.replica_id == CONSUMER
    if may_lag and wanted.timestamp == LATEST:
        _require_caught_up(partition, context.api_version)
    found = _look_up(partition, wanted.timestamp, end_offset)
    if found is not None:
        response.timestamp, response.offset, response.leader_epoch = found
    elif may_lag:
        _require_caught_up(partition, context.api_version)
    return response


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


def _require_known(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in version {version}")


def _look_up(partition: Partition, timestamp: int, end_offset: int) -> tuple[int, int, int] | None:
    """Return (timestamp, offset, leader epoch) of the requested record, or None if there is none."""
    log = partition.log
    if timestamp == LATEST:
        return UNKNOWN_TIMESTAMP, end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return UNKNOWN_TIMESTAMP, log.log_start_offset, _epoch_of_start(partition)
    if timestamp == LATEST_TIERED:
        return None
    if timestamp == MAX_TIMESTAMP:
        found = log.lookups.max_timestamp(upper_bound_offset=end_offset)
    else:
        found = log.lookups.offset_for_timestamp(timestamp, upper_bound_offset=end_offset)
    return None if found is None else (found.timestamp_ms, found.offset, found.leader_epoch)


def _epoch_of_start(partition: Partition) -> int:
    """Return the leader epoch of the first record; for an empty log, the epoch that its first record will have."""
    log = partition.log
    if log.log_start_offset == log.log_end_offset:
        return partition.leader_epoch
    return log.leader_epochs.epoch_at(log.log_start_offset)
