"""CreatePartitions: raise the partition counts of topics; each topic has its own result."""

from __future__ import annotations

from typing import Protocol

from broker.cluster.topics import TopicAdministration
from broker.handlers.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
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
