"""Fetch: read record batches, at once or when enough bytes are available.

Stored batches are sent unchanged. A request that finds fewer bytes than `min_bytes` parks in the purgatory and holds no
resources. Bytes that are not in the page cache are read in a thread.

Version notes: v3 request-wide byte limit and whole first batch; v4 isolation levels; v5 log start offset; v7 sessions
(KIP-227); v9 leader epoch check; v12 last fetched epoch and diverging epoch; v13 topic ids; v15 replica state; v16
current leader with codes 6 and 74 (KIP-951).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast
from uuid import UUID

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import leader_hints
from broker.handlers.cluster_action import is_listener_of_brokers
from broker.handlers.leader_hints import leader_hint
from broker.handlers.metric_names import FETCH_CONSUMER, FETCH_FOLLOWER
from broker.handlers.request_context import RequestContext
from broker.loop.clock import Clock
from broker.loop.cpu_pool import CpuPool
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork, Slices, each, whole
from broker.network.unsent_responses import ALLOWANCE_MIN, UnsentResponses
from broker.quotas.enforcement import EnforcedQuotas, Key
from broker.replica.bound_partition import bind
from broker.replica.delayed_fetch import AwaitedPartition, DelayedFetch, FetcherType, end_of_wait_ms
from broker.replica.fetch_sessions import FetchContext, FetchPartition, FetchSession, FetchSessionCache, PartitionKey
from broker.replica.manager import ReplicaManager
from broker.replica.old_readers import FIRST_VERSION_WITH_ZSTD, convert, needs_conversion, refuse_zstd
from broker.replica.partition import NO_EPOCH, Partition
from broker.replica.reader import CONSUMER, FetchLimits, FetchRead, PartitionRead, read_partitions, require_reader
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from config import broker_properties as properties
from config.broker import BrokerConfig
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
NO_BROKER_EPOCH = -1
LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

SCANNED = ScannedFetch

RECORDS, RESPONSE_MEMORY = "records", "response memory"  # what a fetch waits for

Located = tuple[FetchPartition, Partition | None, ErrorCode]
Response = FetchResponse | RowResponse
"""A `RowResponse` if no partition has an error."""


T = TypeVar("T")


class Needs(leader_hints.Needs, Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    enforced_quotas: EnforcedQuotas
    config: BrokerConfig
    clock: Clock
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    cpu_pool: CpuPool
    sliced_work: SlicedWork
    unsent_responses: UnsentResponses

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...

    def run_blocking(self, work: Callable[[], T]) -> Awaitable[T]: ...


def handle(services: Needs, request: ScannedFetch, context: RequestContext) -> Slices[Response | Awaitable[Response]]:
    fetch = _AuthorizedFetch if services.authorizer.is_active else _Fetch
    return fetch(services, request, context).serve()


def failed(request: ScannedFetch, context: RequestContext, code: ErrorCode) -> FetchResponse:
    """Return the response to a request that failed as a whole. Before version 7 only partitions carry error codes."""
    topics: list[FetchableTopicResponse] = []
    if context.api_version < FIRST_VERSION_WITH_SESSIONS:
        for row in request.topics:
            _add(topics, row.topic, row.topic_id, _error_data(row.partition, code))
    return FetchResponse(error_code=code, responses=topics)


def _replica_id_of(request: ScannedFetch) -> int:
    """Return the id of the reader: `CONSUMER`, a follower's above it, a tool's below it."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def metric_name(request: ScannedFetch) -> str:
    """Return the request name for metrics; Kafka's `Fetch` is the sum of both."""
    return FETCH_FOLLOWER if _replica_id_of(request) > CONSUMER else FETCH_CONSUMER


