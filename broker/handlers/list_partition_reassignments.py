"""ListPartitionReassignments: moves that are under way, of some partitions or of all (KIP-455)."""

from __future__ import annotations

from itertools import groupby

from broker.request_context import RequestContext
from broker.services import Services
from controller.model import TopicPartition
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    wanted = (
        None
        if request.topics is None
        else [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    )
    moves = await services.controller.list_partition_reassignments(wanted)
    return ListPartitionReassignmentsResponse(
        error_message="",
        topics=[
            OngoingTopicReassignment(
                name=topic,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=it.partition,
                        replicas=list(moves[it].replicas),
                        adding_replicas=list(moves[it].adding),
                        removing_replicas=list(moves[it].removing),
                    )
                    for it in of_topic
                ],
            )
            for topic, of_topic in groupby(sorted(moves), key=lambda it: it.topic)
        ],
    )
