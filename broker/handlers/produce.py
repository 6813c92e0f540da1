"""Produce: append record batches to the partitions that this broker leads.

One bad partition never fails the others; the response lists every partition that was asked.

Version notes: v0-2 may carry message sets of the old formats; v3+ carries exactly one batch of magic 2 a partition,
with transactional id; v8 record_errors; v10 current leader with code 6 (KIP-951); v11 TRANSACTION_ABORTABLE (KIP-890).

A request with a transactional id is verified before anything is appended, which waits only when a partition without
data of the transaction has a coordinator elsewhere; all other requests pay one look at a byte of each batch.

Large batches that must be opened, to be compressed or converted, are prepared in a thread, and so are small ones that
open to much; giving them offsets and writing them is one step on the event loop, as for all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import cast

from broker.leader_hints import leader_hint
from broker.replica.delayed_produce import AwaitedAppend
from broker.request_context import CloseConnection, RequestContext
from broker.services import Services
from broker.slices import Slices, whole
from broker.transactions.transaction import TopicPartition
from broker.transactions.verification import Admission, transactional_header
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.batch import BatchHeader
from storage.log import AppendOrigin, Log, PreparedAppend, Refusal
from storage.producer_state import ProducerState
from storage.validation import COSTLY_SIZE, RecordsRejected, is_compressed

ACKS_ALL = -1
ACKS_NONE = 0
VALID_ACKS = frozenset({ACKS_ALL, ACKS_NONE, 1})
ADMIN_CLIENT_ID = "__admin_client"
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_ABORTABLE = 11

PARTITIONS_IN_ONE_STEP_MAX = 16
"""The first append to a partition opens its files, which takes a fraction of a millisecond."""

Produced = ProduceResponse | Awaitable["Slices[Produced] | Produced"] | None
"""The response, None where no response is wanted, or what comes to one of them when it is awaited."""

Prepared = Mapping[int, PreparedAppend | Refusal]
"""What was decided of records before their append, by the identity of their part of the request."""


def handle(
    services: Services, request: ProduceRequest, context: RequestContext
) -> Produced | Slices[Produced] | Awaitable[Produced]:
    """A request for many partitions is served in slices."""
    serving = _serve(services, request, context)
    produced: Produced | Slices[Produced] = serving
    if _is_done_in_one_step(request):
        produced = whole(serving)
    else:
        _keep_records(request, context)
    if request.acks == ACKS_NONE and produced is not None:
        # A producer that expects no response may close its connection as soon as it has sent the request, which cancels
        # what is awaited here.
        return asyncio.shield(asyncio.ensure_future(_settled(services, produced)))
    return produced


def _is_done_in_one_step(request: ProduceRequest) -> bool:
    topics = request.topic_data
    return (
        len(topics) <= PARTITIONS_IN_ONE_STEP_MAX
        and sum(len(topic.partition_data) for topic in topics) <= PARTITIONS_IN_ONE_STEP_MAX
    )


async def _settled(services: Services, produced: object) -> ProduceResponse | None:
    return cast("ProduceResponse | None", await services.sliced_work.settled(produced))


def _serve(services: Services, request: ProduceRequest, context: RequestContext) -> Slices[Produced]:
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        yield from _drop_repeated(request)
    if request.acks not in VALID_ACKS:
        return failed(request, context, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is None:
        return (yield from _produce(services, request, context, None))
    batches = yield from _transactional_batches(services, request)
    admission = services.verifier.admit(
        request.transactional_id, batches, says_abortable=context.api_version >= FIRST_VERSION_WITH_ABORTABLE
    )
    if isinstance(admission, Admission):
        return (yield from _produce(services, request, context, admission))
    _keep_records(request, context)
    return _when_admitted(services, request, context, admission)


def _drop_repeated(request: ProduceRequest) -> Slices[None]:
    """Of several records for one partition only the last count, as at Kafka, which answers each partition once and no
    topic without one."""
    by_topic: dict[str, dict[int, PartitionProduceData]] = {}
    for topic in request.topic_data:
        yield
        if topic.partition_data:
            by_index = by_topic.setdefault(topic.name, {})
            for data in topic.partition_data:
                by_index[data.index] = data
                yield
    topics = []
    for name, by_index in by_topic.items():
        topics.append(TopicProduceData(name=name, partition_data=list(by_index.values())))
        yield
    request.topic_data = topics


def failed(request: ProduceRequest, context: RequestContext, code: ErrorCode) -> ProduceResponse:
    """Raises CloseConnection where no response is expected: the client would take it for that to its next request."""
    if request.acks == ACKS_NONE:
        raise CloseConnection(f"produce with acks=0 failed: {code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _transactional_batches(
    services: Services, request: ProduceRequest
) -> Slices[list[tuple[TopicPartition, ProducerState, BatchHeader]]]:
    """The transactional batches for partitions that are led here, with what these know of producers."""
    batches = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            header = None if data.records is None else transactional_header(data.records)
            partition = services.replica_manager.find(topic.name, data.index)
            if header is not None and partition is not None and partition.is_leader:
                batches.append(((topic.name, data.index), partition.log.producers(), header))
            yield
    return batches


def _keep_records(request: ProduceRequest, context: RequestContext) -> None:
    """Copy the records out of a frame that is only there until the handler returns."""
    if context.is_frame_kept:
        return
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)


async def _when_admitted(
    services: Services, request: ProduceRequest, context: RequestContext, awaited: Awaitable[Admission]
) -> Slices[Produced]:
    return _produce(services, request, context, await awaited)


def _produce(
    services: Services, request: ProduceRequest, context: RequestContext, admission: Admission | None
) -> Slices[Produced]:
    if services.replica_manager.has_slow_directory and _log_without_room(services, request) is not None:
        _keep_records(request, context)
        return _when_room(services, request, context, admission)
    prepared: dict[int, PreparedAppend | Refusal] = {}
    costly = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield
            if data.records is None or (len(data.records) < COSTLY_SIZE and not is_compressed(data.records)):
                continue
            partition = services.replica_manager.find(topic.name, data.index)
            if (
                partition is not None
                and partition.is_leader
                and _is_costly(services, partition.log, data, context, prepared)
            ):
                costly.append((partition.log, data))
    if costly:
        _keep_records(request, context)
        kept = {key: each if isinstance(each, Refusal) else each.kept() for key, each in prepared.items()}
        return _when_prepared(services, request, context, admission, costly, kept)
    return (yield from _append_all(services, request, context, admission, prepared))


def _log_without_room(services: Services, request: ProduceRequest) -> Log | None:
    """A log that takes no more of producers for now, because too much waits to be written to its slow directory."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = services.replica_manager.find(topic.name, data.index)
            if partition is not None and not partition.log.has_room:
                return partition.log
    return None


