"""CreateTopics: send new topics to the controller; each topic has its own result.

Version notes: v1 validate_only and messages; v4 defaults for partitions and replication factor (-1, KIP-464); v5 the
response describes the topic (KIP-525); v7 topic id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from base.pause import each
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topics import TopicAdministration
from broker.handlers.declaration import CONTROLLER, Declaration, Each, Elements, Names, PartitionChanges, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from config import broker_properties as properties
from config.broker import BrokerConfig
from config.describe import describe_topic
from controller.machine.topic_creation import PARTITIONS_PER_REQUEST_MAX, TopicResult, topic_name_problem
from protocol.api_key import ApiKey
from protocol.codec import encode_element
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.schema import ZERO_UUID

DEFAULT_COUNT = -1
"""Asks for the default number of partitions."""


class QuotaNeeds(Protocol):
    """The parts of the broker that the quota of changes uses."""

    config: BrokerConfig
    metadata_cache: MetadataCache


def created_partitions(services: QuotaNeeds, topic: CreatableTopic) -> int:
    """Return how many partitions a topic gets; 0 if it is not created."""
    if topic.name in services.metadata_cache.topics or topic_name_problem(topic.name) is not None:
        return 0
    if topic.assignments:
        return len(topic.assignments)
    is_default = topic.num_partitions == DEFAULT_COUNT
    count = services.config[properties.NUM_PARTITIONS] if is_default else topic.num_partitions
    return count if 0 < count <= PARTITIONS_PER_REQUEST_MAX else 0


API = Declaration(
    ApiKey.CREATE_TOPICS,
    permissions=Permissions(
        topic=Operation.CREATE,
        cluster_instead=Operation.CREATE,
        note="DescribeConfigs on the topic to get its configuration",
    ),
    names=Names(each=Each(ResourceType.TOPIC, "topics", "topics")),
    waits_for=CONTROLLER,
    elements=Elements.BULK,
    may_be_long=True,
    partition_changes=PartitionChanges(6, lambda _: "topics", "topics", created_partitions),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    topics: TopicAdministration
    sliced_work: SlicedWork


async def handle(services: Needs, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    results = await services.topics.create(
        request.topics, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    return await _response(services, results, context)


async def _response(services: Needs, results: Iterable[TopicResult], context: RequestContext) -> CreateTopicsResponse:
    pause = services.sliced_work.pause
    topics = await each(
        results, lambda result: _written(_result(services, result, context), context.api_version), pause
    )
    return CreateTopicsResponse(topics=topics)


def _written(result: CreatableTopicResult, version: int) -> CreatableTopicResult:
    """The result in its encoded form: the objects of its settings take far more memory than that."""
    if result.error_code:
        return result
    return cast(CreatableTopicResult, encode_element(CreateTopicsResponse, result, version))


def failed(request: CreateTopicsRequest, context: RequestContext, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, configs=[]) for topic in request.topics]
    )


def _result(services: Needs, result: TopicResult, context: RequestContext) -> CreatableTopicResult:
    if result.error_code:
        # No configs, which differs from null: that says that the client may not see them.
        return CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id or ZERO_UUID,  # of a topic that exists, but not in time
            error_code=result.error_code,
            error_message=result.message,
            configs=[],
        )
    if not services.authorizer.allows(
        context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name, is_logged_if_denied=False
    ):
        return CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id or ZERO_UUID,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id or ZERO_UUID,
        error_code=ErrorCode.NONE,
        num_partitions=result.partition_count,
        replication_factor=result.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=described.name,
                value=described.value,
                read_only=described.needs_restart,
                config_source=described.source,
                is_sensitive=described.is_sensitive,
            )
            for described in describe_topic(services.config, result.configs)
        ],
    )
