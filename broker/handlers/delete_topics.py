"""DeleteTopics: by name, from version 6 also by topic id."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topics import TopicAdministration
from broker.handlers.declaration import CONTROLLER, Declaration, PartitionChanges, Permissions
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.partial_service import with_field
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation, ResourceType
from config import broker_properties as properties
from config.broker import BrokerConfig
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.schema import ZERO_UUID

FIRST_VERSION_WITH_STATES = 6
FIRST_VERSION_WITH_DELETION_DISABLED = 3


class QuotaNeeds(Protocol):
    """The parts of the broker that the quota of changes uses."""

    metadata_cache: MetadataCache


def deleted_partitions(services: QuotaNeeds, topic: DeleteTopicState | str) -> int:
    """Return how many partitions a topic has; 0 if it does not exist."""
    name = topic if isinstance(topic, str) else _name(services, topic)
    return 0 if name is None else services.metadata_cache.partition_count(name) or 0


def _key(topic: DeleteTopicState | DeletableTopicResult | str) -> Hashable:
    """Return the id or the name, whichever the request states of a topic."""
    if isinstance(topic, str):
        return topic
    return topic.name if topic.topic_id == ZERO_UUID else topic.topic_id


API = Declaration(
    ApiKey.DELETE_TOPICS,
    permissions=Permissions(topic=Operation.DELETE, note="by topic id also Describe on the topic"),
    waits_for=CONTROLLER,
    partition_changes=PartitionChanges(
        5,
        lambda version: "topics" if version >= FIRST_VERSION_WITH_STATES else "topic_names",
        "responses",
        deleted_partitions,
        _key,
    ),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    config: BrokerConfig
    metadata_cache: MetadataCache
    topics: TopicAdministration


async def handle(services: Needs, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    states = _states(request, context)
    if not services.config[properties.DELETE_TOPIC_ENABLE]:
        is_new = context.api_version >= FIRST_VERSION_WITH_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_new else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(responses=[_result(state, code) for state in states])
    if any(state.name is not None and state.topic_id != ZERO_UUID for state in states):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or its id, not by both")
    names = [_name(services, state) for state in states]
    asked = dict.fromkeys(name for name in names if name is not None)
    results = await services.topics.delete(list(asked), timeout_ms=request.timeout_ms)
    by_name = {result.name: result for result in results}
    responses = []
    for state, name in zip(states, names, strict=True):
        if name is None:
            responses.append(_result(state, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            result = by_name[name]
            response = _result(state, result.error_code)
            response.name = name
            responses.append(response)
    return DeleteTopicsResponse(responses=responses)


def failed(request: DeleteTopicsRequest, context: RequestContext, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_result(state, code) for state in _states(request, context)])


def _states(request: DeleteTopicsRequest, context: RequestContext) -> list[DeleteTopicState]:
    if context.api_version >= FIRST_VERSION_WITH_STATES:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _name(services: QuotaNeeds, state: DeleteTopicState) -> str | None:
    return state.name if state.name is not None else services.metadata_cache.name_of(state.topic_id)


def _result(state: DeleteTopicState, code: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code)


class AuthorizationNeeds(PartNeeds, Protocol):
    """The parts of the broker that the checks of permissions use."""

    metadata_cache: MetadataCache


async def authorize(guard: Guard, services: AuthorizationNeeds, request: Any, context: RequestContext) -> Any:
    allowed = []
    denied = []
    pause = services.sliced_work.pause
    for state in _states(request, context):
        await pause()
        result = _refused_deletion(guard, services, state, context)
        if result is None:
            allowed.append(state)
        else:
            denied.append(result)
    if context.api_version < FIRST_VERSION_WITH_STATES:
        request = with_field(request, "topic_names", [state.name for state in allowed])
    else:
        request = with_field(request, "topics", allowed)
    if not allowed and denied:
        return DeleteTopicsResponse(responses=denied)
    return await guard.extended(services, guard.begun(services, request, context), context, "responses", lambda: denied)


def _refused_deletion(
    guard: Guard, services: AuthorizationNeeds, state: DeleteTopicState, context: RequestContext
) -> DeletableTopicResult | None:
    """Return the result of a topic that must not be deleted; its name only if the requester knows it."""
    name = _name(services, state)
    if name is None:
        return None  # the handler reports the unknown id
    is_known = state.name is not None or guard.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    if is_known and guard.allows(context, ResourceType.TOPIC, name):
        return None
    return DeletableTopicResult(
        name=name if is_known else None,
        topic_id=state.topic_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
