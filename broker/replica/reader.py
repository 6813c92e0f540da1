"""Reads the partitions of one fetch within its limits.

Owns: how a request's byte budget is spent over its partitions, and which error each gets. Must not know: sessions,
response layouts or waiting.

A read first takes only what the page cache has, because a disk must never stop the event loop; partitions that need the
disk are marked and read again in a thread by the caller (`PartitionRead.is_cold`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from broker.loop.slices import Slices
from broker.replica.fetch_sessions import FetchPartition
from broker.replica.partition import NO_EPOCH, FetchIsolation, Partition
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from storage.transaction_index import AbortedTransaction

CONSUMER = -1
"""The replica id of who is no replica. Ids below are of tools that read a replica as it is, ids above of followers."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The byte budget of one request, and how far its sender may read."""

    bytes_max: int
    read_committed: bool
    is_first_batch_whole: bool
    """The first batch of the first non-empty partition is returned whole, even above the limits (version 3 and up)."""
    replica_id: int = CONSUMER
    """Who reads: consumers read what is committed, all others up to the log's end."""
    may_slice: bool = False
    """Whether records may stay in their file, because nobody here looks at them."""

    @property
    def isolation(self) -> FetchIsolation:
        if self.replica_id != CONSUMER:
            return FetchIsolation.LOG_END
        return FetchIsolation.LAST_STABLE_OFFSET if self.read_committed else FetchIsolation.HIGH_WATERMARK


@dataclass(slots=True)
class PartitionRead:
    """What one partition answers."""

    wanted: FetchPartition
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    """With `FetchLimits.may_slice` perhaps a slice, of which nothing but its length may be asked."""
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log and ours part (KIP-595)."""
    partition: Partition | None = None
    is_cold: bool = False
    """The bytes are there, but not in memory; `records` is empty so far."""


@dataclass(slots=True)
class FetchRead:
    """What all partitions of one request answer."""

    partitions: list[PartitionRead] = field(default_factory=list)
    size: int = 0
    has_news: bool = False
    """An error or a divergence: the answer cannot wait for more bytes."""
    is_cold: bool = False


def read_partitions(
    partitions: Iterable[tuple[FetchPartition, Partition | None, ErrorCode]],
    limits: FetchLimits,
    *,
    nowait: bool,
) -> Slices[FetchRead]:
    """Read in request order until the budget is spent.

    Each item carries the hosted partition, or None and the error that says why there is none. With `nowait`, nothing
    blocks; otherwise cold bytes are read from disk, and the caller runs this in a thread.
    """
    answer = FetchRead()
    bytes_left = limits.bytes_max
    needs_whole_batch = limits.is_first_batch_whole
    isolation = limits.isolation
    for wanted, partition, error_code in partitions:
        read = PartitionRead(wanted, error_code, partition=partition)
        answer.partitions.append(read)
        if partition is not None:
            try:
                _read_one(read, partition, wanted, bytes_left, limits, isolation, needs_whole_batch, nowait)
            except KafkaError as error:
                read.error_code = error.code
        if read.error_code or read.diverging is not None:
            answer.has_news = True
            yield
            continue
        size = len(read.records)
        if size:
            needs_whole_batch = False
            bytes_left = max(0, bytes_left - size)
            answer.size += size
        answer.is_cold = answer.is_cold or read.is_cold
        yield
    return answer


def _read_one(
    read: PartitionRead,
    partition: Partition,
    wanted: FetchPartition,
    bytes_left: int,
    limits: FetchLimits,
    isolation: FetchIsolation,
    needs_whole_batch: bool,
    nowait: bool,
) -> None:
    partition.require_leader(wanted.current_leader_epoch)
    if limits.replica_id > CONSUMER:
        partition.require_follower(limits.replica_id, wanted.current_leader_epoch)
    log = partition.log
    read.log_start_offset = log.log_start_offset
    read.high_watermark = log.high_watermark
    read.last_stable_offset = log.last_stable_offset
    if wanted.last_fetched_epoch != NO_EPOCH:
        read.diverging = _divergence(partition, wanted)
        if read.diverging is not None:
            return
    upper_bound_offset = partition.readable_end_offset(isolation)
    fetched = log.read(
        wanted.fetch_offset,
        min(bytes_left, wanted.bytes_max),
        upper_bound_offset=upper_bound_offset,
        min_one_batch=needs_whole_batch,
        nowait=nowait,
        may_slice=limits.may_slice,
        with_aborted=limits.read_committed,
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