async def _when_room(
    services: Services, request: ProduceRequest, context: RequestContext, admission: Admission | None
) -> Slices[Produced] | ProduceResponse | None:
    """Produce once all logs have room, or answer REQUEST_TIMED_OUT: nothing was appended then."""
    loop = asyncio.get_running_loop()
    deadline_ms = services.clock.monotonic_ms() + max(request.timeout_ms, 0)
    while (log := _log_without_room(services, request)) is not None:
        room = loop.create_future()
        log.when_room(lambda room=room: None if room.done() else room.set_result(None))  # type: ignore[misc]
        left_ms = deadline_ms - services.clock.monotonic_ms()
        if left_ms <= 0:
            return failed(request, context, ErrorCode.REQUEST_TIMED_OUT)
        await asyncio.wait({room}, timeout=left_ms / 1000)
    return _produce(services, request, context, admission)


def _is_costly(
    services: Services,
    log: Log,
    data: PartitionProduceData,
    context: RequestContext,
    prepared: dict[int, PreparedAppend | Refusal],
) -> bool:
    """Whether records have to be prepared in a thread. Compressed ones are `prepared` here unless they open to much."""
    assert data.records is not None
    origin = AppendOrigin.of_produce_version(context.api_version)
    records = memoryview(data.records)
    if not is_compressed(records):
        return log.is_costly(records, origin)
    ready = log.prepare_at_once(records, now_ms=services.clock.now_ms(), origin=origin)
    if ready is None:
        return True
    prepared[id(data)] = ready
    return False


async def _when_prepared(
    services: Services,
    request: ProduceRequest,
    context: RequestContext,
    admission: Admission | None,
    costly: list[tuple[Log, PartitionProduceData]],
    prepared: dict[int, PreparedAppend | Refusal],
) -> Slices[Produced]:
    """Convert what has to be converted beside the event loop, then append: offsets are given there and nowhere else."""
    origin = AppendOrigin.of_produce_version(context.api_version)
    for log, data in costly:
        assert data.records is not None
        prepare = partial(log.prepare, memoryview(data.records), now_ms=services.clock.now_ms(), origin=origin)
        prepared[id(data)] = await services.computing.run(prepare)
    return _append_all(services, request, context, admission, prepared)


