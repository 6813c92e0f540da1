"""DescribeProducers: describe the producer state of partitions led here, with open transactions (KIP-664)."""

from __future__ import annotations

from typing import Protocol

from base.pause import Pause, through
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.replica.manager import ReplicaManager
from broker.security.acls import Operation, ResourceType
from controller.machine.topic_creation import topic_name_problem
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from storage.producers.producer_state import ProducerEntry

STEP_SIZE = 200
"""Producers that are described before other requests get their turn: about a millisecond."""

API = Declaration(
    ApiKey.DESCRIBE_PRODUCERS,
    permissions=Permissions(topic=Operation.READ),
    names=Names(each=Each(ResourceType.TOPIC, "topics", "topics")),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    replica_manager: ReplicaManager
    sliced_work: SlicedWork

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...


async def handle(
    services: Needs, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Each partition once, however often the request names it."""
    pause = services.sliced_work.pause
    response = DescribeProducersResponse(topics=[])
    for topic in request.topics:
        indexes = dict.fromkeys(topic.partition_indexes)
        partitions = [await _described(services, topic.name, index, pause) async for index in through(indexes, pause)]
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
        await pause()
    return response


def failed(request: DescribeProducersRequest, context: RequestContext, code: ErrorCode) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _described(services: Needs, topic: str, index: int, pause: Pause) -> PartitionResponse:
    """Return the producers of a partition, each as it is in its step: a partition may have a hundred thousand."""
    try:
        partition = services.replica_manager.find(topic, index)
        if partition is None:
            if (problem := topic_name_problem(topic)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            raise services.why_not_hosted(topic, index)
        partition.require_leader()
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    entries = list(partition.log.producer_state.producers.values())
    producers: list[ProducerState] = []
    for start in range(0, len(entries), STEP_SIZE):
        if start:
            await pause()
        producers += map(_producer, entries[start : start + STEP_SIZE])
    return PartitionResponse(partition_index=index, active_producers=producers)


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_transaction_first_offset,
    )
