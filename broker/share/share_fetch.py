"""One share fetch: reads the partitions of a session and acquires records for its member, at once or after a wait.

Owns the order of its steps, and how many records it takes from which partition. Must not know the layout of requests
and responses, permissions or quotas.

    memory free? -> read -> acquire -> any? -> respond
         ^                              |
         +------ wait for records ------+

Between a read and what follows from it other members may acquire the same records; what is left is acquired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from base.clock import Clock
from base.pause import InThread, Pause, never, whole
from broker.loop.promise import Promise
from broker.loop.waits import Waiting
from broker.network.unsent_responses import UnsentResponses
from broker.replica.delayed_fetch import end_of_wait_ms
from broker.replica.fetch_service import RECORDS, RESPONSE_MEMORY
from broker.replica.fetch_sessions import FetchPartition, PartitionKey
from broker.replica.manager import ReplicaManager
from broker.replica.reader import FetchLimits, FetchRead, Located, PartitionRead, read_partitions
from broker.share.delayed_share_fetch import DelayedShareFetch, end_of
from broker.share.machine.deliveries import Acquired, ReadBatch
from broker.share.shared_partition import SharedPartition, SharedPartitions
from protocol.errors import ErrorCode
from protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION, read_header
from protocol.records.legacy import LEGACY_MAGICS, entry_size, read_message_header

READ_SIZE_MAX = 1 << 20
"""Bytes that are read of one partition at once: a member takes some hundred records, and the rest is read again."""
ROUNDS_MAX = 100
"""How often a fetch finds nothing where there seemed to be records before it responds with nothing."""


class ShareFetchTerms(NamedTuple):
    """What a request says of all its partitions."""

    member_id: str
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    count_max: int


class AcquiredRecords(NamedTuple):
    """What a member gets of one partition."""

    shared: SharedPartition
    error_code: ErrorCode
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
        self, partitions: Sequence[SharedPartition], terms: ShareFetchTerms, waits: Waiting
    ) -> list[AcquiredRecords]:
        """Return what the member gets, with partitions that cannot be read; nothing if `max_wait_ms` is over.

        All partitions are of one group.
        """
        if not partitions:
            return []
        deadline_ms = end_of_wait_ms(self._clock.monotonic_ms(), max(terms.max_wait_ms, 0))
        for _ in range(ROUNDS_MAX):
            await self._memory(waits)
            read = await self._read(partitions, terms)
            is_over = self._clock.monotonic_ms() >= deadline_ms or terms.max_wait_ms <= 0
            if is_over or read.has_news or read.size >= terms.bytes_min:
                found = await self._acquire(partitions, read, terms)
                if found or is_over:
                    return found
            del read  # what is not sent must not stay in memory during the wait
            await self._wait(partitions, deadline_ms, waits)
        return []

    async def _memory(self, waits: Waiting) -> None:
        """Wait until other clients have read enough of their responses."""
        if self._unsent.is_full:
            waits.begin_wait(RESPONSE_MEMORY, self._clock.monotonic_s())
            await self._unsent.room()
            waits.end_wait(self._clock.monotonic_s())

    async def _wait(self, partitions: Sequence[SharedPartition], deadline_ms: int, waits: Waiting) -> None:
        terms = self._shared.terms(partitions[0].key.group_id)
        ready: Promise[None] = Promise()
        operation = DelayedShareFetch(
            partitions, terms.limits, lambda: ready.set_result(None), read_committed=terms.read_committed
        )
        purgatory = self._manager.fetch_purgatory
        ready.on_cancel(lambda: purgatory.abandon(operation))
        waits.begin_wait(RECORDS, self._clock.monotonic_s())
        purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)
        await ready
        waits.end_wait(self._clock.monotonic_s())

    async def _read(self, partitions: Sequence[SharedPartition], terms: ShareFetchTerms) -> FetchRead:
        group = self._shared.terms(partitions[0].key.group_id)
        located: list[Located] = []
        for shared in partitions:
            await self._pause()
            if not shared.is_current:
                located.append((_wanted(shared, 0), None, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            shared.deliveries.move_to(shared.partition.log.log_start_offset)
            offset = shared.deliveries.next_offset(group.limits)
            if offset is not None and offset < end_of(shared, read_committed=group.read_committed):
                located.append((_wanted(shared, offset), shared.partition, ErrorCode.NONE))
        limits = FetchLimits(
            max(min(terms.bytes_max, self._unsent.allowance), 0), group.read_committed, is_first_batch_whole=True
        )
        read = await read_partitions(located, limits, self._pause, nowait=True)
        if read.is_cold:
            read = await self._in_thread(lambda: whole(read_partitions(located, limits, never, nowait=False)))
        return read

    async def _acquire(
        self, partitions: Sequence[SharedPartition], read: FetchRead, terms: ShareFetchTerms
    ) -> list[AcquiredRecords]:
        by_key = {_key(shared): shared for shared in partitions}
        group = self._shared.terms(partitions[0].key.group_id)
        left, found = max(terms.count_max, 1), list[AcquiredRecords]()
        for one in read.partitions:
            await self._pause()
            shared = by_key[one.wanted.key]
            if one.error_code:
                found.append(AcquiredRecords(shared, one.error_code, b"", ()))
                continue
            if not shared.is_current or left <= 0:
                continue
            parts = list(_batches(one))
            if not parts:
                if not read.size and not one.is_cold:
                    # Every partition could have got a batch: the cleaner has removed all from here to the end.
                    end = one.last_stable_offset if group.read_committed else one.high_watermark
                    shared.deliveries.archive(one.wanted.fetch_offset, end - 1)
                continue
            offset, now_ms = one.wanted.fetch_offset, self._clock.monotonic_ms()
            batches = [each.batch for each in parts]
            acquired = shared.deliveries.acquire(terms.member_id, offset, batches, left, group.limits, now_ms)
            if acquired:
                left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
                self._shared.arm(shared)
                found.append(AcquiredRecords(shared, ErrorCode.NONE, _cut(one, parts, acquired), acquired))
        return found


class _Part(NamedTuple):
    """A batch that was read, and where it is."""

    batch: ReadBatch
    position: int
    end: int


def _key(shared: SharedPartition) -> PartitionKey:
    return shared.key.topic_id, shared.key.partition


def _wanted(shared: SharedPartition, offset: int) -> FetchPartition:
    partition = shared.partition
    return FetchPartition(
        _key(shared), partition.topic, shared.key.topic_id, partition.partition, offset, READ_SIZE_MAX
    )


def _batches(read: PartitionRead) -> Iterator[_Part]:
    """Yield the whole batches of what was read. Markers, and batches of aborted transactions, have no records."""
    aborted = sorted((each.first_offset, each.producer_id) for each in read.aborted_transactions or ())
    open_aborted: set[int] = set()
    data, position, covered = read.records, 0, read.wanted.fetch_offset
    while position + HEADER_SIZE <= len(data) or position + LOG_OVERHEAD < len(data):
        if data[position + MAGIC_POSITION] in LEGACY_MAGICS:
            size = entry_size(data, position)
            if size is None or position + size > len(data):
                return
            last = read_message_header(data, position).offset
            yield _Part(ReadBatch(min(covered, last), last), position, position + size)
        elif data[position + MAGIC_POSITION] != MAGIC or position + HEADER_SIZE > len(data):
            return
        else:
            header = read_header(data, position)
            size, last = header.size, header.last_offset
            if position + size > len(data):
                return
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
    """Return the batches from the first to the last with records that were acquired."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    needed = [part for part in parts if part.batch.last_offset >= first and part.batch.first_offset <= last]
    return memoryview(read.records)[needed[0].position : needed[-1].end]
