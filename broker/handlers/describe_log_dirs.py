"""DescribeLogDirs: the logs in each log directory, and the size and free space of its disk.

Version notes: v3 an error code of the whole request; v4 total and usable bytes (KIP-827).
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol

from aiofiles.os import statvfs

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.replica.manager import ReplicaManager
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.directories.log_directory import LogDirectory
from storage.log.log import Log
from storage.manager.log_manager import LogManager

UNKNOWN_LAG = -1


API = Declaration(
    ApiKey.DESCRIBE_LOG_DIRS,
    permissions=Permissions(cluster=Operation.DESCRIBE),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    log_manager: LogManager
    replica_manager: ReplicaManager
    blocking: Executor
    sliced_work: SlicedWork


async def handle(services: Needs, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    wanted = await _wanted(request, services.sliced_work.pause)
    return DescribeLogDirsResponse(
        results=[await _described(services, directory, wanted) for directory in services.log_manager.directories]
    )


async def _wanted(request: DescribeLogDirsRequest, pause: Pause) -> set[TopicPartition] | None:
    """Return the requested partitions, None for all."""
    if request.topics is None:
        return None
    wanted = set()
    for topic in request.topics:
        await pause()
        for partition in topic.partitions:
            wanted.add((topic.topic, partition))
            await pause()
    return wanted


async def _described(
    services: Needs, directory: LogDirectory, wanted: Collection[TopicPartition] | None
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=_absolute(directory.path))
    if directory.is_offline:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    try:
        volume = await statvfs(directory.path, executor=services.blocking)  # type: ignore[call-arg]  # not in its stub
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.total_bytes = volume.f_blocks * volume.f_frsize
    result.usable_bytes = volume.f_bavail * volume.f_frsize
    pause = services.sliced_work.pause
    by_topic: dict[str, list[Log]] = {}
    for log in list(directory.logs.values()):
        if wanted is None or log.name in wanted:
            by_topic.setdefault(log.topic, []).append(log)
        await pause()
    for topic in sorted(by_topic):
        partitions = []
        for log in sorted(by_topic[topic], key=lambda log: log.partition):
            partitions.append(_partition(services, log))
            await pause()
        result.topics.append(DescribeLogDirsTopic(name=topic, partitions=partitions))
    return result


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


def _partition(services: Needs, log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size,
        offset_lag=_lag(services, log),
        is_future_key=log.is_future,
    )


def _lag(services: Needs, log: Log) -> int:
    """Return by how many offsets a copy is behind its log, or a log behind the high watermark."""
    served = services.replica_manager.find(log.topic, log.partition)
    if served is None:
        return UNKNOWN_LAG
    if log.is_future:
        return served.log.log_end_offset - log.log_end_offset
    return max(log.high_watermark - log.log_end_offset, 0)
