"""Fetch: read record batches, at once or when there are enough of them.

Stored bytes go out untouched. A request that finds too few bytes parks in the purgatory without holding anything; one
whose bytes are not in the page cache is read in a thread.

Version notes: v3 request-wide byte limit and whole first batch; v4 isolation levels; v5 log start offset; v7 sessions
(KIP-227); v9 leader epoch check; v12 last fetched epoch and diverging epoch; v13 topic ids; v15 replica state; v16
where the leader is, with codes 6 and 74 (KIP-951).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import cast

from broker.leader_hints import leader_hint
from broker.promise import Promise
from broker.replica.delayed_fetch import AwaitedPartition, end_of_wait_ms
from broker.replica.fetch_sessions import FetchContext, FetchPartition, PartitionKey
from broker.replica.old_readers import FIRST_VERSION_WITH_ZSTD, convert, needs_conversion, refuse_zstd
from broker.replica.partition import NO_EPOCH, Partition
from broker.replica.reader import CONSUMER, FetchLimits, FetchRead, PartitionRead, read_partitions
from broker.request_context import RequestContext
from broker.services import Services
from broker.slices import Slices, each, whole
from config import broker_properties as properties
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FIRST_VERSION_WITH_REQUEST_LIMIT = 3
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Located = tuple[PartitionKey, FetchPartition, Partition | None, ErrorCode]


def handle(
    services: Services, request: FetchRequest, context: RequestContext
) -> Slices[FetchResponse | Awaitable[FetchResponse]]:
    return _Fetch(services, request, context).serve()


def failed(request: FetchRequest, context: RequestContext, code: ErrorCode) -> FetchResponse:
    """Before version 7 the only place for an error is each partition."""
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_error_data(partition.partition, code) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return FetchResponse(error_code=code, responses=topics if context.api_version < 7 else [])


def replica_id_of(request: FetchRequest) -> int:
    """Who reads: `CONSUMER`, a follower, or below a tool."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


