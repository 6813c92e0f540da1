"""Fetch service: reads the partitions of a fetch, synchronously or once enough bytes are available.

Owns the order of the steps of one fetch: resolve its session, wait for memory, read what the page cache holds, wait for
more bytes, read from the disk and convert in threads, and record in the session what is sent. Must not know the layout
of requests and responses, permissions or quotas: the handler answers for them (`FetchRequester`).

    session -> locate -> memory free? -> warm read -> enough? -> respond
                             |                          |
                             wait for slow readers      park until bytes, news or max_wait_ms

A fetch that waits holds no records. A response that needs a disk or a conversion is built off the event loop, and its
memory counts as unsent from the moment when that begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from broker.loop.clock import Clock
from broker.loop.cpu_pool import CpuPool
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork, Slices, each, whole
from broker.loop.waits import Waiting
from broker.network.unsent_responses import ALLOWANCE_MIN, UnsentResponses
from broker.replica.delayed_fetch import AwaitedPartition, DelayedFetch, FetcherType, end_of_wait_ms
from broker.replica.fetch_sessions import FetchContext, FetchPartition, FetchSession, FetchSessionCache, PartitionKey
from broker.replica.manager import ReplicaManager
from broker.replica.old_readers import FIRST_VERSION_WITH_ZSTD, convert, needs_conversion, replace_new_errors
from broker.replica.partition import NO_EPOCH, Partition
from broker.replica.reader import (
    CONSUMER,
    FetchLimits,
    FetchRead,
    Located,
    PartitionRead,
    read_partitions,
    require_reader,
)
from protocol.errors import KafkaError
from protocol.records.compression import OpensTooFar

RECORDS, RESPONSE_MEMORY = "records", "response memory"  # what a fetch waits for
NO_BROKER_EPOCH = -1

R = TypeVar("R")
"""A response."""
R_co = TypeVar("R_co", covariant=True)
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class ReadTerms(NamedTuple):
    """The fields of a request that apply to all its partitions."""

    version: int
    """The version of the request, which says what formats its client reads."""
    session_id: int
    session_epoch: int
    uses_topic_ids: bool
    max_wait_ms: int
    bytes_min: int
    limits: FetchLimits
    replica_epoch: int = NO_BROKER_EPOCH
    """The follower's broker epoch."""


class FetchRequester(Protocol[R_co]):
    """What only the handler of a fetch knows about it."""

    def locate(self, wanted: FetchPartition) -> Located:
        """Return the hosted partition, or the error code that says why the client cannot read it."""

    def admits(self, size: int) -> bool:
        """Count `size` bytes of records for the client's quota; return whether they may be sent."""

    def count_conversion(self, duration_s: float, size: int) -> None:
        """Record that `size` bytes of records were converted for an old reader."""

    def response(self, session_id: int, reads: Sequence[PartitionRead], *, has_errors: bool) -> Slices[R_co]:
        """Return the response with these partitions. `has_errors`: see `FetchRead.has_news`."""

    def empty_response(self, session_id: int) -> R_co:
        """Return the response to a fetch whose records are not admitted."""


class FetchService:
    """Serves the fetches of consumers and followers; it holds the parts of the broker that they use."""

    __slots__ = ("clock", "cpu_pool", "in_thread", "manager", "sessions", "sliced_work", "unsent_responses")

    def __init__(
        self,
        manager: ReplicaManager,
        sessions: FetchSessionCache,
        unsent_responses: UnsentResponses,
        sliced_work: SlicedWork,
        cpu_pool: CpuPool,
        clock: Clock,
        *,
        in_thread: InThread,
    ) -> None:
        """`in_thread(work)` runs `work`, which may wait for a disk, in a thread."""
        self.manager = manager
        self.sessions = sessions
        self.unsent_responses = unsent_responses
        self.sliced_work = sliced_work
        self.cpu_pool = cpu_pool
        self.clock = clock
        self.in_thread = in_thread

    def serve(
        self,
        requester: FetchRequester[R],
        terms: ReadTerms,
        named: Iterable[FetchPartition],
        forgotten: Iterable[PartitionKey],
        waits: Waiting,
    ) -> Slices[R | Awaitable[R]]:
        """Return what `requester.response` returns, or an awaitable of it.

        `named` and `forgotten` are the partitions that the request names and removes from its session. `waits` records
        the waits for records and memory.

        Raises KafkaError: the session id or epoch of the request is invalid.
        """
        return _Fetch(self, requester, terms, waits).serve(named, forgotten)


class _Fetch(Generic[R]):
    """One fetch."""

    __slots__ = ("_is_follower", "_limits", "_located", "_requester", "_service", "_terms", "_waits", "_wanted")

    def __init__(self, service: FetchService, requester: FetchRequester[R], terms: ReadTerms, waits: Waiting) -> None:
        self._service = service
        self._requester = requester
        self._terms = terms
        self._waits = waits
        self._limits = terms.limits
        self._is_follower = terms.limits.replica_id > CONSUMER
        self._wanted: FetchContext
        self._located: list[Located]

    def serve(self, named: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> Slices[R | Awaitable[R]]:
        terms, limits = self._terms, self._limits
        self._wanted = yield from self._service.sessions.context(
            terms.session_id,
            terms.session_epoch,
            named,
            forgotten,
            uses_topic_ids=terms.uses_topic_ids,
            reader=(limits.replica_id, limits.read_committed),
            now_ms=self._service.clock.monotonic_ms(),
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
        self._located = yield from each(list(self._wanted.partitions.values()), self._requester.locate)

    def _read_warm(self, on_fetched: Callable[[Partition, FetchPartition], None] | None = None) -> Slices[FetchRead]:
        """Read what the page cache holds, without blocking. `on_fetched` as in `read_partitions`."""
        return self._read(self._limits_now(), nowait=True, on_fetched=on_fetched)

    def _note_fetched(self, partition: Partition, wanted: FetchPartition) -> None:
        """Note how far the follower is. Raises KafkaError."""
        replica_id = self._limits.replica_id
        self._service.manager.follower_fetched(
            partition, replica_id, wanted.fetch_offset, wanted.log_start_offset, self._terms.replica_epoch
        )
        wanted.follower = partition.progress_of(replica_id)

    @property
    def _has_to_wait_for_memory(self) -> bool:
        """Whether the memory for unsent responses is used up. A follower never waits for clients that are slow.

        Else they could keep all followers out of the ISR. It gets little at a time, so memory stays bounded.
        """
        return self._service.unsent_responses.is_full and not self._is_follower

    def _limits_now(self) -> FetchLimits:
        """Return the request's limits, lowered to what the memory for unsent responses allows."""
        limits = self._limits
        allowance = self._service.unsent_responses.allowance
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
        return reading if self._terms.version >= FIRST_VERSION_WITH_ZSTD else self._for_old_reader(reading)

    def _for_old_reader(self, reading: Slices[FetchRead]) -> Slices[FetchRead]:
        read = yield from reading
        for partition_read in read.partitions:
            replace_new_errors(partition_read, self._terms.version)
            yield
        return read

    def _is_ready(self, read: FetchRead) -> bool:
        """Return whether the response can be built from `read` without a disk or a conversion."""
        return not read.is_cold and not needs_conversion(self._terms.version)

    async def _serve_when_memory_frees(self) -> R:
        """Serve the request once clients have read other responses, which use all memory for unsent responses now."""
        await self._memory_freed()
        read = await self._service.sliced_work.finished(self._read_warm())
        is_enough = read.is_cold or self._is_enough(read)
        if is_enough:
            return await self._respond_later(read)
        return await (await self._service.sliced_work.finished(self._respond_when_enough()))

    def _respond_later(self, read: FetchRead) -> asyncio.Future[R]:
        """Respond once the records are in memory and in the reader's format.

        The memory of the response counts from now on: hundreds of such requests may arrive before the first response is
        written.
        """
        unsent = self._service.unsent_responses
        limits = self._limits_now()
        size = read.size
        if read.is_cold:
            size = min(limits.bytes_max, sum(wanted.bytes_max for wanted in self._wanted.partitions.values()))
        if needs_conversion(self._terms.version):
            size *= 2  # the records as they are stored, and as they are sent
        size = max(size, 0)  # limits of a request may be negative
        unsent.reserve(size)
        responding = asyncio.ensure_future(self._respond_off_loop(read, limits))
        responding.add_done_callback(lambda _: unsent.release(size))
        return responding

    async def _respond_off_loop(self, read: FetchRead, limits: FetchLimits) -> R:
        service = self._service
        if read.is_cold:
            read = await service.in_thread(lambda: whole(self._read(limits, nowait=False)))
        if needs_conversion(self._terms.version):
            began_s = service.clock.monotonic_s()
            counts, left = await service.cpu_pool.run(lambda: self._convert(read.partitions, is_alone=False))
            if left:
                more, _ = await service.cpu_pool.run_alone(lambda: self._convert(left, is_alone=True))
                counts += more
            self._requester.count_conversion(service.clock.monotonic_s() - began_s, read.size)
            for partition, count in counts:
                partition.metrics.fetch_message_conversions += count
        return await service.sliced_work.finished(self._respond(read))

    def _is_enough(self, read: FetchRead) -> bool:
        return (
            self._terms.max_wait_ms <= 0
            or (not self._located and self._wanted.session is None)
            or read.has_news
            or read.size >= self._terms.bytes_min
        )

    def _respond_when_enough(self) -> Slices[Promise[R]]:
        """Park until enough bytes are available, a partition changes or `max_wait_ms` is over; then respond."""
        manager = self._service.manager
        promise: Promise[R] = Promise()
        self._waits.begin_wait(RECORDS, self._service.clock.monotonic_s())
        session = self._wanted.session
        deadline_ms = end_of_wait_ms(self._service.clock.monotonic_ms(), self._terms.max_wait_ms)
        if session is None:
            awaited = [self._awaited(wanted, found) for wanted, found, _ in self._located if found is not None]
            operation = DelayedFetch(
                awaited, self._terms.bytes_min, lambda: self._respond_with_available(promise), kind=self._fetcher_type
            )
            promise.on_cancel(lambda: manager.fetch_purgatory.abandon(operation))
            manager.await_bytes(operation, deadline_ms)
        else:
            yield from self._await_news(session, promise, deadline_ms)
        return promise

    def _await_news(self, session: FetchSession, promise: Promise[R], deadline_ms: int) -> Slices[None]:
        manager, sessions = self._service.manager, self._service.sessions
        operation = DelayedFetch(
            [],
            self._terms.bytes_min,
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
        _, found, _ = self._requester.locate(wanted)
        if found is not None:
            try:
                require_reader(found, self._limits.replica_id, wanted.current_leader_epoch)
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
        self, session: FetchSession, on_news: Callable[[FetchPartition], None], promise: Promise[R]
    ) -> None:
        """Respond to a fetch of a session that has waited."""
        _ignore_news(session, on_news)
        self._respond_with_available(promise)

    def _respond_with_available(self, promise: Promise[R]) -> None:
        self._waits.end_wait(self._service.clock.monotonic_s())
        try:
            if self._has_to_wait_for_memory:
                promise.follow(asyncio.ensure_future(self._respond_when_memory_frees()))
                return
            response = self._service.sliced_work.run(self._read_and_respond())
            if isinstance(response, Awaitable):
                promise.follow(asyncio.ensure_future(self._settled(response)))
            else:
                promise.set_result(response)
        except Exception as error:
            promise.set_exception(error)

    async def _respond_when_memory_frees(self) -> R:
        await self._memory_freed()
        return await self._settled(self._read_and_respond())

    async def _settled(self, outcome: object) -> R:
        return cast(R, await self._service.sliced_work.settled(outcome))

    async def _memory_freed(self) -> None:
        """Wait until other clients have read enough of their responses."""
        self._waits.begin_wait(RESPONSE_MEMORY, self._service.clock.monotonic_s())
        await self._service.unsent_responses.room()
        self._waits.end_wait(self._service.clock.monotonic_s())

    def _read_and_respond(self) -> Slices[R | Awaitable[R]]:
        """Read what is available now and respond with it."""
        if self._wanted.session is not None:
            yield from self._locate_all()
        read = yield from self._read_warm()
        return (yield from self._respond(read)) if self._is_ready(read) else self._respond_later(read)

    def _convert(
        self, reads: Sequence[PartitionRead], *, is_alone: bool
    ) -> tuple[list[tuple[Partition, int]], list[PartitionRead]]:
        """Convert the records of each partition.

        Returns the partitions with the number of converted records, and the reads that are left because they take a
        thread that others do not wait for: with `is_alone` none.
        """
        counts, left = [], []
        for read in reads:
            try:
                count = convert(read, self._terms.version, is_alone=is_alone)
            except OpensTooFar:
                left.append(read)
                continue
            if read.partition is not None and count:
                counts.append((read.partition, count))
        return counts, left

    def _respond(self, read: FetchRead) -> Slices[R]:
        """Return the response, and record in its session what it sends."""
        session = self._wanted.session
        if not self._requester.admits(read.size):
            return self._requester.empty_response(0 if session is None else session.id)
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
        session_id = 0 if session is None else session.id
        return (yield from self._requester.response(session_id, sent, has_errors=read.has_news))

    @property
    def _fetcher_type(self) -> FetcherType:
        return FetcherType.FOLLOWER if self._is_follower else FetcherType.CONSUMER

    def _count(self, reads: Iterable[PartitionRead]) -> Slices[None]:
        others, is_follower = self._service.manager.topic_metrics.others, self._is_follower
        for one in reads:
            metrics = others if one.partition is None else one.partition.metrics
            metrics.fetched(one.error_code, len(one.records), is_follower=is_follower)
            yield

    def _opened(self, reads: Iterable[PartitionRead]) -> Slices[FetchSession | None]:
        """Return the session that the request opens; None if it opens none."""
        session = self._service.sessions.open(
            self._wanted,
            is_follower=self._is_follower,
            uses_topic_ids=self._terms.uses_topic_ids,
            reader=(self._limits.replica_id, self._limits.read_committed),
            now_ms=self._service.clock.monotonic_ms(),
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
                self._service.sessions.settle(session, read.wanted)
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
            and (not self._is_follower or self._limits.replica_id in partition.leadership.isr)
        )


def _ignore_news(session: FetchSession, on_news: Callable[[FetchPartition], None]) -> None:
    if session.on_news is on_news:
        session.on_news = None


def _is_worth_sending(read: PartitionRead) -> bool:
    return read.wanted.is_worth_sending(
        has_records=len(read.records) > 0,
        # A follower whose log diverges truncates it, and applies nothing else.
        is_refused=bool(read.error_code) or read.diverging is not None,
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
    )
