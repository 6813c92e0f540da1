"""ListPartitionReassignments: moves in progress, of the named partitions or of all (KIP-455)."""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.handlers.declaration import CONTROLLER, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from controller.controller import Controller
from protocol.api_key import ApiKey
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API = Declaration(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    permissions=Permissions(cluster=Operation.DESCRIBE),
    waits_for=CONTROLLER,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    controller: Controller
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    pause = services.sliced_work.pause
    wanted = await _wanted(request, pause)
    moves = await services.controller.list_partition_reassignments(wanted)
    return ListPartitionReassignmentsResponse(
        error_message="",
        topics=[
            OngoingTopicReassignment(
                name=topic,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=it[1],
                        replicas=list(moves[it].replicas),
                        adding_replicas=list(moves[it].adding),
                        removing_replicas=list(moves[it].removing),
                    )
                    for it in of_topic
                ],
            )
            for topic, of_topic in groupby(sorted(moves), key=lambda it: it[0])
        ],
    )


async def _wanted(request: ListPartitionReassignmentsRequest, pause: Pause) -> set[TopicPartition] | None:
    """Return the requested partitions, None for all."""
    if request.topics is None:
        return None
    wanted = set()
    for topic in request.topics:
        await pause()
        for index in topic.partition_indexes:
            wanted.add((topic.name, index))
            await pause()
    return wanted
