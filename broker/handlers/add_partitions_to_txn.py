"""AddPartitionsToTxn: add partitions to a transaction, or verify that it includes them.

Version notes: v0-3 come from clients and add all partitions or none: if one is rejected, the others get
OPERATION_NOT_ATTEMPTED. v2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH in older versions. v4+ come from brokers,
for several transactions, to add partitions for producers of version 2 or only verify them (KIP-890): a partition that
is not included gets TRANSACTION_ABORTABLE, in v4 too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from base.pause import never, whole
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.guard import Guard
from broker.handlers.metric_names import ADD_PARTITIONS, VERIFY_PARTITIONS
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.driver import Running, start
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.transaction import VERSION_2
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from storage.producers.producer_state import Producer

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4

Outcome = ErrorCode | Mapping[TopicPartition, int]
"""One code for the whole transaction, or one for each partition."""


API = Declaration(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    permissions=Permissions(
        transactional_id=Operation.WRITE, topic=Operation.WRITE, note="from version 4 ClusterAction on the cluster"
    ),
    waits_for=COORDINATOR_LOG,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    metadata_cache: MetadataCache
    transactions: TransactionCoordinator
    sliced_work: SlicedWork
    internal_topics: frozenset[str]


async def handle(
    services: Needs, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.api_version >= FIRST_VERSION_OF_BROKERS:
        return await _serve_broker(services, request, context)
    rejected = _rejected(services, request.v3_and_below_topics, services.internal_topics)
    if rejected:
        return _client_response(request, rejected)
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = _names(request.v3_and_below_topics)
    await services.transactions.add_partitions(request.v3_and_below_transactional_id, producer, partitions)
    return _client_response(request, ErrorCode.NONE)


def rejected(
    services: Needs, request: AddPartitionsToTxnRequest, denied: Collection[str]
) -> AddPartitionsToTxnResponse:
    """Return the response to a client that may not write to the `denied` topics: nothing is added."""
    forbidden = {*services.internal_topics, *denied}
    return _client_response(request, _rejected(services, request.v3_and_below_topics, forbidden))


def metric_name(request: AddPartitionsToTxnRequest) -> str:
    """Return the name that the request is counted under."""
    transactions = request.transactions
    return (
        VERIFY_PARTITIONS
        if transactions and all(transaction.verify_only for transaction in transactions)
        else ADD_PARTITIONS
    )


def failed(request: AddPartitionsToTxnRequest, context: RequestContext, code: ErrorCode) -> AddPartitionsToTxnResponse:
    if context.api_version >= FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=code)
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return _client_response(request, code)


def _rejected(
    services: Needs, topics: Sequence[AddPartitionsToTxnTopic], forbidden: Collection[str]
) -> Mapping[TopicPartition, ErrorCode]:
    """Return the code of each partition if one of them must not be added; empty if all may be.

    Partitions that do not exist are rejected, and those of `forbidden` topics, which only the coordinators write to.
    """
    rejected = {}
    for name, partition in _names(topics):
        if name in forbidden:
            rejected[name, partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not services.metadata_cache.contains(name, partition):
            rejected[name, partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return dict.fromkeys(_names(topics), ErrorCode.OPERATION_NOT_ATTEMPTED) | rejected if rejected else {}


async def _serve_broker(
    services: Needs, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse(results_by_transaction=[])
    pause = services.sliced_work.pause
    # All are begun before one is awaited: the appends of the coordinator share a round trip to its followers.
    begun: list[Outcome | Running[Outcome]] = []
    for transaction in request.transactions:
        begun.append(start(_serve_transaction(services, transaction)))
        await pause()
    for transaction, outcome in zip(request.transactions, begun, strict=True):
        served = await outcome if isinstance(outcome, Running) else outcome
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, served)
            )
        )
        await pause()
    return response


async def _serve_transaction(services: Needs, transaction: AddPartitionsToTxnTransaction) -> Outcome:
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    partitions = _names(transaction.topics)
    rejected = _rejected(services, transaction.topics, ())
    if rejected:
        return rejected
    try:
        if not transaction.verify_only:
            await services.transactions.add_partitions(
                transaction.transactional_id, producer, partitions, version=VERSION_2
            )
            return ErrorCode.NONE
        return services.transactions.verify(transaction.transactional_id, producer, partitions)
    except KafkaError as error:
        return error.code


def _names(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _client_response(request: AddPartitionsToTxnRequest, outcome: Outcome) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request.v3_and_below_topics, outcome))


def _results(topics: Sequence[AddPartitionsToTxnTopic], outcome: Outcome) -> list[AddPartitionsToTxnTopicResult]:
    """Build the results. One code for all keeps the topics of the request; codes by partition name each partition once.

    Kafka does the same.
    """
    if isinstance(outcome, Mapping):
        results = ((each, _result(each[1], code)) for each, code in outcome.items())
        return whole(group_by_topic(results, _topic_result, never))
    return [_topic_result(topic.name, [_result(each, outcome) for each in topic.partitions]) for topic in topics]


def _topic_result(name: str, results: list[AddPartitionsToTxnPartitionResult]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)


def _result(partition: int, code: int) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)


class AuthorizationNeeds(PartNeeds, Needs, Protocol):
    """The parts of the broker that the checks of permissions use."""


async def authorize(guard: Guard, services: AuthorizationNeeds, request: Any, context: RequestContext) -> Any:
    if context.api_version >= FIRST_VERSION_OF_BROKERS:
        guard.require_cluster(context, Operation.CLUSTER_ACTION)
        return await guard.served(services, request, context)
    guard.require(context, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    _, denied = await guard.split(services, context, ResourceType.TOPIC, request.v3_and_below_topics)
    if not denied:
        return await guard.served(services, request, context)
    return await guard.computed(
        services, context, lambda: rejected(services, request, {topic.name for topic in denied})
    )
