"""DescribeTransactions: describe transactional ids coordinated here, each with its own error code (KIP-664)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Protocol

from base.pause import each
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions, itself
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.transaction import Partitions
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

API = Declaration(
    ApiKey.DESCRIBE_TRANSACTIONS,
    permissions=Permissions(
        transactional_id=Operation.DESCRIBE, note="topics of the transaction: those with Describe are listed"
    ),
    names=Names(each=Each(ResourceType.TRANSACTIONAL_ID, "transactional_ids", "transaction_states", itself)),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    transactions: TransactionCoordinator
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Each transactional id once, however often the request names it."""
    pause = services.sliced_work.pause
    states = await each(
        dict.fromkeys(request.transactional_ids), lambda transactional_id: _describe(services, transactional_id), pause
    )
    return DescribeTransactionsResponse(transaction_states=states)


def failed(
    request: DescribeTransactionsRequest, context: RequestContext, code: ErrorCode
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=code)
            for transactional_id in request.transactional_ids
        ]
    )


def _describe(services: Needs, transactional_id: str) -> TransactionState:
    try:
        metadata = services.transactions.inspection.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.started_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=_topics(metadata.partitions),
    )


def _topics(partitions: Partitions) -> list[TopicData]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [TopicData(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    response = await guard.settled(services, guard.start(services, guard.serve(services, request, context)), context)
    pause = services.sliced_work.pause
    for state in response.transaction_states:
        await pause()
        if state.topics:
            state.topics = await guard.visible(
                services, context, ResourceType.TOPIC, state.topics, attrgetter("topic"), Operation.DESCRIBE
            )
    return response
