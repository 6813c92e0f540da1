"""DeleteTopics: by name, from version 6 also by topic id."""

from __future__ import annotations

from typing import Protocol

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topics import TopicAdministration
from broker.handlers.request_context import RequestContext
from config import broker_properties as properties
from config.broker import BrokerConfig
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


def _name(services: Needs, state: DeleteTopicState) -> str | None:
    return state.name if state.name is not None else services.metadata_cache.name_of(state.topic_id)


def _result(state: DeleteTopicState, code: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code)
