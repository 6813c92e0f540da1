"""AlterReplicaLogDirs: move logs to other log directories of this broker (KIP-113); each is answered by itself.

Moving is missing: a log that lies elsewhere is refused with UNSUPPORTED_VERSION and stays where it is. What needs no
move succeeds, and what names no directory or no replica of this broker gets the code for that.
"""

from __future__ import annotations

from pathlib import Path

from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    services: Services, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    answers: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _outcome(services, directory.path, topic.name, index)
                answers.setdefault(topic.name, {})[index] = code
    return _response(answers)


def failed(
    request: AlterReplicaLogDirsRequest, context: RequestContext, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    topics = [topic for directory in request.dirs for topic in directory.topics]
    return _response({topic.name: dict.fromkeys(topic.partitions, code) for topic in topics})


def _outcome(services: Services, path: str, topic: str, index: int) -> ErrorCode:
    try:
        _require_in_place(services, path, topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _require_in_place(services: Services, path: str, topic: str, index: int) -> None:
    """Raises KafkaError unless the log lies in the directory at `path` already."""
    wanted = next((it for it in services.log_manager.directories if _absolute(it.path) == _absolute(path)), None)
    if wanted is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
    if wanted.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
    if services.replica_manager.find(topic, index) is None:
        raise services.why_not_hosted(topic, index)
    if services.log_manager.directory_of(topic, index) is not wanted:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Logs cannot be moved between log directories yet")


def _absolute(path: str) -> Path:
    return Path(path).absolute()


def _response(answers: dict[str, dict[int, ErrorCode]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in of_topic.items()
                ],
            )
            for topic, of_topic in answers.items()
        ]
    )
