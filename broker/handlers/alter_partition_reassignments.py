"""AlterPartitionReassignments: begin to move replicas to other brokers, or cancel a move (KIP-455).

Each partition is answered by itself when its move has begun; ListPartitionReassignments shows how it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.by_topic import by_topic
from broker.request_context import RequestContext
from broker.services import Services
from broker.slices import Slices, each
from controller.model import ApiError, TopicPartition
from protocol.errors import ERRORS
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> Slices[AlterPartitionReassignmentsResponse]:
    targets = {
        TopicPartition(topic.name, asked.partition_index): None if asked.replicas is None else tuple(asked.replicas)
        for topic in request.topics
        for asked in topic.partitions
    }
    results = await services.controller.alter_partition_reassignments(targets)
    return _response(targets, results)


def _response(
    targets: Iterable[TopicPartition], results: Mapping[TopicPartition, ApiError]
) -> Slices[AlterPartitionReassignmentsResponse]:
    answers = yield from each(targets, lambda it: (it, _result(it.partition, results[it])))
    return AlterPartitionReassignmentsResponse(
        error_message="",
        responses=[
            ReassignableTopicResponse(name=name, partitions=partitions)
            for name, partitions in by_topic(answers).items()
        ],
    )


def _result(partition_index: int, error: ApiError) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=partition_index)
    if error.error_code:
        result.error_code = error.error_code
        result.error_message = error.message or ERRORS[error.error_code].message
    return result
