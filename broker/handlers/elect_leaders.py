"""ElectLeaders: have preferred or, from version 1 on, unclean leaders elected (KIP-183, KIP-460).

Each partition has its own result. A request without partitions means all that need an election; the response lists only
these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from base.pause import Pause, never, whole
from base.topic_partition import TopicPartition
from broker.cluster.topics import TopicAdministration
from broker.handlers.declaration import CONTROLLER, Declaration, Elements, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from controller.machine.events import ElectionType
from controller.machine.model import ApiError
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ELECTION_TYPES: Mapping[int, ElectionType] = {int(kind): kind for kind in ElectionType}


API = Declaration(
    ApiKey.ELECT_LEADERS,
    permissions=Permissions(cluster=Operation.ALTER),
    waits_for=CONTROLLER,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    topics: TopicAdministration
    sliced_work: SlicedWork


async def handle(services: Needs, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    pause = services.sliced_work.pause
    election_type = ELECTION_TYPES.get(request.election_type)
    if election_type is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    partitions = await _partitions(request, pause)
    results = await services.topics.elect_leaders(election_type, partitions, timeout_ms=request.timeout_ms)
    return await _response(results, pause)


def failed(request: ElectLeadersRequest, context: RequestContext, code: ErrorCode) -> ElectLeadersResponse:
    # Version 0 has no code of its own for the whole request.
    response = whole(
        _response({partition: ApiError(code) for partition in whole(_partitions(request, never)) or ()}, never)
    )
    response.error_code = code
    return response


async def _partitions(request: ElectLeadersRequest, pause: Pause) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    partitions = []
    for asked in request.topic_partitions:
        await pause()
        for index in asked.partitions:
            partitions.append((asked.topic, index))
            await pause()
    return partitions


async def _response(results: Mapping[TopicPartition, ApiError], pause: Pause) -> ElectLeadersResponse:
    topics = await group_by_topic(
        (((topic, index), _result(index, results[topic, index])) for topic, index in sorted(results)),
        lambda topic, partitions: ReplicaElectionResult(topic=topic, partition_result=partitions),
        pause,
    )
    return ElectLeadersResponse(replica_election_results=topics)


def _result(partition_id: int, error: ApiError) -> PartitionResult:
    result = PartitionResult(partition_id=partition_id)
    if error.error_code:
        result.error_code = error.error_code
        result.error_message = error.message or ERRORS[error.error_code].message
    return result