class _Fetch:
    """One Fetch request."""

    __slots__ = (
        "_bytes_min",
        "_context",
        "_is_follower",
        "_limits",
        "_located",
        "_replica_id",
        "_request",
        "_services",
        "_uses_topic_ids",
        "_wanted",
    )

    def __init__(self, services: Needs, request: ScannedFetch, context: RequestContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"isolation level {request.isolation_level}: expected is 0 or 1"
            )
        version = context.api_version
        self._uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        replica_id = self._replica_id = _replica_id_of(request)
        self._is_follower = replica_id > CONSUMER
        if self._is_follower:
            context.is_of_broker = self._may_follow()
        has_limit = version >= FIRST_VERSION_WITH_REQUEST_LIMIT
        bytes_max = services.config[properties.FETCH_MAX_BYTES]
        if has_limit:
            bytes_max = min(bytes_max, request.max_bytes)
        if services.enforced_quotas.is_active and not self._is_follower:
            allowed = services.enforced_quotas.window_max(*self._quota_entity, Key.FETCH)
            bytes_max = bytes_max if allowed is None else min(bytes_max, int(allowed))
        self._bytes_min = min(request.min_bytes, bytes_max)
        self._limits = FetchLimits(
            bytes_max,
            request.isolation_level == READ_COMMITTED and replica_id == CONSUMER,
            has_limit,
            replica_id,
            may_slice=not needs_conversion(version),
        )
        self._wanted: FetchContext
        self._located: list[Located]

    def serve(self) -> Slices[Response | Awaitable[Response]]:
        request = self._request
        self._wanted = yield from self._services.fetch_sessions.context(
            request.session_id,
            request.session_epoch,
            self._requested() if request.topics else (),
            self._forgotten() if request.forgotten_topics_data else (),
            uses_topic_ids=self._uses_topic_ids,
            reader=(self._replica_id, self._limits.read_committed),
            now_ms=self._services.clock.monotonic_ms(),
        )
        yield from self._locate_all()
        if self._has_to_wait_for_memory:
            return self._serve_when_memory_frees()
        # Only at its arrival does a fetch prove how far its follower is: later that may be another incarnation.
        read = yield from self._read_warm(self._note_fetched if self._is_follower else None)
        if not read.is_cold and not self._is_enough(read):
            return (yield from self._respond_when_enough())
        return (yield from self._respond(read)) if self._is_ready(read) else self._respond_later(read)

    def _locate_all(self) -> Slices[None]:
        self._located = yield from each(list(self._wanted.partitions.values()), self._locate)

    def _read_warm(self, on_fetched: Callable[[Partition, FetchPartition], None] | None = None) -> Slices[FetchRead]:
        """Read what the page cache holds, without blocking. `on_fetched` as in `read_partitions`."""
        return self._read(self._limits_now(), nowait=True, on_fetched=on_fetched)

    def _note_fetched(self, partition: Partition, wanted: FetchPartition) -> None:
        """Note how far the follower is. Raises KafkaError."""
        state, replica_id = self._request.replica_state, self._replica_id
        self._services.replica_manager.follower_fetched(
            partition,
            replica_id,
            wanted.fetch_offset,
            wanted.log_start_offset,
            NO_BROKER_EPOCH if state is None else state.replica_epoch,
        )
        wanted.follower = partition.progress_of(replica_id)

    @property
    def _has_to_wait_for_memory(self) -> bool:
        """Whether the memory for unsent responses is used up. A follower never waits for clients that are slow.

        Else they could keep all followers out of the ISR. It gets little at a time, so memory stays bounded.
        """
        return self._services.unsent_responses.is_full and not self._is_follower

    def _limits_now(self) -> FetchLimits:
        """Return the request's limits, lowered to what the memory for unsent responses allows."""
        limits = self._limits
        allowance = self._services.unsent_responses.allowance
        if self._is_follower:
            allowance = max(allowance, ALLOWANCE_MIN)
        if allowance < limits.bytes_max and limits.is_first_batch_whole:
            limits = limits._replace(bytes_max=allowance)  # the first batch is whole, so every reader progresses
        return limits

    def _read(
        self,
        limits: FetchLimits,
        *,
        nowait: bool,
        on_fetched: Callable[[Partition, FetchPartition], None] | None = None,
    ) -> Slices[FetchRead]:
        reading = read_partitions(self._located, limits, nowait=nowait, on_fetched=on_fetched)
        return reading if self._context.api_version >= FIRST_VERSION_WITH_ZSTD else self._refusing_zstd(reading)

    def _refusing_zstd(self, reading: Slices[FetchRead]) -> Slices[FetchRead]:
        read = yield from reading
        for partition_read in read.partitions:
            refuse_zstd(partition_read, self._context.api_version)
            if partition_read.error_code is ErrorCode.KAFKA_STORAGE_ERROR and not self._knows_storage_errors:
                partition_read.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            yield
        return read

    def _is_ready(self, read: FetchRead) -> bool:
        """Return whether the response can be built from `read` without a disk or a conversion."""
        return not read.is_cold and not needs_conversion(self._context.api_version)

    async def _serve_when_memory_frees(self) -> Response:
        """Serve the request once clients have read other responses, which use all memory for unsent responses now."""
        await self._memory_freed()
        read = await self._services.sliced_work.finished(self._read_warm())
        is_enough = read.is_cold or self._is_enough(read)
        if is_enough:
            return await self._respond_later(read)
        return await (await self._services.sliced_work.finished(self._respond_when_enough()))

    def _respond_later(self, read: FetchRead) -> asyncio.Future[Response]:
        """Respond once the records are in memory and in the reader's format.

        The memory of the response counts from now on: hundreds of such requests may arrive before the first response is
        written.
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
        responding = asyncio.ensure_future(self._respond_off_loop(read, limits))
        responding.add_done_callback(lambda _: unsent.release(size))
        return responding

    async def _respond_off_loop(self, read: FetchRead, limits: FetchLimits) -> Response:
        if read.is_cold:
            read = await self._services.run_blocking(lambda: whole(self._read(limits, nowait=False)))
        if needs_conversion(self._context.api_version):
            began_s = self._services.clock.monotonic_s()
            counts = await self._services.cpu_pool.run(lambda: self._convert(read))
            extras = self._context.with_extras()
            extras.conversion_s += self._services.clock.monotonic_s() - began_s
            extras.temporary_size += read.size
            for partition, count in counts:
                partition.metrics.fetch_message_conversions += count
        return await self._services.sliced_work.finished(self._respond(read))

    def _is_enough(self, read: FetchRead) -> bool:
        return (
            self._request.max_wait_ms <= 0
            or (not self._located and self._wanted.session is None)
            or read.has_news
            or read.size >= self._bytes_min
        )

    def _respond_when_enough(self) -> Slices[Promise[Response]]:
        """Park until enough bytes are available, a partition changes or `max_wait_ms` is over; then respond."""
        manager = self._services.replica_manager
        promise: Promise[Response] = Promise()
        self._context.begin_wait(RECORDS, self._services.clock.monotonic_s())
        session = self._wanted.session
        deadline_ms = end_of_wait_ms(self._services.clock.monotonic_ms(), self._request.max_wait_ms)
        if session is None:
            awaited = [self._awaited(wanted, found) for wanted, found, _ in self._located if found is not None]
            operation = DelayedFetch(
                awaited, self._bytes_min, lambda: self._respond_with_available(promise), kind=self._fetcher_type
            )
            promise.on_cancel(lambda: manager.fetch_purgatory.abandon(operation))
            manager.await_bytes(operation, deadline_ms)
        else:
            yield from self._await_news(session, promise, deadline_ms)
        return promise

    def _await_news(self, session: FetchSession, promise: Promise[Response], deadline_ms: int) -> Slices[None]:
        manager, sessions = self._services.replica_manager, self._services.fetch_sessions
        operation = DelayedFetch(
            [],
            self._bytes_min,
            lambda: self._respond_to_session(session, on_news, promise),
            may_grow=True,
            kind=self._fetcher_type,
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
            _ignore_news(session, on_news)
            manager.fetch_purgatory.abandon(operation)

        promise.on_cancel(abandon)
        session.on_news = on_news
        manager.await_news(operation, deadline_ms)
        # Includes the partitions that have changed since this request was read.
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
        """Return the partition, or None if the response must carry an error for it."""
        _, found, _ = self._locate(wanted)
        if found is not None:
            try:
                require_reader(found, self._replica_id, wanted.current_leader_epoch)
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
        """Return the high watermark last sent to this follower, or the present one without a session.

        Returns None for consumers.
        """
        if not self._is_follower:
            return None
        return partition.log.high_watermark if self._wanted.session is None else wanted.sent_high_watermark

    def _respond_to_session(
        self, session: FetchSession, on_news: Callable[[FetchPartition], None], promise: Promise[Response]
    ) -> None:
        """Respond to a fetch of a session that has waited."""
        _ignore_news(session, on_news)
        self._respond_with_available(promise)

    def _respond_with_available(self, promise: Promise[Response]) -> None:
        self._context.end_wait(self._services.clock.monotonic_s())
        try:
            if self._has_to_wait_for_memory:
                promise.follow(asyncio.ensure_future(self._respond_when_memory_frees()))
                return
            response = self._services.sliced_work.run(self._read_and_respond())
            if isinstance(response, FetchResponse | RowResponse):
                promise.set_result(response)
            else:
                promise.follow(asyncio.ensure_future(self._settled(response)))
        except Exception as error:
            promise.set_exception(error)

    async def _respond_when_memory_frees(self) -> Response:
        await self._memory_freed()
        return await self._settled(self._read_and_respond())

    async def _memory_freed(self) -> None:
        """Wait until other clients have read enough of their responses."""
        self._context.begin_wait(RESPONSE_MEMORY, self._services.clock.monotonic_s())
        await self._services.unsent_responses.room()
        self._context.end_wait(self._services.clock.monotonic_s())

    def _read_and_respond(self) -> Slices[Response | Awaitable[Response]]:
        """Read what is available now and respond with it."""
        if self._wanted.session is not None:
            yield from self._locate_all()
        read = yield from self._read_warm()
        return (yield from self._respond(read)) if self._is_ready(read) else self._respond_later(read)

    async def _settled(self, outcome: object) -> Response:
        return cast(Response, await self._services.sliced_work.settled(outcome))

    def _convert(self, read: FetchRead) -> list[tuple[Partition, int]]:
        """Convert the records of each partition; return the partitions with the number of converted records."""
        counts = []
        for partition_read in read.partitions:
            count = convert(partition_read, self._context.api_version)
            if partition_read.partition is not None and count:
                counts.append((partition_read.partition, count))
        return counts

    def _respond(self, read: FetchRead) -> Slices[Response]:
        """Return the response, and record in its session what it sends."""
        if self._services.enforced_quotas.is_active and not self._is_follower and self._is_over_quota(read):
            session = self._wanted.session
            return FetchResponse(session_id=0 if session is None else session.id, responses=[])
        session = self._wanted.session
        sent = reads = read.partitions
        if reads:
            yield from self._count(reads)
        if session is None:
            session = yield from self._opened(sent)
        elif reads:
            sent = []
            for each_read in reads:
                if each_read.wanted.session is session and _is_worth_sending(each_read):
                    sent.append(each_read)
                yield
        if session is not None and reads:
            yield from self._note_sent(session, reads)
        return (yield from self._response(0 if session is None else session.id, sent, read))

    def _is_over_quota(self, read: FetchRead) -> bool:
        """Record the records for the client's quota; return whether the client is throttled, and gets none of them."""
        quotas, (user, client_id) = self._services.enforced_quotas, self._quota_entity
        throttle_ms = quotas.record(user, client_id, Key.FETCH, read.size)
        if throttle_ms:
            quotas.take_back(user, client_id, Key.FETCH, read.size)
            self._context.mute_ms = max(self._context.mute_ms, throttle_ms)
        return throttle_ms > 0

    @property
    def _fetcher_type(self) -> FetcherType:
        return FetcherType.FOLLOWER if self._is_follower else FetcherType.CONSUMER

    @property
    def _quota_entity(self) -> tuple[str, str]:
        return self._context.principal.partition(":")[2], self._context.client_id or ""

    def _count(self, reads: Iterable[PartitionRead]) -> Slices[None]:
        others, is_follower = self._services.replica_manager.topic_metrics.others, self._is_follower
        for one in reads:
            metrics = others if one.partition is None else one.partition.metrics
            metrics.fetched(one.error_code, len(one.records), is_follower=is_follower)
            yield

    def _opened(self, reads: Iterable[PartitionRead]) -> Slices[FetchSession | None]:
        """Return the session that the request opens; None if it opens none."""
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
        """Record what is sent. Partitions whose client is up to date are not read again before they change."""
        for read in reads:
            if len(read.records):
                session.served(read.wanted)
            elif read.wanted.session is session and self._is_settled(read):
                self._services.fetch_sessions.settle(session, read.wanted)
            yield

    def _is_settled(self, read: PartitionRead) -> bool:
        """Return whether the client is up to date with the present state, which may be newer than `read`.

        A follower outside of the ISR is never settled: only a fetch lets it join the ISR, and this one may have come
        while another change of the ISR was in flight.
        """
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
            and (not self._is_follower or self._replica_id in partition.leadership.isr)
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
    def _knows_storage_errors(self) -> bool:
        return self._context.api_version >= FIRST_VERSION_WITH_STORAGE_ERROR

    def _with_leaders(self, response: FetchResponse, read: FetchRead) -> Slices[FetchResponse]:
        """Add the current leader to partitions with an error of `LEADER_ERRORS` (version 16 and up, KIP-951)."""
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
        """Find the hosted partition, or the error code that says why it is missing."""
        bound = wanted.bound
        if bound is not None and bound.version == bound.partition.version:
            return wanted, bound.partition, ErrorCode.NONE
        services = self._services
        if wanted.topic is None:
            wanted.topic = self._name_of(wanted.topic_id)
            if wanted.topic is None:
                return wanted, None, ErrorCode.UNKNOWN_TOPIC_ID
        bound = bind(self._context.channel.bound, services.replica_manager, wanted.topic, wanted.partition)
        if bound is None:
            return wanted, None, services.why_not_hosted(wanted.topic, wanted.partition).code
        if self._uses_topic_ids and bound.partition.topic_id != wanted.topic_id:
            return wanted, None, ErrorCode.INCONSISTENT_TOPIC_ID
        wanted.bound = bound
        return wanted, bound.partition, ErrorCode.NONE

    def _may_follow(self) -> bool:
        return is_listener_of_brokers(self._services.config, self._context.listener)

    def _name_of(self, topic_id: UUID) -> str | None:
        services = self._services
        return services.metadata_cache.name_of(topic_id) or services.replica_manager.topic_of(topic_id)


class _AuthorizedFetch(_Fetch):
    """A Fetch request of a broker with an authorizer."""

    __slots__ = ()

    def _locate(self, wanted: FetchPartition) -> Located:
        """Do the same, but look up only what the client may read."""
        name = wanted.topic if wanted.topic is not None else self._name_of(wanted.topic_id)
        if name is not None and not self._may_read(name):
            wanted.topic = name
            return wanted, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return super()._locate(wanted)

    def _may_follow(self) -> bool:
        return self._services.authorizer.allows_cluster(self._context, Operation.CLUSTER_ACTION)

    def _may_read(self, topic: str) -> bool:
        authorizer, context = self._services.authorizer, self._context
        if self._is_follower:
            return context.is_of_broker
        return authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic)


def _ignore_news(session: FetchSession, on_news: Callable[[FetchPartition], None]) -> None:
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
    """Return whether the response carries more for a partition than a `RowResponse` can encode."""
    return bool(read.error_code or read.aborted_transactions or read.diverging is not None)


def _add(topics: list[FetchableTopicResponse], name: str, topic_id: UUID, data: PartitionData) -> None:
    """Add one partition; consecutive partitions of one topic share an entry."""
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
    # Empty records, not null: librdkafka rejects null records.
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
