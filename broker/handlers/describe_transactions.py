"""DescribeTransactions: describe transactional ids coordinated here, each with its own error code (KIP-664)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers.request_context import RequestContext
from broker.loop.slices import Slices, each
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.transaction import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    transactions: TransactionCoordinator


def handle(
    services: Needs, request: DescribeTransactionsRequest, context: RequestContext
) -> Slices[DescribeTransactionsResponse]:
    """Each transactional id once, however often the request names it."""
    states = yield from each(
        dict.fromkeys(request.transactional_ids), lambda transactional_id: _describe(services, transactional_id)
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
