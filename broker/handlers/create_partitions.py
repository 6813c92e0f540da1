"""CreatePartitions: raise the partition counts of topics; each topic has its own result."""

from __future__ import annotations

from typing import Protocol

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topics import TopicAdministration
from broker.handlers.declaration import CONTROLLER, Declaration, Each, Names, PartitionChanges, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation, ResourceType
from controller.machine.topic_creation import PARTITIONS_PER_REQUEST_MAX
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


class QuotaNeeds(Protocol):
    """The parts of the broker that the quota of changes uses."""

    metadata_cache: MetadataCache


def added_partitions(services: QuotaNeeds, topic: CreatePartitionsTopic) -> int:
    """Return how many partitions a topic gets; 0 if it does not exist, or cannot get so many."""
    state = services.metadata_cache.topics.get(topic.name)
    count = 0 if state is None else topic.count - len(state.partitions)
    return count if 0 < count <= PARTITIONS_PER_REQUEST_MAX else 0


API = Declaration(
    ApiKey.CREATE_PARTITIONS,
    permissions=Permissions(topic=Operation.ALTER),
    names=Names(each=Each(ResourceType.TOPIC, "topics", "results")),
    waits_for=CONTROLLER,
    partition_changes=PartitionChanges(3, lambda _: "topics", "results", added_partitions),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    topics: TopicAdministration


async def handle(
    services: Needs, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    results = await services.topics.add_partitions(
        request.topics, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=result.name, error_code=result.error_code, error_message=result.message)
            for result in results
        ]
    )


def failed(request: CreatePartitionsRequest, context: RequestContext, code: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )
