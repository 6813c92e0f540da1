"""DescribeTopicPartitions: describe topics in the order of their names, a bounded number of partitions a response.

A response that does not hold everything ends with a cursor, with which the client continues (KIP-966).
"""

from __future__ import annotations

from heapq import heapify, heappop
from typing import Protocol

from base.pause import each
from broker.cluster.metadata_cache import NO_LEADER, MetadataCache, TopicState
from broker.cluster.topics import TopicAdministration
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from config import broker_properties as properties
from config.broker import BrokerConfig
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.messages.update_metadata import UpdateMetadataPartitionState

API = Declaration(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    permissions=Permissions(topic=Operation.DESCRIBE, note="without names: other topics are not listed"),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    metadata_cache: MetadataCache
    topics: TopicAdministration
    internal_topics: frozenset[str]
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    pause = services.sliced_work.pause
    metadata = services.metadata_cache.snapshot()
    names = await _names(services, request, metadata)
    start = request.cursor
    left = max(min(services.config[properties.MAX_REQUEST_PARTITION_SIZE_LIMIT], request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse(topics=[])
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    while names:
        await pause()
        name = heappop(names)
        if not services.authorizer.allows(
            context, Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged_if_denied=bool(request.topics)
        ):
            if request.topics:
                denied.append(_failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        elif (state := metadata.topics.get(name)) is None:
            response.topics.append(_unknown(services, context, name))
        else:
            first = start.partition_index if start is not None and start.topic_name == name else 0
            indexes = sorted(index for index in state.partitions if index >= first)
            response.topics.append(await _described(services, context, metadata, state, indexes[:left]))
            if len(indexes) > left:
                response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
                break
            left -= len(indexes)
    response.topics += denied
    return response


def failed(
    request: DescribeTopicPartitionsRequest, context: RequestContext, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_failed_topic(topic.name, code) for topic in request.topics])


async def _names(services: Needs, request: DescribeTopicPartitionsRequest, metadata: MetadataCache) -> list[str]:
    """Return the names from the cursor on, as a heap: a response seldom needs all of them in order.

    Raises:
        KafkaError: INVALID_REQUEST if the cursor is none of the request.
    """
    pause = services.sliced_work.pause
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    wanted: set[str] = set()
    if request.topics:
        for topic in request.topics:
            if topic.name >= first:
                wanted.add(topic.name)
            await pause()
        if cursor is not None and first not in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {first!r} of the cursor is none of the request's")
    else:
        for name in metadata.topics:
            if name >= first:
                wanted.add(name)
            await pause()
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"partition {cursor.partition_index} of the cursor, expected from 0"
        )
    names = [*wanted]
    heapify(names)
    return names


async def _described(
    services: Needs, context: RequestContext, metadata: MetadataCache, state: TopicState, indexes: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.name in services.internal_topics,
        partitions=await each(
            indexes, lambda index: _partition(context, metadata, state.partitions[index]), services.sliced_work.pause
        ),
        topic_authorized_operations=services.authorizer.operations(context, ResourceType.TOPIC, state.name),
    )


def _partition(
    context: RequestContext, metadata: MetadataCache, partition: UpdateMetadataPartitionState
) -> DescribeTopicPartitionsResponsePartition:
    leader = metadata.brokers.get(partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.partition_index,
        leader_id=NO_LEADER if leader is None or context.listener not in leader.endpoints else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        # Not null, although only KRaft elects by them: Java's client cannot read null, and Kafka sends empty lists.
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=partition.offline_replicas,
    )


def _unknown(services: Needs, context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    topic = _failed_topic(name, services.topics.why_unknown(name))
    topic.is_internal = name in services.internal_topics
    topic.topic_authorized_operations = services.authorizer.operations(context, ResourceType.TOPIC, name)
    return topic


def _failed_topic(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, partitions=[])
