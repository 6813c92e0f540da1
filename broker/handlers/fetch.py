"""Fetch: read record batches, at once or when there are enough of them.

Stored bytes go out untouched. A request that finds too few bytes parks in the purgatory without holding anything; one
whose bytes are not in the page cache is read in a thread.

Version notes: v3 request-wide byte limit and whole first batch; v4 isolation levels; v5 log start offset; v7 sessions
(KIP-227); v9 leader epoch check; v12 last fetched epoch and diverging epoch; v13 topic ids; v15 replica state; v16
where the leader is, with codes 6 and 74 (KIP-951).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast
from uuid import UUID

from broker.handlers.leader_hints import leader_hint
from broker.handlers.request_context import RequestContext
from broker.handlers.services import Services
from broker.loop.promise import Promise
from broker.loop.slices import Slices, each, whole
from broker.replica.delayed_fetch import AwaitedPartition, DelayedFetch, end_of_wait_ms
from broker.replica.fetch_sessions import FetchContext, FetchPartition, FetchSession, PartitionKey
from broker.replica.old_readers import FIRST_VERSION_WITH_ZSTD, convert, needs_conversion, refuse_zstd
from broker.replica.partition import NO_EPOCH, Partition
from broker.replica.reader import CONSUMER, FetchLimits, FetchRead, PartitionRead, read_partitions
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
    ScannedFetch,
)
from protocol.row_writer import RowResponse, fetch_writer
from protocol.schema import Records, first_version

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FIRST_VERSION_WITH_REQUEST_LIMIT = first_version(FetchRequest, "max_bytes")
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_SESSIONS = first_version(FetchRequest, "session_id")
FIRST_VERSION_WITH_TOPIC_IDS = first_version(FetchableTopicResponse, "topic_id")
FIRST_VERSION_WITH_LEADERS = first_version(FetchResponse, "node_endpoints")
LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

SCANNED = ScannedFetch
METRIC_NAMES = FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"

RECORDS, RESPONSE_MEMORY = "records", "response memory"  # what a fetch waits for

Located = tuple[FetchPartition, Partition | None, ErrorCode]
Response = FetchResponse | RowResponse
"""The response in rows where all is well."""


def handle(
    services: Services, request: ScannedFetch, context: RequestContext
) -> Slices[Response | Awaitable[Response]]:
    return _Fetch(services, request, context).serve()


def failed(request: ScannedFetch, context: RequestContext, code: ErrorCode) -> FetchResponse:
    """Before version 7 the only place for an error is each partition."""
    topics: list[FetchableTopicResponse] = []
    if context.api_version < FIRST_VERSION_WITH_SESSIONS:
        for row in request.topics:
            _add(topics, row.topic, row.topic_id, _error_data(row.partition, code))
    return FetchResponse(error_code=code, responses=topics)


def _replica_id_of(request: ScannedFetch) -> int:
    """Return who reads: `CONSUMER`, a follower, or below a tool."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def metric_name(request: ScannedFetch) -> str:
    """Return the name that the request is counted under; Fetch is the sum of both."""
    return FETCH_FOLLOWER if _replica_id_of(request) > CONSUMER else FETCH_CONSUMER


