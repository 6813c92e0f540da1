"""Fetch service: reads the partitions of a fetch, synchronously or once enough bytes are available.

Owns the order of the steps of one fetch: resolve its session, wait for memory, read what the page cache holds, wait for
more bytes, read from the disk and convert in threads, and record in the session what is sent. Must not know the layout
of requests and responses, permissions or quotas: the handler binds the partitions and packs what was read.

    session -> locate -> memory free? -> warm read -> enough? -> read
                             |                          |
                             wait for slow readers      park until bytes, news or max_wait_ms

A fetch that waits for records holds none. Records in memory count as unsent before the fetch pauses or waits for a
thread, because other fetches begin meanwhile; those that come from a disk count before they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from base.clock import Clock
from base.pause import InThread, Pause, each, never, whole
from broker.loop.cpu_pool import CpuPool
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from broker.loop.waits import Converting
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
    uncounted,
)
from broker.replica.throttles import FollowerBudget
from protocol.errors import KafkaError
from protocol.records.compression import OpensTooFar

if TYPE_CHECKING:
    from broker.replica.near_reads import NearReads

RECORDS, RESPONSE_MEMORY = "records", "response memory"  # what a fetch waits for
NO_BROKER_EPOCH = -1
CONVERTED_COPIES = 2
"""Records that are converted are in memory as they are stored and as they are sent."""


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
    prefer: Callable[[Partition, int], int | None] | None = None
    """Chooses near replicas for the consumer: `prefer` of `read_partitions`."""


Locate = Callable[[FetchPartition], Located]
"""Returns the hosted partition, or the error code that says why the client cannot read it."""


class FetchService:
    """Serves the fetches of consumers and followers; it holds the parts of the broker that they use."""

    __slots__ = (
        "clock",
        "cpu_pool",
        "in_thread",
        "manager",
        "near_reads",
        "sessions",
        "sliced_work",
        "unsent_responses",
    )

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
        near_reads: NearReads | None,
    ) -> None:
        """`in_thread(work)` runs `work`, which may wait for a disk, in a thread. None: consumers stay at the leader."""
        self.manager = manager
        self.sessions = sessions
        self.unsent_responses = unsent_responses
        self.sliced_work = sliced_work
        self.cpu_pool = cpu_pool
        self.clock = clock
        self.in_thread = in_thread
        self.near_reads = near_reads


class Fetch:
    """One fetch: `read`, then `sent` if the client may have what was read."""

    __slots__ = (
        "_copies",
        "_is_converted",
        "_is_follower",
        "_limits",
        "_locate",
        "_located",
        "_service",
        "_terms",
        "_waits",
        "_wanted",
        "pause",
        "reserved_size",
    )

    def __init__(self, service: FetchService, terms: ReadTerms, locate: Locate, waits: Converting) -> None:
        """`waits` records the waits for records and memory, and conversions."""
        self._service = service
        self._terms = terms
        self._locate = locate
        self._waits = waits
        self.pause = service.sliced_work.pause
        """Awaited after each partition; `never` once one or none is located."""
        self._limits = terms.limits
        self._is_follower = terms.limits.replica_id > CONSUMER
        self._is_converted = needs_conversion(terms.version, terms.limits.replica_id)
        self._copies = CONVERTED_COPIES if self._is_converted else 1
        self.reserved_size = 0
        """Bytes of memory for unsent responses that `release` has to give back."""
        self._wanted: FetchContext
        self._located: list[Located] = []

    @property
    def session_id(self) -> int:
        """The id of the session that the fetch belongs to, 0 without one."""
        session = self._wanted.session
        return 0 if session is None else session.id

    async def read(self, named: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> FetchRead:
        """Read the partitions once enough bytes are available, a partition has news or `max_wait_ms` is over.

        `named` and `forgotten` are the partitions that the request names and removes from its session.

        Raises KafkaError: the session id or epoch of the request is invalid.
        """
        terms, limits = self._terms, self._limits
        self._wanted = await self._service.sessions.context(
            terms.session_id,
            terms.session_epoch,
            named,
            forgotten,
            self.pause,
            uses_topic_ids=terms.uses_topic_ids,
            reader=(limits.replica_id, limits.read_committed),
            now_ms=self._service.clock.monotonic_ms(),
        )
        if self._wanted.partitions:
            await self._locate_all()
        if self._has_to_wait_for_memory:
            await self._memory_freed()
        # Only at its arrival does a fetch prove how far its follower is: later that may be another incarnation.
        read = await self._read_warm(self._note_fetched if self._is_follower else None)
        if not read.is_cold and not self._is_enough(read):
            del read  # the records that a fetch does not wait for must not stay in memory
            self.release()
            await self._enough()
            read = await self._service.sliced_work.anew(self._read_available())
        if read.is_cold or self._is_converted:
            read = await self._read_off_loop(read)
        return read

    async def _read_available(self) -> FetchRead:
        """Read what is available after a wait."""
        if self._has_to_wait_for_memory:
            await self._memory_freed()
        if self._wanted.session is not None:
            await self._locate_all()
        return await self._read_warm()

    async def _locate_all(self) -> None:
        """Locate the partitions to read: those of a session with news are others after a wait."""
        wanted = self._wanted.partitions.values()
        if len(wanted) > 1:
            self.pause = self._service.sliced_work.pause
            self._located = await each(list(wanted), self._locate, self.pause)
        else:
            self.pause = never
            self._located = list(map(self._locate, wanted))

    async def _read_warm(self, on_fetched: Callable[[Partition, FetchPartition], None] | None = None) -> FetchRead:
        """Read what the page cache holds, without blocking. `on_fetched` as in `read_partitions`.

        What is in memory is counted, but for followers, and for a partition whose response is complete in this step.
        """
        if self._is_follower or (self.pause is never and not self._is_converted):
            return await self._read(self._limits_now(), self.pause, nowait=True, on_fetched=on_fetched)
        read = await self._read(
            self._limits_now(), self.pause, nowait=True, on_fetched=on_fetched, count=self._count_in_memory
        )
        if read.size_in_memory:
            self._reserve(read.size_in_memory)
        return read

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
        unsent = self._service.unsent_responses
        allowance = unsent.allowance_with(self.reserved_size) if self.reserved_size else unsent.allowance
        if self._is_follower:
            allowance = max(allowance, ALLOWANCE_MIN)
        allowance //= self._copies
        if allowance < limits.bytes_max and limits.is_first_batch_whole:
            limits = limits._replace(bytes_max=allowance)  # the first batch is whole, so every reader progresses
        return limits

    async def _read(
        self,
        limits: FetchLimits,
        pause: Pause,
        *,
        nowait: bool,
        on_fetched: Callable[[Partition, FetchPartition], None] | None = None,
        count: Callable[[int], int] = uncounted,
    ) -> FetchRead:
        read = await read_partitions(
            self._located,
            limits,
            pause,
            nowait=nowait,
            on_fetched=on_fetched,
            prefer=self._terms.prefer,
            budget=self._budget() if self._is_follower else None,
            count=count,
        )
        if self._terms.version < FIRST_VERSION_WITH_ZSTD and not self._is_follower:
            for partition_read in read.partitions:
                replace_new_errors(partition_read, self._terms.version)
                await pause()
        return read

    async def _read_off_loop(self, read: FetchRead) -> FetchRead:
        """Return the read with all records in memory and in the reader's format."""
        if read.is_cold:
            limits = self._limits_now()
            self._reserve(self._size_wanted(limits))
            read = await self._service.in_thread(lambda: whole(self._read(limits, never, nowait=False)))
            self._reserve(read.size)
        if self._is_converted:
            await self._convert_all(read)
        return read

    def _size_wanted(self, limits: FetchLimits) -> int:
        """Return how many bytes a read has, if no batch is larger than the limits, some of which may be negative."""
        wanted = sum(max(0, one.bytes_max) for one, partition, _ in self._located if partition is not None)
        return max(0, min(limits.bytes_max, wanted))

    def _count_in_memory(self, size: int) -> int:
        """Count `size` bytes of records; return how many may be read after them: a `count` of `read_partitions`."""
        self._reserve(size)
        if not self._limits.is_first_batch_whole:
            return self._limits.bytes_max
        allowance = self._service.unsent_responses.allowance_with(self.reserved_size)
        return max(0, allowance - self.reserved_size) // self._copies

    def _reserve(self, size: int) -> None:
        """Count the memory for `size` bytes of records until `release`, instead of what counts now."""
        reserved = size * self._copies
        more, self.reserved_size = reserved - self.reserved_size, reserved
        if more >= 0:
            self._service.unsent_responses.reserve(more)
        else:
            self._service.unsent_responses.release(-more)

    def release(self) -> int:
        """Give back the memory that the response was to take: it is complete, and counts itself when it is sent.

        Returns the number of bytes.
        """
        size, self.reserved_size = self.reserved_size, 0
        if size:
            self._service.unsent_responses.release(size)
        return size

    async def _convert_all(self, read: FetchRead) -> None:
        service = self._service
        began_s = service.clock.monotonic_s()
        counts, left = await service.cpu_pool.run(lambda: self._convert(read.partitions, is_alone=False))
        if left:
            more, _ = await service.cpu_pool.run_alone(lambda: self._convert(left, is_alone=True))
            counts += more
        self._waits.count_conversion(service.clock.monotonic_s() - began_s, read.size)
        for partition, count in counts:
            partition.metrics.fetch_message_conversions += count

    def _is_enough(self, read: FetchRead) -> bool:
        return (
            self._terms.max_wait_ms <= 0
            or (not self._located and self._wanted.session is None)
            or read.is_urgent
            or read.size >= self._terms.bytes_min
        )

    async def _enough(self) -> None:
        """Wait until enough bytes are available, a partition changes or `max_wait_ms` is over."""
        manager = self._service.manager
        enough: Promise[None] = Promise()
        self._waits.begin_wait(RECORDS, self._service.clock.monotonic_s())
        session = self._wanted.session
        deadline_ms = end_of_wait_ms(self._service.clock.monotonic_ms(), self._terms.max_wait_ms)
        if session is None:
            awaited = [self._awaited(wanted, found) for wanted, found, _ in self._located if found is not None]
            operation = DelayedFetch(
                awaited, self._terms.bytes_min, lambda: enough.set_result(None), kind=self._fetcher_type
            )
            enough.on_cancel(lambda: manager.fetch_purgatory.abandon(operation))
            manager.await_bytes(operation, deadline_ms)
            await enough
        else:
            await self._enough_news(session, enough, deadline_ms)
        self._waits.end_wait(self._service.clock.monotonic_s())

    async def _enough_news(self, session: FetchSession, enough: Promise[None], deadline_ms: int) -> None:
        manager, sessions = self._service.manager, self._service.sessions

        def complete() -> None:
            session.ignore_news(on_news)
            enough.set_result(None)

        operation = DelayedFetch([], self._terms.bytes_min, complete, may_grow=True, kind=self._fetcher_type)

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

        session.follow_news(on_news)
        manager.await_news(operation, deadline_ms)
        try:
            # Includes the partitions that have changed since this request was read.
            for wanted in list(session.news.values()):
                if operation.is_completed:
                    break
                on_news(wanted)
                await self._service.sliced_work.pause()  # there may be many by now
            await enough
        except asyncio.CancelledError:
            session.ignore_news(on_news)
            manager.fetch_purgatory.abandon(operation)
            raise

    def _readable(self, wanted: FetchPartition) -> Partition | None:
        """Return the partition, or None if the response must carry an error for it."""
        _, found, _ = self._locate(wanted)
        if found is not None:
            try:
                require_reader(found, self._limits, wanted.current_leader_epoch)
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
            None if (budget := self._budget()) is None else budget.withholds,
            self._limits.reads_followers,
        )

    def _budget(self) -> FollowerBudget | None:
        """Return what throttled partitions may take; None for a consumer, and without a throttle."""
        throttle = self._service.manager.throttles.leader
        return FollowerBudget(throttle, self._limits.replica_id) if self._is_follower and throttle.is_limited else None

    def _known_high_watermark(self, wanted: FetchPartition, partition: Partition) -> int | None:
        """Return the high watermark last sent to this follower, or the present one without a session.

        Returns None for consumers.
        """
        if not self._is_follower:
            return None
        return partition.log.high_watermark if self._wanted.session is None else wanted.sent_high_watermark

    async def _memory_freed(self) -> None:
        """Wait until other clients have read enough of their responses."""
        self._waits.begin_wait(RESPONSE_MEMORY, self._service.clock.monotonic_s())
        await self._service.unsent_responses.room()
        self._waits.end_wait(self._service.clock.monotonic_s())

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

    async def sent(self, read: FetchRead) -> Sequence[PartitionRead]:
        """Return what the response sends of `read`, and record it in its session, which may be opened by it."""
        session = self._wanted.session
        sent = reads = read.partitions
        if reads:
            await self._count(reads)
        if session is None:
            if self._wanted.wants_session:
                session = self._wanted.session = await self._opened(sent)
        elif reads:
            sent = []
            for each_read in reads:
                if each_read.wanted.session is session and _note_sent_of(each_read):
                    sent.append(each_read)
                await self.pause()
        if session is not None and reads:
            await self._note_sent(session, reads)
        return sent

    @property
    def _fetcher_type(self) -> FetcherType:
        return FetcherType.FOLLOWER if self._is_follower else FetcherType.CONSUMER

    async def _count(self, reads: Iterable[PartitionRead]) -> None:
        manager, is_follower = self._service.manager, self._is_follower
        others, throttle = manager.topic_metrics.others, manager.throttles.leader
        for one in reads:
            metrics = others if one.partition is None else one.partition.metrics
            metrics.fetched(one.error_code, len(one.records), is_follower=is_follower)
            if is_follower and one.partition is not None:
                throttle.sent(one.partition, self._limits.replica_id, len(one.records))
            await self.pause()

    async def _opened(self, reads: Iterable[PartitionRead]) -> FetchSession | None:
        """Return the session that the request wants to open; None if there is no room for it."""
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
                _note_sent_of(read)
                await self.pause()
        return session

    async def _note_sent(self, session: FetchSession, reads: Iterable[PartitionRead]) -> None:
        """Record what is sent. Partitions whose client is up to date are not read again before they change."""
        for read in reads:
            if len(read.records):
                session.served(read.wanted)
            elif read.wanted.session is session and self._is_settled(read):
                self._service.sessions.settle(session, read.wanted)
            await self.pause()

    def _is_settled(self, read: PartitionRead) -> bool:
        """Return whether the client is up to date with the present state, which may be newer than `read`.

        A follower outside of the ISR is never settled: only a fetch lets it join the ISR, and this one may have come
        while another change of the ISR was in flight.
        """
        wanted, partition = read.wanted, read.partition
        return (
            partition is not None
            and not read.is_urgent
            and (partition.is_leader or self._limits.reads_followers)
            and wanted.current_leader_epoch in (NO_EPOCH, partition.leader_epoch)
            and partition.readable_end_offset(self._limits.isolation) <= wanted.fetch_offset
            and partition.log.high_watermark == wanted.sent_high_watermark
            and partition.log.log_start_offset == wanted.sent_log_start_offset
            and (not self._is_follower or self._limits.replica_id in partition.leadership.isr)
        )


def _note_sent_of(read: PartitionRead) -> bool:
    return read.wanted.note_sent(
        has_records=len(read.records) > 0,
        # A follower whose log diverges truncates it, and applies nothing else.
        is_urgent=read.is_urgent,
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
    )
