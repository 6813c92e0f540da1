"""AlterPartitionReassignments: begin to move replicas to other brokers, or cancel a move (KIP-455).

Each partition has its own result when its move has begun; ListPartitionReassignments shows the progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.handlers.declaration import CONTROLLER, Declaration, Elements, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from controller.controller import Controller
from controller.machine.model import ApiError
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

API = Declaration(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    permissions=Permissions(cluster=Operation.ALTER),
    waits_for=CONTROLLER,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    controller: Controller
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    pause = services.sliced_work.pause
    targets = await _targets(request, pause)
    return await _response(await services.controller.alter_partition_reassignments(targets), pause)


def failed(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """As in Kafka, each partition has the code as well."""
    error = ApiError(code)
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=ERRORS[code].message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


async def _targets(
    request: AlterPartitionReassignmentsRequest, pause: Pause
) -> dict[TopicPartition, tuple[int, ...] | None]:
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for topic in request.topics:
        await pause()
        for asked in topic.partitions:
            partition = (topic.name, asked.partition_index)
            targets[partition] = None if asked.replicas is None else tuple(asked.replicas)
            await pause()
    return targets


async def _response(results: Mapping[TopicPartition, ApiError], pause: Pause) -> AlterPartitionReassignmentsResponse:
    topics = await group_by_topic(
        (((topic, index), _result(index, error)) for (topic, index), error in results.items()),
        lambda name, partitions: ReassignableTopicResponse(name=name, partitions=partitions),
        pause,
    )
    return AlterPartitionReassignmentsResponse(error_message="", responses=topics)


def _result(partition_index: int, error: ApiError) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=partition_index)
    if error.error_code:
        result.error_code = error.error_code
        result.error_message = error.message or ERRORS[error.error_code].message
    return result