def _append_all(
    services: Services,
    request: ProduceRequest,
    context: RequestContext,
    admission: Admission | None,
    prepared: Prepared,
) -> Slices[Produced]:
    now_ms = services.clock.now_ms()
    appends: list[tuple[PartitionProduceResponse, AwaitedAppend]] = []
    response = ProduceResponse(responses=[])
    has_to_wait = False
    for topic in request.topic_data:
        yield
        partitions = []
        for data in topic.partition_data:
            try:
                answer, append = _append(services, topic.name, data, request, context, admission, prepared, now_ms)
                appends.append((answer, append))
                has_to_wait = has_to_wait or append.error is None or append.partition.log.needs_flush
            except KafkaError as error:
                answer = _refused(data.index, Refusal.of(error))
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    _add_leader(services, context, response, topic.name, answer)
            partitions.append(answer)
            yield
        response.responses.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
    if has_to_wait:
        return _when_safe(services, request, context, response, appends)
    _decide(appends)
    return _answer(request, response)


def _append(
    services: Services,
    topic: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    admission: Admission | None,
    prepared: Prepared,
    now_ms: int,
) -> tuple[PartitionProduceResponse, AwaitedAppend]:
    """Append one partition's records; the answer, and what has to be waited for. Raises KafkaError."""
    partition = services.replica_manager.find(topic, data.index)
    if partition is None:
        raise services.why_not_hosted(topic, data.index)
    if topic in services.internal_topics and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    if data.records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"No records for partition {topic}-{data.index}")
    header = transactional_header(data.records)
    if header is not None and partition.is_leader:
        if admission is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        admission.check((topic, data.index), partition.log.producers(), header)
    records = prepared.get(id(data)) or memoryview(data.records)
    if isinstance(records, Refusal):
        raise RecordsRejected(*records)
    needs_isr = request.acks == ACKS_ALL
    result = services.replica_manager.append(
        partition,
        records,
        needs_isr=needs_isr,
        now_ms=now_ms,
        origin=AppendOrigin.of_produce_version(context.api_version),
    )
    answer = PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=result.first_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    append = AwaitedAppend(partition, partition.leading_since, result.last_offset + 1, needs_isr)
    append.error = append.outcome() if needs_isr or partition.log.has_planned else ErrorCode.NONE
    return answer, append


async def _when_safe(
    services: Services,
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    appends: list[tuple[PartitionProduceResponse, AwaitedAppend]],
) -> ProduceResponse | None:
    """Answer once everything is written, what flush.messages wants is synced, and what acks=all wants is committed."""
    deadline_ms = services.clock.monotonic_ms() + max(request.timeout_ms, 0)
    await _until_decided(
        services,
        [
            AwaitedAppend(append.partition, append.leading_since, append.end_offset, needs_isr=False)
            for _, append in appends
            if append.partition.log.has_planned
        ],
        deadline_ms,
    )
    for _, append in appends:
        if append.partition.log.needs_flush:
            try:
                await services.flush(append.partition)
            except KafkaError as error:
                append.error = error.code
    await _until_decided(services, [append for _, append in appends], deadline_ms)
    _decide(appends)
    for answer, append in appends:
        if append.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _add_leader(services, context, response, append.partition.topic, answer)
    return _answer(request, response)


async def _until_decided(services: Services, appends: list[AwaitedAppend], deadline_ms: int) -> None:
    """Return when each append has its outcome."""
    if appends:
        decided = asyncio.get_running_loop().create_future()
        services.replica_manager.await_commit(
            appends, deadline_ms, lambda: None if decided.done() else decided.set_result(None)
        )
        await decided


def _decide(appends: list[tuple[PartitionProduceResponse, AwaitedAppend]]) -> None:
    for answer, append in appends:
        if append.error:
            answer.error_code = append.error
            answer.base_offset = -1
            answer.log_append_time_ms = -1
            answer.log_start_offset = -1


def _answer(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    if request.acks != ACKS_NONE:
        return response
    # Nobody reads an answer to acks=0; closing the connection is how the client learns to refresh its metadata.
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise CloseConnection(
                    f"produce with acks=0 to {topic.name}-{partition.index} failed: "
                    f"{ErrorCode(partition.error_code).name}"
                )
    return None


def _add_leader(
    services: Services,
    context: RequestContext,
    response: ProduceResponse,
    topic: str,
    answer: PartitionProduceResponse,
) -> None:
    """Say where the leader of a partition is, from version 10 on."""
    if context.api_version < FIRST_VERSION_WITH_LEADERS:
        return
    hint = leader_hint(services, topic, answer.index, context.listener)
    answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
    if hint.node is not None and all(node.node_id != hint.leader_id for node in response.node_endpoints):
        host, port = hint.node.endpoints[context.listener]
        node = NodeEndpoint(node_id=hint.leader_id, host=host, port=port, rack=hint.node.rack)
        response.node_endpoints = [*response.node_endpoints, node]


def _refused(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in refusal.record_errors
        ],
        # The code has a text of its own at the client; only what says more goes along.
        error_message=None if refusal.message == ERRORS[refusal.code].message else refusal.message,
    )
