"""Produce: append record batches to the partitions that this broker leads.

One bad partition never fails the others; the response lists every partition of the request.

Version notes: v0-2 may carry message sets of the old formats; v3+ carries exactly one batch of magic 2 a partition,
with transactional id; v8 record_errors; v10 current leader with code 6 (KIP-951); v11 TRANSACTION_ABORTABLE; v12 adds
the partitions to the transaction (KIP-890).

Owns the meaning of the request and the layout of the response. `broker.replica.appends` appends.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Protocol

from base.pause import Pause, each, never, whole
from broker.handlers import leader_hints
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions
from broker.handlers.leader_hints import leader_hint
from broker.handlers.request_context import CloseConnection, RequestContext
from broker.loop.driver import going_on, start
from broker.loop.slices import SlicedWork
from broker.replica.appends import (
    ACKS_ALL,
    PARTITIONS_IN_ONE_STEP_MAX,
    Appends,
    AppendTerms,
    Outcome,
    Outcomes,
    with_own_records,
)
from broker.replica.transaction_verification import ClientTerms
from broker.security.acls import Operation, ResourceType
from protocol.api import APIS
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    ProduceRow,
    ScannedProduce,
    TopicProduceResponse,
)
from protocol.row_writer import NO_ERRORS, RowResponse, RowWriter, row_writer
from protocol.schema import Records
from storage.batches.validation import AppendOrigin, Refusal
from storage.log.log_appends import AppendResult

ACKS_NONE = 0
VALID_ACKS = frozenset({ACKS_ALL, ACKS_NONE, 1})
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS_PARTITIONS = 12

SCANNED = ScannedProduce

_NO_ERROR = int(ErrorCode.NONE)  # looked up once: access to an enum member costs as much as a call
_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class
_TERMS_OF_VERSIONS = tuple(
    (
        AppendOrigin.of_produce_version(version),
        ClientTerms(version >= FIRST_VERSION_WITH_ABORTABLE, version >= FIRST_VERSION_THAT_ADDS_PARTITIONS),
    )
    for version in APIS[ApiKey.PRODUCE].versions
)


API = Declaration(
    ApiKey.PRODUCE,
    permissions=Permissions(transactional_id=Operation.WRITE, topic=Operation.WRITE),
    names=Names(transactional_id="transactional_id", each=Each(ResourceType.TOPIC, "topic_data", "responses")),
    elements=Elements.BULK,
    has_records=True,
)


class Needs(leader_hints.Needs, Protocol):
    """The parts of the broker that this handler uses."""

    appends: Appends
    sliced_work: SlicedWork


def handle(services: Needs, request: ScannedProduce, context: RequestContext) -> object:
    """Return the response, a coroutine that dispatch starts, or a promise of the response: the only handler that may.

    Dispatch frames the outcome of a promise when it is done, and cancels the promise when the connection closes. A
    producer that expects no response may close its connection as soon as it has sent the request. So with acks=0 the
    promise is one of `going_on`, whose cancellation drops the outcome, while the append is finished.
    """
    transactional_id, acks, timeout_ms, topic_data = request
    if acks not in VALID_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    origin, client_terms = _TERMS_OF_VERSIONS[context.api_version]
    terms = _new_tuple(
        AppendTerms,
        (acks, timeout_ms, transactional_id, origin, client_terms, context.client_id, context, context.channel.bound),
    )
    rows: Sequence[ProduceRow] = topic_data
    if len(rows) > 1:
        if len(rows) > PARTITIONS_IN_ONE_STEP_MAX:
            rows = rows if context.is_frame_kept else with_own_records(rows)
            serving = _serve_in_slices(services, rows, terms, context)
            return going_on(serving) if acks == ACKS_NONE else serving
        if not _names_each_partition_once(rows):
            rows = whole(_last_of_each_partition(rows, never))
    appended = services.appends.serve(rows, terms)
    if isinstance(appended, list):
        return _response(services, rows, appended, terms, context)
    names = whole(_without_records(rows, never))
    responding = _respond_later(services, names, appended, terms, context)
    return going_on(responding) if acks == ACKS_NONE else start(responding)


def failed(request: ScannedProduce, context: RequestContext, code: ErrorCode) -> ProduceResponse:
    """Return the response to a request that failed as a whole.

    Raises:
        CloseConnection: acks=0. The client would take a response for that to its next request.
    """
    if request.acks == ACKS_NONE:
        raise CloseConnection(f"produce with acks=0 failed: {code.name}")
    topics: dict[str, list[PartitionProduceResponse]] = {}
    for row in request.topic_data:
        response = PartitionProduceResponse(index=row.index_, error_code=code, base_offset=-1)
        topics.setdefault(row.name, []).append(response)
    return ProduceResponse(
        responses=[TopicProduceResponse(name=name, partition_responses=them) for name, them in topics.items()]
    )


def _names_each_partition_once(rows: Sequence[ProduceRow]) -> bool:
    """Return whether the rows are different partitions of one topic, as in nearly all requests."""
    names, indexes, _ = zip(*rows, strict=True)
    return names.count(names[0]) == len(rows) == len(set(indexes))


async def _last_of_each_partition(rows: Sequence[ProduceRow], pause: Pause) -> Sequence[ProduceRow]:
    """Return the last row of each partition, grouped by topic.

    As in Kafka, the response lists each partition once, and all partitions of a topic in one entry.
    """
    by_topic: dict[str, dict[int, ProduceRow]] = {}
    for row in rows:
        by_topic.setdefault(row[0], {})[row[1]] = row
        await pause()
    last: list[ProduceRow] = []
    for by_index in by_topic.values():
        last += by_index.values()
        await pause()
    return last


async def _serve_in_slices(
    services: Needs, rows: Sequence[ProduceRow], terms: AppendTerms, context: RequestContext
) -> object:
    pause = services.sliced_work.pause
    rows = await _last_of_each_partition(rows, pause)
    outcomes = await services.appends.serve_in_slices(rows, terms, pause)
    return await _response_of_any(services, rows, outcomes, terms, context)


async def _without_records(rows: Sequence[ProduceRow], pause: Pause) -> Sequence[ProduceRow]:
    """Return the rows without their records, which point into the frame: the frame is not kept until the response."""
    return await each(rows, lambda row: row._replace(records=None), pause)


async def _respond_later(
    services: Needs,
    rows: Sequence[ProduceRow],
    appended: Coroutine[Any, Any, Outcomes],
    terms: AppendTerms,
    context: RequestContext,
) -> object:
    return await _response_of_any(services, rows, await appended, terms, context)


async def _response_of_any(
    services: Needs, rows: Sequence[ProduceRow], outcomes: Outcomes, terms: AppendTerms, context: RequestContext
) -> RowResponse | ProduceResponse | None:
    response = _response(services, rows, outcomes, terms, context)
    return await response if isinstance(response, Coroutine) else response


def _response(
    services: Needs,
    rows: Sequence[ProduceRow],
    outcomes: Outcomes,
    terms: AppendTerms,
    context: RequestContext,
) -> RowResponse | Coroutine[Any, Any, ProduceResponse] | ProduceResponse | None:
    """Return the response: a `RowResponse` if no partition failed; None with acks=0."""
    if terms.acks == ACKS_NONE:
        _close_for_failures(rows, outcomes)
        return None
    if Refusal in map(type, outcomes):
        return _respond_with_errors(services, rows, outcomes, context)
    if not rows:
        return ProduceResponse(responses=[])
    return _row_response(rows, outcomes, context.api_version)  # type: ignore[arg-type]  # without a `Refusal`


def _row_response(rows: Sequence[ProduceRow], results: Sequence[AppendResult], version: int) -> RowResponse:
    writer = row_writer(ProduceResponse, version)
    if len(rows) == 1:
        ((name, index, _),), ((first_offset, _, append_time_ms, start_offset, _, _),) = rows, results
        write = partial(writer.write_one, name, index, _NO_ERROR, first_offset, append_time_ms, start_offset)
    else:
        write = partial(_write, writer, rows, results)
    return _new_tuple(RowResponse, (len(rows), write, NO_ERRORS))


def _write(writer: RowWriter, rows: Sequence[ProduceRow], results: Sequence[AppendResult]) -> list[Records]:
    names, indexes, _ = zip(*rows, strict=True)
    first_offsets, _, append_times_ms, start_offsets, _, _ = zip(*results, strict=True)
    return writer.write(names, indexes, repeat(_NO_ERROR), first_offsets, append_times_ms, start_offsets)


def _close_for_failures(rows: Sequence[ProduceRow], outcomes: Outcomes) -> None:
    """Raise CloseConnection if a partition failed with acks=0.

    The client reads no response, and refreshes its metadata only when its connection is closed.
    """
    if Refusal not in map(type, outcomes):
        return
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, Refusal):
            raise CloseConnection(f"produce with acks=0 to {row.name}-{row.index_} failed: {outcome.code.name}")


async def _respond_with_errors(
    services: Needs, rows: Sequence[ProduceRow], outcomes: Outcomes, context: RequestContext
) -> ProduceResponse:
    pause = services.sliced_work.pause
    topics: dict[str, TopicProduceResponse] = {}
    response = ProduceResponse(responses=[])
    for row, outcome in zip(rows, outcomes, strict=True):
        partition = _partition_response(row.index_, outcome)
        topic = topics.get(row.name)
        if topic is None:
            topic = topics[row.name] = TopicProduceResponse(name=row.name, partition_responses=[])
            response.responses.append(topic)
        topic.partition_responses.append(partition)
        if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _add_leader(services, context, response, row.name, partition)
        await pause()
    return response


def _partition_response(index: int, outcome: Outcome) -> PartitionProduceResponse:
    if isinstance(outcome, Refusal):
        return _error_response(index, outcome)
    return PartitionProduceResponse(
        index=index,
        base_offset=outcome.first_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
    )


def _add_leader(
    services: Needs,
    context: RequestContext,
    response: ProduceResponse,
    topic: str,
    partition: PartitionProduceResponse,
) -> None:
    """Add the current leader of a partition to the response (version 10 and up, KIP-951)."""
    if context.api_version < FIRST_VERSION_WITH_LEADERS:
        return
    hint = leader_hint(services, topic, partition.index, context.listener)
    partition.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
    if hint.node is not None and all(node.node_id != hint.leader_id for node in response.node_endpoints):
        host, port = hint.node.endpoints[context.listener]
        node = NodeEndpoint(node_id=hint.leader_id, host=host, port=port, rack=hint.node.rack)
        response.node_endpoints = [*response.node_endpoints, node]


def _error_response(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in refusal.record_errors
        ],
        # Clients have their own text for each code, so a message is sent only if it says more.
        error_message=None if refusal.message == ERRORS[refusal.code].message else refusal.message,
    )
