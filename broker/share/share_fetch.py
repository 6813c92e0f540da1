"""One share fetch: reads the partitions of a session and acquires records for its member, at once or after a wait.

Owns the order of its steps, and how many records it takes from which partition. Must not know the layout of requests
and responses, permissions or quotas.

    memory free? -> read a partition -> acquire -> enough? -> respond
         ^               ^                            |
         |               +-- the next partition ------+
         +---------- wait, if there is nothing -------+

A session may end while its fetch waits or reads: then nothing is acquired for it any more. What a read may take, and
then what the member gets, counts as memory of unsent responses until the caller gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from base.clock import Clock
from base.pause import InThread, Pause, never, whole
from broker.loop.promise import Promise
from broker.loop.purgatory import nothing
from broker.loop.waits import Waiting
from broker.network.unsent_responses import UnsentResponses
from broker.replica.delayed_fetch import end_of_wait_ms
from broker.replica.fetch_service import RECORDS, RESPONSE_MEMORY
from broker.replica.fetch_sessions import FetchPartition
from broker.replica.manager import ReplicaManager
from broker.replica.reader import FetchLimits, Located, PartitionRead, read_partitions
from broker.share.delayed_share_fetch import DelayedShareFetch, end_of
from broker.share.machine.deliveries import Acquired, ReadBatch
from broker.share.machine.sessions import Place, ShareSession
from broker.share.shared_partition import SharedPartition, SharedPartitions
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import MAGIC, MAGIC_POSITION, read_header
from protocol.records.legacy import LEGACY_MAGICS, entry_size, read_message_header

READ_SIZE_MAX = 1 << 20
"""Bytes that are read of one partition at once: a member takes some hundred records, and the rest is read again."""
ROUNDS_MAX = 10
"""How often a fetch finds nothing where there seemed to be records before it responds with nothing. A round in which
partitions were loaded does not count."""


class ShareFetchTerms(NamedTuple):
    """What a request says of all its partitions."""

    session: ShareSession
    """Owns what is acquired."""
    max_wait_ms: int
    bytes_max: int
    count_max: int
    batch_size: int
    """From how many records on a batch of acquired records ends."""


class AcquiredRecords(NamedTuple):
    """What a member gets of one partition."""

    place: Place
    error: KafkaError | None
    records: memoryview | bytes
    """Whole batches. Some of their records may not be acquired."""
    acquired: Sequence[Acquired]


class ShareFetchService:
    """The parts of the broker that share fetches use."""

    def __init__(
        self,
        shared: SharedPartitions,
        manager: ReplicaManager,
        unsent_responses: UnsentResponses,
        clock: Clock,
        pause: Pause,
        in_thread: InThread,
    ) -> None:
        self._shared = shared
        self._manager = manager
        self._unsent = unsent_responses
        self._clock = clock
        self._pause = pause
        self._in_thread = in_thread

    async def fetch(
        self, loads: Mapping[Place, Promise[SharedPartition]], terms: ShareFetchTerms, waits: Waiting
    ) -> list[AcquiredRecords]:
        """Return what the member gets, with partitions that cannot be read; nothing if `max_wait_ms` is over.

        It gets what there is: no number of bytes is waited for, and no partition that is still being loaded if others
        have records. Nothing, too, if a partition has to be loaded again: the caller does that for the next fetch. All
        partitions are of one group. What it gets is to be given back by `release`.
        """
        if not loads:
            return []
        loading = _Loading(loads)
        partitions: list[SharedPartition] = []
        deadline_ms = end_of_wait_ms(self._clock.monotonic_ms(), max(terms.max_wait_ms, 0))
        rounds_left = ROUNDS_MAX
        while rounds_left:
            await self._memory(waits)
            count_before = len(partitions)
            found = await loading.ended(partitions, self._pause)
            if len(partitions) == count_before:
                rounds_left -= 1
            found += await self._acquired(partitions, terms)
            is_over = self._clock.monotonic_ms() >= deadline_ms or terms.max_wait_ms <= 0
            if found or is_over or not terms.session.is_open or await self._must_load_again(partitions):
                return found
            await self._wait(partitions, loading, terms.session.group_id, deadline_ms, waits)
        return []

    def release(self, found: Iterable[AcquiredRecords]) -> int:
        """Give back the memory of what a member gets: its response is complete, and counts itself when it is sent.

        Returns the number of bytes.
        """
        size = sum(len(one.records) for one in found)
        self._unsent.release(size)
        return size

    async def _memory(self, waits: Waiting) -> None:
        """Wait until other clients have read enough of their responses."""
        if self._unsent.is_full:
            waits.begin_wait(RESPONSE_MEMORY, self._clock.monotonic_s())
            await self._unsent.room()
            waits.end_wait(self._clock.monotonic_s())

    async def _must_load_again(self, partitions: Iterable[SharedPartition]) -> bool:
        """Return whether one of the partitions has to be loaded again."""
        for shared in partitions:
            if shared.awaits_load:
                return True
            await self._pause()
        return False

    async def _wait(
        self,
        partitions: Sequence[SharedPartition],
        loading: _Loading,
        group_id: str,
        deadline_ms: int,
        waits: Waiting,
    ) -> None:
        """Wait for records, or until a partition is loaded."""
        terms = self._shared.terms(group_id)
        ready: Promise[None] = Promise()
        operation = DelayedShareFetch(terms.limits, lambda: ready.set_result(None), read_committed=terms.read_committed)
        purgatory = self._manager.fetch_purgatory
        waits.begin_wait(RECORDS, self._clock.monotonic_s())
        purgatory.try_complete_else_watch(operation, (), deadline_ms)
        loading.when_one_ends(lambda: purgatory.force_one(operation))
        try:
            for shared in partitions:
                if operation.is_completed:
                    break
                for key in operation.await_also(shared):
                    purgatory.watch_also(operation, key)
                purgatory.try_one(operation, shared.key)  # it may have changed since it was read
                await self._pause()
            await ready
        finally:
            purgatory.abandon(operation)  # if the client has left
        waits.end_wait(self._clock.monotonic_s())

    async def _acquired(self, partitions: Sequence[SharedPartition], terms: ShareFetchTerms) -> list[AcquiredRecords]:
        """Return what was read and acquired, with partitions that cannot be read."""
        found: list[AcquiredRecords] = []
        try:
            await self._acquire_into(found, partitions, terms)
        except BaseException:
            self.release(found)
            raise
        return found

    async def _acquire_into(
        self, found: list[AcquiredRecords], partitions: Sequence[SharedPartition], terms: ShareFetchTerms
    ) -> None:
        """Read one partition after the other until there is enough, and acquire what was read."""
        count_left, bytes_left = max(terms.count_max, 1), terms.bytes_max
        for shared in partitions:
            await self._pause()
            if not shared.is_led:
                found.append(_unreadable(shared.key.place, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
                continue
            if not shared.is_current:
                continue  # its state is read again for the next fetch
            read = await self._read(shared, bytes_left)
            if not _may_acquire(shared, terms.session) or (read is not None and read.is_cold):
                continue
            one = None if read is None else self._acquire(shared, read, terms, count_left)
            if one is None:
                self._shared.store_start(shared)
            else:
                found.append(one)
                self._unsent.reserve(len(one.records))
                bytes_left -= len(one.records)
                count_left -= sum(each.last_offset - each.first_offset + 1 for each in one.acquired)
                if count_left <= 0 or bytes_left <= 0 or self._unsent.is_full:
                    break

    async def _read(self, shared: SharedPartition, bytes_max: int) -> PartitionRead | None:
        """Read a partition from the first record that may be acquired, at least one whole batch; None if there is none.

        The log may change during the read: then it has an error, which the next one does not have.
        """
        group = self._shared.terms(shared.key.group_id)
        shared.deliveries.move_to(shared.partition.log.log_start_offset)
        offset = shared.deliveries.next_offset(group.limits)
        if offset is None or offset >= end_of(shared, read_committed=group.read_committed):
            return None
        partition = shared.partition
        place = shared.key.topic_id, shared.key.partition
        size_max = max(0, min(bytes_max, self._unsent.allowance, READ_SIZE_MAX))
        wanted = FetchPartition(place, partition.topic, shared.key.topic_id, partition.partition, offset, size_max)
        located: list[Located] = [(wanted, partition, ErrorCode.NONE)]
        limits = FetchLimits(READ_SIZE_MAX, group.read_committed, is_first_batch_whole=True)
        self._unsent.reserve(size_max)
        try:
            read = await read_partitions(located, limits, self._pause, nowait=True)
            if read.is_cold:
                read = await self._in_thread(lambda: whole(read_partitions(located, limits, never, nowait=False)))
        finally:
            self._unsent.release(size_max)
        (one,) = read.partitions
        return None if one.error_code else one

    def _acquire(
        self, shared: SharedPartition, read: PartitionRead, terms: ShareFetchTerms, count_max: int
    ) -> AcquiredRecords | None:
        """Acquire what was read. Other members may have acquired some of it since; what is left is acquired."""
        group, offset = self._shared.terms(shared.key.group_id), read.wanted.fetch_offset
        parts = list(_batches(read))
        if not parts:
            if not len(read.records):
                # A whole batch would have been read, whatever its size: the cleaner has removed all up to the end.
                end = read.last_stable_offset if group.read_committed else read.high_watermark
                shared.deliveries.archive(offset, end - 1)
            return None
        batches, now_ms = [part.batch for part in parts], self._clock.monotonic_ms()
        acquired = shared.deliveries.acquire(terms.session, offset, batches, count_max, group.limits, now_ms)
        if not acquired:
            return None
        self._shared.arm(shared)
        return AcquiredRecords(shared.key.place, None, _cut(read, parts, acquired), _joined(acquired, terms.batch_size))


class _Loading:
    """The partitions that one fetch waits for, until they are loaded."""

    def __init__(self, loads: Mapping[Place, Promise[SharedPartition]]) -> None:
        self._loads = dict(loads)
        self._on_end: Callable[[], object] = nothing
        for each in loads.values():
            if not each.done():
                each.add_done_callback(lambda _: self._on_end())

    async def ended(self, partitions: list[SharedPartition], pause: Pause) -> list[AcquiredRecords]:
        """Add what is loaded to `partitions`; return what could not be loaded."""
        self._on_end = nothing
        failed = []
        for place, load in list(self._loads.items()):
            if load.done():
                del self._loads[place]
                try:
                    partitions.append(load.result())
                except KafkaError as error:
                    failed.append(_unreadable(place, error))
            await pause()
        return failed

    def when_one_ends(self, wake: Callable[[], object]) -> None:
        """Call `wake` when the next load ends, now if one has ended already."""
        self._on_end = wake
        if any(each.done() for each in self._loads.values()):
            wake()


def _unreadable(place: Place, error: KafkaError) -> AcquiredRecords:
    return AcquiredRecords(place, error, b"", ())


def _may_acquire(shared: SharedPartition, session: ShareSession) -> bool:
    return shared.is_current and session.is_open


class _Part(NamedTuple):
    """A batch that was read, and where it is."""

    batch: ReadBatch
    position: int
    end: int


def _batches(read: PartitionRead) -> Iterator[_Part]:
    """Yield the whole batches of what was read. Markers, and batches of aborted transactions, have no records."""
    aborted = sorted((each.first_offset, each.producer_id) for each in read.aborted_transactions or ())
    open_aborted: set[int] = set()
    data, position, covered = read.records, 0, read.wanted.fetch_offset
    while (size := entry_size(data, position)) is not None:
        if data[position + MAGIC_POSITION] in LEGACY_MAGICS:
            last = read_message_header(data, position).offset
            yield _Part(ReadBatch(min(covered, last), last), position, position + size)
        elif data[position + MAGIC_POSITION] != MAGIC:
            return
        else:
            header = read_header(data, position)
            last = header.last_offset
            while aborted and aborted[0][0] <= last:
                open_aborted.add(aborted.pop(0)[1])
            is_aborted = header.is_transactional and header.producer_id in open_aborted
            if header.is_control:
                open_aborted.discard(header.producer_id)
            has_records = not header.is_control and not is_aborted
            yield _Part(ReadBatch(header.base_offset, last, has_records), position, position + size)
        covered = last + 1
        position += size


def _cut(read: PartitionRead, parts: Sequence[_Part], acquired: Sequence[Acquired]) -> memoryview:
    """Return the batches from the first to the last with records that were acquired.

    They are copied unless they are most of what was read: else a few records would keep all of it in memory.
    """
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    needed = [part for part in parts if part.batch.last_offset >= first and part.batch.first_offset <= last]
    batches = memoryview(read.records)[needed[0].position : needed[-1].end]
    return batches if 2 * len(batches) >= len(read.records) else memoryview(bytes(batches))


def _joined(acquired: Iterable[Acquired], batch_size: int) -> list[Acquired]:
    """Join what follows each other, so that members learn and acknowledge a few ranges instead of many batches."""
    joined: list[Acquired] = []
    for first, last, count in acquired:
        before = joined[-1] if joined else None
        follows = before is not None and (before.last_offset + 1, before.delivery_count) == (first, count)
        if before is not None and follows and first - before.first_offset < batch_size:
            joined[-1] = before._replace(last_offset=last)
        else:
            joined.append(Acquired(first, last, count))
    return joined
