"""AlterReplicaLogDirs: move logs to other log directories of this broker (KIP-113); each partition has its own result.

Success means that the move has begun: DescribeLogDirs shows the copy until it replaces the log. A request with the
present directory of the log cancels a move. A replica that is not here yet gets REPLICA_NOT_AVAILABLE, and its log will
be created in that directory.
"""

from __future__ import annotations

from typing import Protocol

from base.pause import Pause, never, whole
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.manager import ReplicaManager
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from storage.disk.names import can_have_future
from storage.manager.log_manager import LogManager

API = Declaration(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    permissions=Permissions(cluster=Operation.ALTER),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    log_manager: LogManager
    replica_manager: ReplicaManager
    directory_moves: DirectoryMoves
    sliced_work: SlicedWork

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...


async def handle(
    services: Needs, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    pause = services.sliced_work.pause
    codes_by_topic: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        await pause()
        for topic in directory.topics:
            await pause()
            for index in topic.partitions:
                code = _outcome(services, directory.path, topic.name, index)
                codes_by_topic.setdefault(topic.name, {})[index] = code
                await pause()
    return await _response(codes_by_topic, pause)


def failed(
    request: AlterReplicaLogDirsRequest, context: RequestContext, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    topics = [topic for directory in request.dirs for topic in directory.topics]
    return whole(_response({topic.name: dict.fromkeys(topic.partitions, code) for topic in topics}, never))


def _outcome(services: Needs, path: str, topic: str, index: int) -> ErrorCode:
    try:
        _move(services, path, topic, index)
    except KafkaError as error:
        # Kafka's response to this request has always had this code.
        is_absent = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_absent else error.code
    return ErrorCode.NONE


def _move(services: Needs, path: str, topic: str, index: int) -> None:
    """Raises KafkaError."""
    if not can_have_future(topic, index):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    wanted = services.log_manager.directories.at(path)
    if wanted is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
    if wanted.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
    partition = services.replica_manager.find(topic, index)
    if partition is None:
        services.log_manager.creation.prefer(topic, index, wanted)
        raise services.why_not_hosted(topic, index)
    services.directory_moves.move(partition, wanted)


async def _response(codes_by_topic: dict[str, dict[int, ErrorCode]], pause: Pause) -> AlterReplicaLogDirsResponse:
    response = AlterReplicaLogDirsResponse(results=[])
    for topic, codes in codes_by_topic.items():
        result = AlterReplicaLogDirTopicResult(topic_name=topic, partitions=[])
        for index, code in codes.items():
            result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            await pause()
        response.results.append(result)
        await pause()
    return response
