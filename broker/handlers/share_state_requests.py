"""What the five requests about states of share groups have in common: all are served alike (KIP-932).

Owns: the steps from a request to its response. Must not know: what a call does, or which broker sends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from uuid import UUID

from base.pause import through
from broker.handlers.cluster_action import require_broker
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.authorizer import Authorizer
from broker.share.machine.records import ShareKey
from broker.share.machine.state_calls import Call
from broker.share.machine.stored_states import ShareState
from broker.share.parts import ShareParts
from broker.share.state_messages import FORMS, Form
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError


class Needs(Protocol):
    """The parts of the broker that the handlers use."""

    authorizer: Authorizer
    config: BrokerConfig
    share: Callable[[], ShareParts]
    sliced_work: SlicedWork


async def served(services: Needs, request: Any, context: RequestContext, kind: type[Call]) -> Any:
    """Serve the calls of a request, and respond once all have ended."""
    require_broker(services.config, services.authorizer, context)
    form, states, pause = FORMS[kind], services.share().states, services.sliced_work.pause_after_long_step
    begun: list[tuple[UUID, int, Awaitable[ShareState] | KafkaError]] = []
    async for topic in through(request.topics, pause):
        async for part in through(topic.partitions, pause):
            key = ShareKey(request.group_id, topic.topic_id, part.partition)
            try:
                begun.append((*key[1:], states.serve(form.call(key, part))))
            except KafkaError as error:
                begun.append((*key[1:], error))
    results: dict[UUID, list[Any]] = {}
    async for topic_id, partition, outcome in through(begun, pause):
        results.setdefault(topic_id, []).append(await _result(form, partition, outcome))
    return form.response(
        results=[
            form.topic_result(topic_id=topic_id, partitions=partitions)
            async for topic_id, partitions in through(results.items(), pause)
        ]
    )


async def _result(form: Form, partition: int, outcome: Awaitable[ShareState] | KafkaError) -> Any:
    try:
        if isinstance(outcome, KafkaError):
            raise outcome
        return form.result(partition=partition, **form.fields(await outcome))
    except KafkaError as error:
        return form.result(partition=partition, error_code=error.code, error_message=error.message)


def refused(request: Any, kind: type[Call], code: ErrorCode) -> Any:
    """Return the response in which every partition has an error."""
    form = FORMS[kind]
    return form.response(
        results=[
            form.topic_result(
                topic_id=topic.topic_id,
                partitions=[form.result(partition=part.partition, error_code=code) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )
