"""Metadata: brokers, topics, leaders; a request for a missing topic may create it.

Version notes: v0 an empty list asks for all topics, v1+ null does; v4 allow_auto_topic_creation; v5 offline replicas;
v7 leader epoch; v8 authorised operations; v10 topic ids; v12 look-up by id; v13 an
error of the whole request. With it a proxy has clients begin with their first addresses again; a broker never does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, cast
from uuid import UUID

from base.pause import each
from broker.cluster.metadata_cache import NO_LEADER, BrokerNode, MetadataCache, TopicState
from broker.cluster.topics import TopicAdministration
from broker.handlers.declaration import CONTROLLER, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import NOT_ASKED, Authorizer
from config import broker_properties as properties
from config.broker import BrokerConfig
from protocol.api_key import ApiKey
from protocol.codec import encode_element
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.update_metadata import UpdateMetadataPartitionState

FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
FIRST_VERSION_WITH_LOOK_UP_BY_ID = 12
NO_ID = UUID(int=0)


API = Declaration(
    ApiKey.METADATA,
    permissions=Permissions(topic=Operation.DESCRIBE, note="to create a topic: Create on the topic or the cluster"),
    waits_for=CONTROLLER,
    elements=Elements.BULK,
    may_be_long=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    metadata_cache: MetadataCache
    topics: TopicAdministration
    internal_topics: frozenset[str]
    sliced_work: SlicedWork


async def handle(services: Needs, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    pause = services.sliced_work.pause
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        return await _respond_for_all(services, request, context)
    metadata = services.metadata_cache.snapshot()
    denied: list[MetadataRequestTopic] = []
    codes: dict[str, ErrorCode] = {}
    if services.authorizer.is_active:
        wanted, denied = await _split(services, context, metadata, wanted)
    if _may_create(services, request, context):
        missing: dict[str, None] = {}
        for topic in wanted:
            if topic.topic_id != NO_ID:
                missing.clear()  # the response ignores the names
                break
            if topic.name and topic.name not in metadata.topics:
                missing[topic.name] = None
            await pause()
        if missing:
            allowed, codes = await _creatable(services, context, missing)
            if allowed:
                codes |= await services.topics.create_automatically(allowed)
            metadata = services.metadata_cache.snapshot()
    return await _respond(services, request, context, metadata, wanted, denied, codes)


def failed(request: MetadataRequest, context: RequestContext, code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=code, name=_nullable_name(topic.name, context), topic_id=topic.topic_id, partitions=[]
            )
            for topic in request.topics or ()
        ],
        error_code=code,
    )


async def _split(
    services: Needs, context: RequestContext, metadata: MetadataCache, wanted: list[MetadataRequestTopic]
) -> tuple[list[MetadataRequestTopic], list[MetadataRequestTopic]]:
    """Return the topics that the client may see, and the others. An unknown id is reported as such."""
    pause = services.sliced_work.pause
    allowed: list[MetadataRequestTopic] = []
    denied: list[MetadataRequestTopic] = []
    for topic in wanted:
        name = topic.name if topic.topic_id == NO_ID else metadata.name_of(topic.topic_id)
        (allowed if name is None or _may_see(services, context, name) else denied).append(topic)
        await pause()
    return allowed, denied


def _may_see(services: Needs, context: RequestContext, name: str, *, is_logged_if_denied: bool = True) -> bool:
    return services.authorizer.allows(
        context, Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged_if_denied=is_logged_if_denied
    )


async def _creatable(
    services: Needs, context: RequestContext, missing: Collection[str]
) -> tuple[Collection[str], dict[str, ErrorCode]]:
    """Return the topics that the client may create, and the codes of the others."""
    pause = services.sliced_work.pause
    authorizer = services.authorizer
    if authorizer.allows_cluster(context, Operation.CREATE, is_logged_if_denied=False):
        return missing, {}
    allowed = []
    codes = {}
    for name in missing:
        if authorizer.allows(context, Operation.CREATE, ResourceType.TOPIC, name):
            allowed.append(name)
        else:
            codes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await pause()
    return allowed, codes


async def _respond_for_all(services: Needs, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    pause = services.sliced_work.pause
    is_checked = services.authorizer.is_active
    metadata = services.metadata_cache.snapshot()
    topics = []
    for state in metadata.topics.values():
        if not is_checked or _may_see(services, context, state.name, is_logged_if_denied=False):
            topics.append(_known(services, request, context, metadata, state))
        await pause()
    return _response(services, request, context, metadata, topics)


async def _respond(
    services: Needs,
    request: MetadataRequest,
    context: RequestContext,
    metadata: MetadataCache,
    wanted: list[MetadataRequestTopic],
    denied: list[MetadataRequestTopic],
    codes: dict[str, ErrorCode],
) -> MetadataResponse:
    """Return each requested topic once. As in Kafka, names are ignored if the request has a topic id.

    The response does not say whether `denied` topics exist.
    """
    pause = services.sliced_work.pause
    by_name: dict[str | None, MetadataRequestTopic] = {}
    by_id: dict[tuple[str | None, UUID], MetadataRequestTopic] = {}
    for topic in wanted:
        if topic.topic_id == NO_ID:
            by_name[topic.name] = topic
        else:
            by_id[topic.name, topic.topic_id] = topic
        await pause()
    asked = by_id or by_name
    topics = await each(asked.values(), lambda topic: _one(services, request, context, metadata, topic, codes), pause)
    topics += await each(denied, lambda topic: _denied(topic, context), pause)
    return _response(services, request, context, metadata, topics)


def _may_create(services: Needs, request: MetadataRequest, context: RequestContext) -> bool:
    # Before version 4 a request cannot disallow automatic creation.
    is_allowed = context.api_version < 4 or request.allow_auto_topic_creation
    return is_allowed and services.config[properties.AUTO_CREATE_TOPICS_ENABLE]


def _response(
    services: Needs,
    request: MetadataRequest,
    context: RequestContext,
    metadata: MetadataCache,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    brokers = []
    for broker in metadata.brokers.values():
        if context.listener in broker.endpoints:
            host, port = broker.endpoints[context.listener]
            brokers.append(MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack))
    return MetadataResponse(
        brokers=brokers,
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            services.authorizer.operations(context, ResourceType.CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def _one(
    services: Needs,
    request: MetadataRequest,
    context: RequestContext,
    metadata: MetadataCache,
    topic: MetadataRequestTopic,
    codes: dict[str, ErrorCode],
) -> MetadataResponseTopic:
    """Return the response for one topic, by name or id; `codes` has the error codes of topics to create."""
    if context.api_version < FIRST_VERSION_WITH_LOOK_UP_BY_ID and (topic.name is None or topic.topic_id != NO_ID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics are looked up by id from version 12 on")
    # The id has priority over the name: another topic may have that name by now.
    name = topic.name if topic.topic_id == NO_ID else metadata.name_of(topic.topic_id)
    state = metadata.topics.get(name) if name is not None else None
    if state is not None and name not in codes:
        return _known(services, request, context, metadata, state)
    if name is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        code = codes.get(name) or services.topics.why_unknown(name)
    return MetadataResponseTopic(
        error_code=code,
        name=None if name is None and topic.topic_id != NO_ID else _nullable_name(topic.name, context),
        topic_id=topic.topic_id,
        is_internal=name in services.internal_topics,
        partitions=[],
        topic_authorized_operations=(
            _topic_operations(services, request, context, name) if name is not None else NOT_ASKED
        ),
    )


def _denied(topic: MetadataRequestTopic, context: RequestContext) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=None if topic.topic_id != NO_ID else _nullable_name(topic.name, context),
        topic_id=topic.topic_id,
        partitions=[],
    )


def _topic_operations(services: Needs, request: MetadataRequest, context: RequestContext, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return services.authorizer.operations(context, ResourceType.TOPIC, name)


def _nullable_name(name: str | None, context: RequestContext) -> str | None:
    return "" if name is None and context.api_version < FIRST_VERSION_WITH_LOOK_UP_BY_ID else name


def _known(
    services: Needs, request: MetadataRequest, context: RequestContext, metadata: MetadataCache, state: TopicState
) -> MetadataResponseTopic:
    """Return the encoded topic for this version, listener and options.

    It is cached, because encoding ten thousand partitions takes 20 ms.
    """
    if services.authorizer.is_active and request.include_topic_authorized_operations:
        return _described(services, request, context, metadata, state)  # the operations depend on the client
    asked = context.api_version, context.listener, request.include_topic_authorized_operations
    encoded = state.recall(asked, metadata.brokers)
    if encoded is None:
        encoded = encode_element(
            MetadataResponse, _described(services, request, context, metadata, state), context.api_version
        )
        if metadata.brokers is services.metadata_cache.brokers:
            state.remember(asked, metadata.brokers, encoded)
    return cast(MetadataResponseTopic, encoded)


def _described(
    services: Needs, request: MetadataRequest, context: RequestContext, metadata: MetadataCache, state: TopicState
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.name in services.internal_topics,
        partitions=[
            _partition(context, metadata.brokers, partition) for _, partition in sorted(state.partitions.items())
        ],
        topic_authorized_operations=_topic_operations(services, request, context, state.name),
    )


def _partition(
    context: RequestContext, live: Mapping[int, BrokerNode], partition: UpdateMetadataPartitionState
) -> MetadataResponsePartition:
    leader = live.get(partition.leader)
    code, leader_id = ErrorCode.NONE, partition.leader
    if leader is None:
        code, leader_id = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    elif context.listener not in leader.endpoints:
        is_new = context.api_version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        code, leader_id = ErrorCode.LISTENER_NOT_FOUND if is_new else ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    replicas, isr = partition.replicas, partition.isr
    if context.api_version == 0:
        # Clients of version 0 fail on a replica that is not in the list of brokers.
        replicas = [replica for replica in replicas if replica in live]
        isr = [replica for replica in isr if replica in live]
        if code is ErrorCode.NONE and len(replicas) < len(partition.replicas):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.partition_index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=partition.offline_replicas,
    )
