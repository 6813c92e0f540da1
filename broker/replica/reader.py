"""Reads the partitions of one fetch within its limits.

Owns: how a request's byte budget is spent over its partitions, and which error each gets. Must not know: sessions,
response layouts or waiting.

The first read uses only the page cache, because a disk must never block the event loop. Partitions whose bytes are on
disk are marked (`PartitionRead.is_cold`), and the caller reads them again in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, cast

from base.dataclass import dataclass
from base.file_slice import FileSlice
from base.pause import AT_ONCE, Pause
from broker.replica.fetch_sessions import FetchPartition
from broker.replica.partition import NO_EPOCH, FetchIsolation, Partition
from broker.replica.throttles import UNLIMITED, FollowerBudget
from protocol.errors import ErrorCode, KafkaError
from storage.log.segment_reader import Wanted

if TYPE_CHECKING:
    from storage.segments.transaction_index import AbortedTransaction

NO_PREFERENCE = -1

CONSUMER = -1
"""The replica id of consumers. Lower ids are of tools that read any replica, and as little as consumers; higher ids are
of followers."""

Buffer = bytes | bytearray | memoryview


Located = tuple[FetchPartition, Partition | None, ErrorCode]
"""What a request wants of a partition, and the hosted partition, or None and the error code that says why not."""


class FetchLimits(NamedTuple):
    """The byte budget of one request, and how far its client may read."""

    bytes_max: int
    read_committed: bool
    is_first_batch_whole: bool
    """The first batch of the first non-empty partition is returned whole, even above the limits (version 3 and up).

    That of another partition is returned whole or not at all: clients take a part of it for damage.
    """
    replica_id: int = CONSUMER
    """The reader's id: followers read up to the log end offset, all others committed records."""
    may_slice: bool = False
    """Whether records may be returned as a slice of their file, because this broker does not inspect them."""
    reads_followers: bool = False
    """Whether the reader is a consumer that may read from any replica (KIP-392)."""

    @property
    def isolation(self) -> FetchIsolation:
        if self.replica_id > CONSUMER:
            return FetchIsolation.LOG_END
        return FetchIsolation.LAST_STABLE_OFFSET if self.read_committed else FetchIsolation.HIGH_WATERMARK


@dataclass(slots=True)
class PartitionRead:
    """The result of reading one partition."""

    wanted: FetchPartition
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    """With `FetchLimits.may_slice` possibly a slice of a file, which supports only `len`."""
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log diverges from the leader's (KIP-595)."""
    preferred_replica: int = NO_PREFERENCE
    """The follower that the reader had better read; then it gets no records here."""
    partition: Partition | None = None
    is_cold: bool = False
    """Whether the bytes are on disk but not in the page cache; `records` is empty then."""

    @property
    def is_urgent(self) -> bool:
        """Whether the reader has to know at once of something other than records."""
        return bool(self.error_code) or self.diverging is not None or self.preferred_replica != NO_PREFERENCE


@dataclass(slots=True)
class FetchRead:
    """The results of reading all partitions of one request."""

    partitions: list[PartitionRead] = field(default_factory=list)
    size: int = 0
    is_urgent: bool = False
    """Whether a partition has an error, a divergence or another replica, so that the response waits for nothing."""
    is_cold: bool = False
    size_in_memory: int = 0
    """The part of `size` that is not in slices of files."""


def uncounted(size_in_memory: int) -> int:
    """Let a read go on: a `count` of `read_partitions` for what others count, or what is sent at once."""
    return UNLIMITED