class _Fetch:
    """One request on its way."""

    __slots__ = ("_bytes_min", "_context", "_limits", "_located", "_request", "_services", "_wanted")

    def __init__(self, services: Services, request: FetchRequest, context: RequestContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"isolation level {request.isolation_level}: expected is 0 or 1"
            )
        bytes_max = services.config[properties.FETCH_MAX_BYTES]
        if context.api_version >= FIRST_VERSION_WITH_REQUEST_LIMIT:
            bytes_max = min(bytes_max, request.max_bytes)
        self._bytes_min = min(request.min_bytes, bytes_max)
        self._limits = FetchLimits(
            bytes_max,
            request.isolation_level == READ_COMMITTED and self._replica_id == CONSUMER,
            context.api_version >= FIRST_VERSION_WITH_REQUEST_LIMIT,
            self._replica_id,
            may_slice=not needs_conversion(context.api_version),
        )
        self._wanted: FetchContext
        self._located: list[Located]

    def serve(self) -> Slices[FetchResponse | Awaitable[FetchResponse]]:
        requested = yield from self._requested()
        self._wanted = yield from self._resolve_session(requested)
        # Another request of the session may change its partitions between two slices.
        wanted = self._wanted.partitions.copy()
        self._located = yield from each(wanted.items(), lambda item: self._locate(*item))
        if self._services.unsent_answers.is_full:
            return self._answer_with_room()
        read = yield from self._read_warm()
        if not read.is_cold and not self._is_enough(read):
            return self._answer_when_enough()
        return (yield from self._answer(read)) if self._is_ready(read) else self._answer_in_time(read)

    def _read_warm(self) -> Slices[FetchRead]:
        """What is in memory."""
        return self._read(self._limits_now(), nowait=True)

    def _limits_now(self) -> FetchLimits:
        """What the memory for unsent answers leaves of the request's limits."""
        limits = self._limits
        allowance = self._services.unsent_answers.allowance
        if allowance < limits.bytes_max and limits.is_first_batch_whole:
            limits = replace(limits, bytes_max=allowance)  # never less than one batch: every reader gets on
        return limits

    def _read(self, limits: FetchLimits, *, nowait: bool) -> Slices[FetchRead]:
        read = yield from read_partitions(self._located, limits, nowait=nowait)
        if self._context.api_version < FIRST_VERSION_WITH_ZSTD:
            for partition_read in read.partitions:
                refuse_zstd(partition_read, self._context.api_version)
                if partition_read.error_code is ErrorCode.KAFKA_STORAGE_ERROR and not self._knows_storage_errors:
                    partition_read.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                yield
        return read

    def _is_ready(self, read: FetchRead) -> bool:
        """Whether `read`, which has enough, can be answered as it is."""
        return not read.is_cold and not needs_conversion(self._context.api_version)

    async def _answer_with_room(self) -> FetchResponse:
        """Answer once other answers are read: they take up all the memory that there is for them."""
        await self._services.unsent_answers.room()
        read = await self._services.sliced_work.finished(self._read_warm())
        is_enough = read.is_cold or self._is_enough(read)
        return await (self._answer_in_time(read) if is_enough else self._answer_when_enough())

    async def _answer_in_time(self, read: FetchRead) -> FetchResponse:
        """Answer once what there is is in memory, and in the reader's format."""
        if read.is_cold:
            limits = self._limits_now()
            size_max = min(limits.bytes_max, sum(wanted.bytes_max for wanted in self._wanted.partitions.values()))
            with self._services.unsent_answers.reserved(size_max):
                read = await self._services.run_blocking(lambda: whole(self._read(limits, nowait=False)))
        if needs_conversion(self._context.api_version):
            await self._services.computing.run(lambda: self._convert(read))
        return await self._services.sliced_work.finished(self._answer(read))

    def _is_enough(self, read: FetchRead) -> bool:
        return self._request.max_wait_ms <= 0 or not self._located or read.has_news or read.size >= self._bytes_min

    def _answer_when_enough(self) -> Promise[FetchResponse]:
        """Park until there are enough bytes, something changed, or the time is over; then answer with what there is."""
        manager = self._services.replica_manager
        promise: Promise[FetchResponse] = Promise()
        isolation = self._limits.isolation
        operation = manager.await_bytes(
            [
                AwaitedPartition(
                    partition,
                    partition.leader_epoch,
                    wanted.fetch_offset,
                    wanted.bytes_max,
                    isolation,
                    self._known_high_watermark(wanted, partition),
                )
                for _, wanted, partition, _ in self._located
                if partition is not None
            ],
            self._bytes_min,
            end_of_wait_ms(self._services.clock.monotonic_ms(), self._request.max_wait_ms),
            lambda: self._answer_what_there_is(promise),
        )
        promise.on_cancel(lambda: manager.fetch_purgatory.abandon(operation))
        return promise

    def _known_high_watermark(self, wanted: FetchPartition, partition: Partition) -> int | None:
        """The high watermark last sent to this follower; without a session, the present one. None for consumers."""
        if not self._is_follower:
            return None
        return partition.log.high_watermark if self._wanted.session is None else wanted.sent_high_watermark

    def _answer_what_there_is(self, promise: Promise[FetchResponse]) -> None:
        try:
            if self._services.unsent_answers.is_full:
                promise.follow(asyncio.ensure_future(self._answer_what_there_is_with_room()))
                return
            answer = self._services.sliced_work.run(self._answer_now())
            if isinstance(answer, FetchResponse):
                promise.set_result(answer)
            else:
                promise.follow(asyncio.ensure_future(self._settled(answer)))
        except Exception as error:
            promise.set_exception(error)

    async def _answer_what_there_is_with_room(self) -> FetchResponse:
        await self._services.unsent_answers.room()
        return await self._answer_in_time(await self._services.sliced_work.finished(self._read_warm()))

    def _answer_now(self) -> Slices[FetchResponse | Awaitable[FetchResponse]]:
        """Answer with what there is."""
        read = yield from self._read_warm()
        return (yield from self._answer(read)) if self._is_ready(read) else self._answer_in_time(read)

    async def _settled(self, outcome: object) -> FetchResponse:
        return cast(FetchResponse, await self._services.sliced_work.settled(outcome))

    def _convert(self, read: FetchRead) -> None:
        for partition_read in read.partitions:
            convert(partition_read, self._context.api_version)

    def _answer(self, read: FetchRead) -> Slices[FetchResponse]:
        sessions = self._services.fetch_sessions
        session = self._wanted.session
        topics: list[FetchableTopicResponse] = []
        for partition_read in read.partitions:
            if session is None or self._wanted.is_worth_sending(
                partition_read.key,
                has_records=len(partition_read.records) > 0,
                error_code=partition_read.error_code,
                high_watermark=partition_read.high_watermark,
                log_start_offset=partition_read.log_start_offset,
            ):
                _add(topics, partition_read)
            if session is None:
                partition_read.wanted.sent_high_watermark = partition_read.high_watermark
                partition_read.wanted.sent_log_start_offset = partition_read.log_start_offset
            yield
        if session is not None:
            return (yield from self._with_leaders(FetchResponse(session_id=session.id, responses=topics), read))
        session_id = sessions.open(
            self._wanted,
            is_follower=self._is_follower,
            uses_topic_ids=self._uses_topic_ids,
            now_ms=self._services.clock.monotonic_ms(),
        )
        return (yield from self._with_leaders(FetchResponse(session_id=session_id, responses=topics), read))

    @property
    def _replica_id(self) -> int:
        return replica_id_of(self._request)

    @property
    def _is_follower(self) -> bool:
        return self._replica_id > CONSUMER

    @property
    def _knows_storage_errors(self) -> bool:
        return self._context.api_version >= FIRST_VERSION_WITH_STORAGE_ERROR

    def _with_leaders(self, response: FetchResponse, read: FetchRead) -> Slices[FetchResponse]:
        """Say of partitions that were asked in the wrong place, or time, where their leader is (version 16 and up)."""
        if not read.has_news or self._context.api_version < FIRST_VERSION_WITH_LEADERS:
            return response
        nodes: dict[int, NodeEndpoint] = {}
        listener = self._context.listener
        for topic in response.responses:
            for data in topic.partitions:
                yield
                if data.error_code not in LEADER_ERRORS:
                    continue
                hint = leader_hint(self._services, topic.topic, data.partition_index, listener)
                data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
                if hint.node is not None:
                    host, port = hint.node.endpoints[listener]
                    nodes[hint.leader_id] = NodeEndpoint(
                        node_id=hint.leader_id, host=host, port=port, rack=hint.node.rack
                    )
        response.node_endpoints = list(nodes.values())
        return response

    @property
    def _uses_topic_ids(self) -> bool:
        return self._context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS

    def _resolve_session(self, requested: dict[PartitionKey, FetchPartition]) -> Slices[FetchContext]:
        request = self._request
        forgotten = yield from self._forgotten()
        return (
            yield from self._services.fetch_sessions.context(
                request.session_id,
                request.session_epoch,
                requested,
                forgotten,
                uses_topic_ids=self._uses_topic_ids,
                now_ms=self._services.clock.monotonic_ms(),
            )
        )

    def _requested(self) -> Slices[dict[PartitionKey, FetchPartition]]:
        """Each partition once; of several requests for one the last counts."""
        metadata = self._services.metadata_cache
        by_id = self._uses_topic_ids
        requested: dict[PartitionKey, FetchPartition] = {}
        for topic in self._request.topics:
            yield
            name = metadata.name_of(topic.topic_id) if by_id else topic.topic
            for partition in topic.partitions:
                wanted = FetchPartition(
                    name,
                    topic.topic_id,
                    partition.partition,
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    max(partition.current_leader_epoch, NO_EPOCH),
                    partition.last_fetched_epoch,
                    partition.log_start_offset,
                )
                requested[topic.topic_id if by_id else topic.topic, partition.partition] = wanted
                yield
        return requested

    def _forgotten(self) -> Slices[list[PartitionKey]]:
        by_id = self._uses_topic_ids
        forgotten: list[PartitionKey] = []
        for topic in self._request.forgotten_topics_data:
            yield
            for partition in topic.partitions:
                forgotten.append((topic.topic_id if by_id else topic.topic, partition))
                yield
        return forgotten

    def _locate(self, key: PartitionKey, wanted: FetchPartition) -> Located:
        """Find the hosted partition, or say why there is none."""
        services = self._services
        if wanted.topic is None:
            wanted.topic = services.metadata_cache.name_of(wanted.topic_id)
            if wanted.topic is None:
                return key, wanted, None, ErrorCode.UNKNOWN_TOPIC_ID
        partition = services.replica_manager.find(wanted.topic, wanted.partition)
        if partition is None:
            return key, wanted, None, services.why_not_hosted(wanted.topic, wanted.partition).code
        if self._uses_topic_ids and partition.topic_id != wanted.topic_id:
            return key, wanted, None, ErrorCode.INCONSISTENT_TOPIC_ID
        return key, wanted, partition, ErrorCode.NONE


def _add(topics: list[FetchableTopicResponse], read: PartitionRead) -> None:
    """Add one partition's answer; partitions of one topic that follow each other share an entry."""
    name = read.wanted.topic or ""
    if not topics or topics[-1].topic_id != read.wanted.topic_id or topics[-1].topic != name:
        topics.append(FetchableTopicResponse(topic=name, topic_id=read.wanted.topic_id, partitions=[]))
    topics[-1].partitions.append(_data(read))


def _data(read: PartitionRead) -> PartitionData:
    if read.error_code:
        return _error_data(read.wanted.partition, read.error_code)
    data = PartitionData(
        partition_index=read.wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None,
        records=read.records,
    )
    if read.aborted_transactions is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in read.aborted_transactions
        ]
    if read.diverging is not None:
        epoch, end_offset = read.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


def _error_data(partition: int, code: ErrorCode) -> PartitionData:
    # Zero bytes, not null: librdkafka refuses null records.
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