class _Fetch:
    """One request on its way."""

    __slots__ = ("_bytes_min", "_context", "_limits", "_located", "_request", "_services", "_wanted")

    def __init__(self, services: Services, request: ScannedFetch, context: RequestContext) -> None:
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

    def serve(self) -> Slices[Response | Awaitable[Response]]:
        request = self._request
        self._wanted = yield from self._services.fetch_sessions.context(
            request.session_id,
            request.session_epoch,
            self._requested(),
            self._forgotten(),
            uses_topic_ids=self._uses_topic_ids,
            reader=(self._replica_id, self._limits.read_committed),
            now_ms=self._services.clock.monotonic_ms(),
        )
        yield from self._locate_all()
        if self._services.unsent_responses.is_full:
            return self._answer_with_room()
        read = yield from self._read_warm()
        if not read.is_cold and not self._is_enough(read):
            return (yield from self._answer_when_enough())
        return (yield from self._answer(read)) if self._is_ready(read) else self._answer_soon(read)

    def _locate_all(self) -> Slices[None]:
        self._located = yield from each(list(self._wanted.partitions.values()), self._locate)

    def _read_warm(self) -> Slices[FetchRead]:
        """What is in memory."""
        return self._read(self._limits_now(), nowait=True)

    def _limits_now(self) -> FetchLimits:
        """What the memory for unsent answers leaves of the request's limits."""
        limits = self._limits
        allowance = self._services.unsent_responses.allowance
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

    async def _answer_with_room(self) -> Response:
        """Answer once other answers are read: they take up all the memory that there is for them."""
        await self._room()
        read = await self._services.sliced_work.finished(self._read_warm())
        is_enough = read.is_cold or self._is_enough(read)
        if is_enough:
            return await self._answer_soon(read)
        return await (await self._services.sliced_work.finished(self._answer_when_enough()))

    def _answer_soon(self, read: FetchRead) -> asyncio.Future[Response]:
        """Answer once what there is is in memory, and in the reader's format.

        Its memory counts from now on: hundreds of such requests may come before the first of them is answered.
        """
        unsent = self._services.unsent_responses
        limits = self._limits_now()
        size = read.size
        if read.is_cold:
            size = min(limits.bytes_max, sum(wanted.bytes_max for wanted in self._wanted.partitions.values()))
        if needs_conversion(self._context.api_version):
            size *= 2  # the records as they are stored, and as they are sent
        size = max(size, 0)  # limits of a request may be negative
        unsent.reserve(size)
        answering = asyncio.ensure_future(self._answer_in_time(read, limits))
        answering.add_done_callback(lambda _: unsent.release(size))
        return answering

    async def _answer_in_time(self, read: FetchRead, limits: FetchLimits) -> Response:
        if read.is_cold:
            read = await self._services.run_blocking(lambda: whole(self._read(limits, nowait=False)))
        if needs_conversion(self._context.api_version):
            began_s = self._services.clock.monotonic_s()
            counts = await self._services.cpu_pool.run(lambda: self._convert(read))
            self._context.conversion_s += self._services.clock.monotonic_s() - began_s
            self._context.temporary_size += read.size
            for partition, count in counts:
                partition.metrics.fetch_message_conversions += count
        return await self._services.sliced_work.finished(self._answer(read))

    def _is_enough(self, read: FetchRead) -> bool:
        return (
            self._request.max_wait_ms <= 0
            or (not self._located and self._wanted.session is None)
            or read.has_news
            or read.size >= self._bytes_min
        )

    def _answer_when_enough(self) -> Slices[Promise[Response]]:
        """Park until there are enough bytes, something changed, or the time is over; then answer with what there is."""
        manager = self._services.replica_manager
        promise: Promise[Response] = Promise()
        self._context.begin_wait(RECORDS, self._services.clock.monotonic_s())
        session = self._wanted.session
        deadline_ms = end_of_wait_ms(self._services.clock.monotonic_ms(), self._request.max_wait_ms)
        if session is None:
            awaited = [self._awaited(wanted, found) for wanted, found, _ in self._located if found is not None]
            operation = DelayedFetch(awaited, self._bytes_min, lambda: self._answer_what_there_is(promise))
            promise.on_cancel(lambda: manager.fetch_purgatory.abandon(operation))
            manager.await_bytes(operation, deadline_ms)
        else:
            yield from self._await_news(session, promise, deadline_ms)
        return promise

    def _await_news(self, session: FetchSession, promise: Promise[Response], deadline_ms: int) -> Slices[None]:
        manager, sessions = self._services.replica_manager, self._services.fetch_sessions
        operation = DelayedFetch(
            [], self._bytes_min, lambda: self._answer_news(session, on_news, promise), may_grow=True
        )

        def on_news(wanted: FetchPartition) -> None:
            if wanted.session is not session:
                return
            found = self._readable(wanted)
            if found is None:
                manager.fetch_purgatory.force_one(operation)
                return
            sessions.watch(wanted)
            awaited = self._awaited(wanted, found)
            operation.await_also(awaited)
            manager.fetch_purgatory.try_one(operation, awaited.key)

        def abandon() -> None:
            _stop_listening(session, on_news)
            manager.fetch_purgatory.abandon(operation)

        promise.on_cancel(abandon)
        session.on_news = on_news
        manager.await_news(operation, deadline_ms)
        # All that have news now, also those to which something happened since the request was read.
        try:
            for wanted in list(session.news.values()):
                if operation.is_completed:
                    return
                on_news(wanted)
                yield
        except GeneratorExit:
            abandon()
            raise

    def _readable(self, wanted: FetchPartition) -> Partition | None:
        """The partition, None if there is something else to say of it than records."""
        _, found, _ = self._locate(wanted)
        if found is not None:
            try:
                found.require_leader(wanted.current_leader_epoch)
                if self._is_follower:
                    found.require_follower(self._replica_id, wanted.current_leader_epoch)
            except KafkaError:
                return None
            if found.log.is_offline:
                return None
        return found

    def _awaited(self, wanted: FetchPartition, partition: Partition) -> AwaitedPartition:
        return AwaitedPartition(
            partition,
            partition.leader_epoch,
            wanted.fetch_offset,
            wanted.bytes_max,
            self._limits.isolation,
            self._known_high_watermark(wanted, partition),
        )

    def _known_high_watermark(self, wanted: FetchPartition, partition: Partition) -> int | None:
        """The high watermark last sent to this follower; without a session, the present one. None for consumers."""
        if not self._is_follower:
            return None
        return partition.log.high_watermark if self._wanted.session is None else wanted.sent_high_watermark

    def _answer_news(
        self, session: FetchSession, on_news: Callable[[FetchPartition], None], promise: Promise[Response]
    ) -> None:
        """Answer a fetch of a session that has waited."""
        _stop_listening(session, on_news)
        self._answer_what_there_is(promise)

    def _answer_what_there_is(self, promise: Promise[Response]) -> None:
        self._context.end_wait(self._services.clock.monotonic_s())
        try:
            if self._services.unsent_responses.is_full:
                promise.follow(asyncio.ensure_future(self._answer_what_there_is_with_room()))
                return
            answer = self._services.sliced_work.run(self._answer_now())
            if isinstance(answer, FetchResponse | RowResponse):
                promise.set_result(answer)
            else:
                promise.follow(asyncio.ensure_future(self._settled(answer)))
        except Exception as error:
            promise.set_exception(error)

    async def _answer_what_there_is_with_room(self) -> Response:
        await self._room()
        return await self._settled(self._answer_now())

    async def _room(self) -> None:
        """Wait until other clients have read enough of their responses."""
        self._context.begin_wait(RESPONSE_MEMORY, self._services.clock.monotonic_s())
        await self._services.unsent_responses.room()
        self._context.end_wait(self._services.clock.monotonic_s())

    def _answer_now(self) -> Slices[Response | Awaitable[Response]]:
        """Answer with what there is."""
        if self._wanted.session is not None:
            yield from self._locate_all()
        read = yield from self._read_warm()
        return (yield from self._answer(read)) if self._is_ready(read) else self._answer_soon(read)

    async def _settled(self, outcome: object) -> Response:
        return cast(Response, await self._services.sliced_work.settled(outcome))

    def _convert(self, read: FetchRead) -> list[tuple[Partition, int]]:
        """Convert the records of each partition; return how many that were."""
        counts = []
        for partition_read in read.partitions:
            count = convert(partition_read, self._context.api_version)
            if partition_read.partition is not None and count:
                counts.append((partition_read.partition, count))
        return counts

    def _answer(self, read: FetchRead) -> Slices[Response]:
        """The response, with what its session has sent by it."""
        yield from self._count(read)
        session = self._wanted.session
        if session is None:
            sent = read.partitions
            session = yield from self._opened(sent)
        else:
            sent = []
            for each_read in read.partitions:
                if each_read.wanted.session is session and _is_worth_sending(each_read):
                    sent.append(each_read)
                yield
        if session is not None:
            yield from self._note_sent(session, read.partitions)
        return (yield from self._response(0 if session is None else session.id, sent, read))

    def _count(self, read: FetchRead) -> Slices[None]:
        others, is_follower = self._services.replica_manager.topic_metrics.others, self._is_follower
        for one in read.partitions:
            metrics = others if one.partition is None else one.partition.metrics
            metrics.fetched(one.error_code, len(one.records), is_follower=is_follower)
            yield

    def _opened(self, reads: Iterable[PartitionRead]) -> Slices[FetchSession | None]:
        """The session that the request opens, if it does."""
        session = self._services.fetch_sessions.open(
            self._wanted,
            is_follower=self._is_follower,
            uses_topic_ids=self._uses_topic_ids,
            reader=(self._replica_id, self._limits.read_committed),
            now_ms=self._services.clock.monotonic_ms(),
        )
        if session is not None:
            for read in reads:
                read.wanted.session = session
                _is_worth_sending(read)
                yield
        return session

    def _note_sent(self, session: FetchSession, reads: Iterable[PartitionRead]) -> Slices[None]:
        """Partitions of which the client knows all there is are looked at again when something happens to them."""
        for read in reads:
            if len(read.records):
                session.served(read.wanted)
            elif read.wanted.session is session and self._is_settled(read):
                self._services.fetch_sessions.settle(session, read.wanted)
            yield

    def _is_settled(self, read: PartitionRead) -> bool:
        """Whether nothing is left to be told of a partition, as it is now: something may have happened since."""
        wanted, partition = read.wanted, read.partition
        return (
            partition is not None
            and not read.error_code
            and read.diverging is None
            and partition.is_leader
            and wanted.current_leader_epoch in (NO_EPOCH, partition.leader_epoch)
            and partition.readable_end_offset(self._limits.isolation) <= wanted.fetch_offset
            and partition.log.high_watermark == wanted.sent_high_watermark
            and partition.log.log_start_offset == wanted.sent_log_start_offset
        )

    def _response(self, session_id: int, sent: Sequence[PartitionRead], read: FetchRead) -> Slices[Response]:
        needs_encoder = False
        for each_read in sent:
            needs_encoder = needs_encoder or _needs_encoder(each_read)
            yield
        if needs_encoder:
            topics: list[FetchableTopicResponse] = []
            for each_read in sent:
                _add(topics, each_read.wanted.topic or "", each_read.wanted.topic_id, _data(each_read))
                yield
            return (yield from self._with_leaders(FetchResponse(session_id=session_id, responses=topics), read))
        groups: list[tuple[str, UUID, list[tuple[int, int, int, int, Records]]]] = []
        for each_read in sent:
            name, topic_id = each_read.wanted.topic or "", each_read.wanted.topic_id
            if not groups or groups[-1][1] != topic_id or groups[-1][0] != name:
                groups.append((name, topic_id, []))
            groups[-1][2].append(
                (
                    each_read.wanted.partition,
                    each_read.high_watermark,
                    each_read.last_stable_offset,
                    each_read.log_start_offset,
                    each_read.records,
                )
            )
            yield
        write = fetch_writer(self._context.api_version).write
        return RowResponse(len(sent), partial(write, session_id, groups, is_committed=self._limits.read_committed))

    @property
    def _replica_id(self) -> int:
        return _replica_id_of(self._request)

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

    def _requested(self) -> Iterable[FetchPartition]:
        name_of = self._services.metadata_cache.name_of
        by_id = self._uses_topic_ids
        for topic, topic_id, index, epoch, offset, last_epoch, log_start_offset, bytes_max in self._request.topics:
            yield FetchPartition(
                (topic_id if by_id else topic, index),
                name_of(topic_id) if by_id else topic,
                topic_id,
                index,
                offset,
                bytes_max,
                max(epoch, NO_EPOCH),
                last_epoch,
                log_start_offset,
            )

    def _forgotten(self) -> Iterable[PartitionKey]:
        by_id = self._uses_topic_ids
        for topic, topic_id, indexes in self._request.forgotten_topics_data:
            for index in indexes:
                yield (topic_id if by_id else topic, index)

    def _locate(self, wanted: FetchPartition) -> Located:
        """Find the hosted partition, or say why there is none."""
        services = self._services
        if wanted.topic is None:
            wanted.topic = services.metadata_cache.name_of(wanted.topic_id)
            if wanted.topic is None:
                return wanted, None, ErrorCode.UNKNOWN_TOPIC_ID
        partition = services.replica_manager.find(wanted.topic, wanted.partition)
        if partition is None:
            return wanted, None, services.why_not_hosted(wanted.topic, wanted.partition).code
        if self._uses_topic_ids and partition.topic_id != wanted.topic_id:
            return wanted, None, ErrorCode.INCONSISTENT_TOPIC_ID
        return wanted, partition, ErrorCode.NONE


def _stop_listening(session: FetchSession, on_news: Callable[[FetchPartition], None]) -> None:
    if session.on_news is on_news:
        session.on_news = None


def _is_worth_sending(read: PartitionRead) -> bool:
    is_changed = read.wanted.is_worth_sending(
        has_records=len(read.records) > 0,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
    )
    return is_changed or read.diverging is not None


def _needs_encoder(read: PartitionRead) -> bool:
    """Whether the response says more of a partition than numbers and records."""
    return bool(read.error_code or read.aborted_transactions or read.diverging is not None)


def _add(topics: list[FetchableTopicResponse], name: str, topic_id: UUID, data: PartitionData) -> None:
    """Add one partition's answer; partitions of one topic that follow each other share an entry."""
    if not topics or topics[-1].topic_id != topic_id or topics[-1].topic != name:
        topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[]))
    topics[-1].partitions.append(data)


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