async def read_partitions(
    partitions: Iterable[Located],
    limits: FetchLimits,
    pause: Pause,
    *,
    nowait: bool,
    on_fetched: Callable[[Partition, FetchPartition], None] | None = None,
    prefer: Callable[[Partition, int], int | None] | None = None,
    budget: FollowerBudget | None = None,
    count: Callable[[int], int] = uncounted,
) -> FetchRead:
    """Read partitions in request order until the byte budget is spent.

    With `nowait`, no read blocks; otherwise cold bytes are read from disk, and the caller runs this in a thread.

    `on_fetched` notes how far a follower is, for each partition whose fetch is valid, before the partition is read.
    `prefer(partition, fetch_offset)` returns the follower that the reader had better read, or None. `budget` limits
    what throttled partitions take of the response to a follower.

    `count(size_in_memory)` is called before and after a pause that is not over at once, and returns how many bytes may
    be read now.
    """
    total = FetchRead()
    bytes_left = limits.bytes_max
    needs_whole_batch = limits.is_first_batch_whole
    isolation = limits.isolation
    for wanted, partition, error_code in partitions:
        read = PartitionRead(wanted, error_code, partition=partition)
        total.partitions.append(read)
        if partition is not None:
            try:
                _check(read, partition, wanted, limits)
                preferred = None
                if prefer is not None and read.diverging is None:
                    preferred = prefer(partition, wanted.fetch_offset)
                if preferred is not None:
                    read.preferred_replica = preferred
                    _set_offsets(read, partition)
                elif read.diverging is None:
                    if on_fetched is not None:
                        _note_fetched(on_fetched, partition, wanted)
                    allowed = UNLIMITED if budget is None else budget.of(partition)
                    if allowed < 1:
                        _set_offsets(read, partition)
                    else:
                        size_max = min(bytes_left, allowed)
                        _read_partition(read, partition, wanted, size_max, limits, isolation, needs_whole_batch, nowait)
                        if budget is not None:
                            budget.spend(partition, len(read.records))
            except KafkaError as error:
                read.error_code = error.code
        if read.is_urgent:
            total.is_urgent = True
        else:
            size = len(read.records)
            if size:
                needs_whole_batch = False
                bytes_left = max(0, bytes_left - size)
                total.size += size
                if not isinstance(cast(object, read.records), FileSlice):
                    total.size_in_memory += size
            total.is_cold = total.is_cold or read.is_cold
        awaited = pause()
        if awaited is not AT_ONCE:
            count(total.size_in_memory)
            await awaited
            bytes_left = min(bytes_left, count(total.size_in_memory))  # others may have taken memory
    return total


def _check(read: PartitionRead, partition: Partition, wanted: FetchPartition, limits: FetchLimits) -> None:
    """Check that the reader may read here, and set `read.diverging` if its log differs. Raises KafkaError."""
    require_reader(partition, limits, wanted.current_leader_epoch)
    if wanted.last_fetched_epoch != NO_EPOCH:
        read.diverging = _divergence(partition, wanted)
        if read.diverging is not None:
            _set_offsets(read, partition)


def require_reader(partition: Partition, limits: FetchLimits, current_leader_epoch: int) -> None:
    """Check that a reader may read this replica: followers and old consumers read the leader, all others any replica.

    Raises KafkaError.
    """
    replica_id = limits.replica_id
    if limits.reads_followers:
        partition.require_replica(current_leader_epoch)
        return
    if replica_id < CONSUMER:
        partition.require_epoch(current_leader_epoch)
        return
    partition.require_leader(current_leader_epoch)
    if replica_id > CONSUMER:
        partition.require_follower(replica_id, current_leader_epoch)


def _note_fetched(
    on_fetched: Callable[[Partition, FetchPartition], None], partition: Partition, wanted: FetchPartition
) -> None:
    """Call `on_fetched` unless the offset is out of range, which proves nothing."""
    log = partition.log
    if log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
        on_fetched(partition, wanted)


def _set_offsets(read: PartitionRead, partition: Partition) -> None:
    log = partition.log
    read.log_start_offset = log.log_start_offset
    read.high_watermark = log.high_watermark
    read.last_stable_offset = log.last_stable_offset


def _read_partition(
    read: PartitionRead,
    partition: Partition,
    wanted: FetchPartition,
    bytes_left: int,
    limits: FetchLimits,
    isolation: FetchIsolation,
    needs_whole_batch: bool,
    nowait: bool,
) -> None:
    log = partition.log
    read.log_start_offset = log.log_start_offset
    read.high_watermark = log.high_watermark
    read.last_stable_offset = log.last_stable_offset
    fetched = log.reader.read_or_slice(
        Wanted(
            wanted.fetch_offset,
            min(bytes_left, wanted.bytes_max),
            partition.readable_end_offset(isolation),
            needs_whole_batch,
            not limits.is_first_batch_whole,
            not nowait,
            limits.may_slice,
            limits.read_committed,
        )
    )
    if fetched is None:
        read.is_cold = True
        return
    read.records = cast(Buffer, fetched.records)
    read.aborted_transactions = fetched.aborted_transactions


def _divergence(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    epoch, end_offset = partition.end_of_epoch(wanted.last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return epoch, end_offset
    return None
