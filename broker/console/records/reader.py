"""Reads records of a topic for people: the newest first over all partitions, or forwards from offsets.

Owns: the order of the records, the budget of bytes, and which records a reader sees (aborted and control records are
left out). Must not know HTTP, or how a record is shown.

Records are read by Fetch requests, so by the reader that consumers use. Batches are opened in a thread.

A page merges the records of its partitions by timestamp (`heads`). Newest first, each partition is read backwards in
pieces of offsets, oldest first forwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from base.dataclass import dataclass
from broker.cluster.metadata_cache import NO_LEADER
from broker.console.cluster_client import (
    CONSUMER,
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClusterClient,
)
from broker.console.problem import not_found
from broker.console.records.heads import BackwardHead, ForwardHead, Heads, merge
from broker.console.records.pieces import Found, Piece, Range
from broker.requests.services import Services
from protocol.errors import ErrorCode, Malformed
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.records.batch import BatchHeader, Record, batches, crc_is_valid, records
from protocol.records.control import ControlType, read_marker, read_usual_marker

PARTITIONS_PER_FETCH: Final = 25
PIECE_SIZE: Final = 256 << 10
"""Bytes of one partition in one response."""
BYTES_MAX: Final = 32 << 20
"""Bytes that one page of records may read."""
PAGE_OPENED_SIZE_MAX: Final = 256 << 20
"""Bytes of records that the reads of one page may open in all; the page then ends with what was found."""
BATCH_SIZE_MAX: Final = 100 << 20
"""Bytes of one opened batch, of which a piece and the found records are held."""
OPENED_SIZE_MAX: Final = 64 << 20
"""Bytes of records that one read may open over all its partitions; further batches are left to the next read."""
RECORD_COST: Final = 256
HEADER_COST: Final = 128
"""Bytes of memory of a record and of a header beside their contents."""
ROUNDS_MAX: Final = 40
PAGE_TIME_MAX_MS: Final = 10_000
"""After this time a page ends with what was found. One read may take as long again, if a broker does not respond."""
READS_MAX: Final = 4
"""How many pages, searches and tails read at the same time; further ones wait."""


@dataclass(slots=True)
class Page:
    """Some records, and where the next page begins."""

    found: list[Found] = field(default_factory=list)
    cursor: dict[int, int] = field(default_factory=dict)
    """By partition: the offset before which, or from which on, nothing was returned yet."""
    has_more: bool = False
    is_complete: bool = True
    """Whether all were read that the page needed; False when the budget was used up."""
    problems: list[str] = field(default_factory=list)


class RecordReader:
    """Reads records of one cluster."""

    def __init__(self, services: Services, client: ClusterClient) -> None:
        self._services = services
        self._client = client
        self._reads = asyncio.Semaphore(READS_MAX)

    async def ranges(
        self, topic: str, partitions: Iterable[int], *, is_committed: bool
    ) -> tuple[dict[int, Range], list[int]]:
        """Return the readable offsets by partition, and the partitions whose leaders did not respond."""
        wanted = [(topic, partition) for partition in partitions]
        isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        starts, ends = await asyncio.gather(
            self._client.offsets(wanted, EARLIEST),
            self._client.offsets(wanted, LATEST, isolation=isolation),
        )
        found = {
            each[1]: Range(starts[each].offset, ends[each].offset) for each in wanted if each in starts and each in ends
        }
        return found, [partition for _, partition in wanted if partition not in found]

    def partitions_of(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises ProblemError."""
        state = self._services.metadata_cache.topics.get(topic)
        if state is None:
            raise not_found(f"topic {topic!r} does not exist")
        return sorted(state.partitions)

    async def newest(
        self,
        topic: str,
        limit: int,
        *,
        partitions: Sequence[int],
        before: Mapping[int, int],
        is_committed: bool,
    ) -> Page:
        """Return the newest `limit` records before the offsets in `before`, newest first."""
        page = Page()
        ranges = await self._ranges_for(page, topic, partitions, is_committed)
        span = max(4, 2 * limit // max(len(ranges), 1) + 2)
        heads: Heads = {
            each: BackwardHead(one.start, min(before.get(each, one.end), one.end), span) for each, one in ranges.items()
        }
        await self._fill(page, topic, heads, limit, is_committed=is_committed)
        return page

    async def oldest(
        self,
        topic: str,
        limit: int,
        *,
        partitions: Sequence[int],
        start: Mapping[int, int],
        is_committed: bool,
    ) -> Page:
        """Return the oldest `limit` records from the offsets in `start` on, oldest first."""
        page = Page()
        ranges = await self._ranges_for(page, topic, partitions, is_committed)
        heads: Heads = {
            each: ForwardHead(max(start.get(each, one.start), one.start), one.end) for each, one in ranges.items()
        }
        await self._fill(page, topic, heads, limit, is_committed=is_committed)
        return page

    async def _ranges_for(
        self, page: Page, topic: str, partitions: Sequence[int], is_committed: bool
    ) -> dict[int, Range]:
        ranges, missing = await self.ranges(topic, partitions, is_committed=is_committed)
        page.problems += [f"partition {each}: its leader did not respond" for each in missing[:10]]
        return ranges

    async def _fill(self, page: Page, topic: str, heads: Heads, limit: int, *, is_committed: bool) -> None:
        """Read until the page has `limit` records, nothing is left, or its budget is used up."""
        bytes_left, opened_left = BYTES_MAX, PAGE_OPENED_SIZE_MAX
        clock = self._services.clock
        end_ms = clock.monotonic_ms() + PAGE_TIME_MAX_MS
        begin = {each: head.cursor for each, head in heads.items()}
        for _ in range(ROUNDS_MAX):
            hungry = {each: head for each, head in heads.items() if head.has_to_be_read}
            if hungry:
                size, opened_size = await self._read_heads(topic, hungry, page, is_committed)
                bytes_left -= size
                opened_left -= opened_size
            merge(heads, page.found, limit)
            page.cursor = {each: head.cursor for each, head in heads.items()}
            if len(page.found) >= limit or not any(head.has_to_be_read for head in heads.values()):
                break
            # A page must not end where it began, or the next one would read the same again.
            is_used_up = min(bytes_left, opened_left) <= 0 and page.cursor != begin
            if is_used_up or clock.monotonic_ms() >= end_ms:
                page.is_complete = False
                break
        else:
            page.is_complete = False
        page.has_more = any(head.has_more for head in heads.values())

    async def _read_heads(self, topic: str, heads: Heads, page: Page, is_committed: bool) -> tuple[int, int]:
        """Read the next piece of each partition; return the bytes that were read, and to how many they opened."""
        pieces = await self.read(topic, {each: head.wanted for each, head in heads.items()}, is_committed=is_committed)
        size = opened_size = 0
        for each, head in heads.items():
            piece = pieces.get(each)
            if piece is None or piece.error_code:
                name = "did not respond" if piece is None else ErrorCode(piece.error_code).name
                page.problems.append(f"partition {each}: {name}")
                head.give_up()
                continue
            size += piece.size
            opened_size += piece.opened_size
            if piece.problem:
                page.problems.append(f"partition {each}: {piece.problem}")
            head.add(piece)
        return size, opened_size

    async def read(
        self,
        topic: str,
        ranges: Mapping[int, Range],
        *,
        is_committed: bool,
        piece_size: int = PIECE_SIZE,
        is_counting: bool = False,
        budget: _Budget | None = None,
    ) -> dict[int, Piece]:
        """Read each partition once, from the start of its range and up to its end, at most `piece_size` bytes of each.

        The records of all partitions take `OPENED_SIZE_MAX` bytes and one record at most, or what `budget` has left.
        The piece of a partition that has used up its share ends early, and is empty if the whole budget is used up.

        With `is_counting` no batch is opened; `counted` then has the records in the headers of whole batches.
        """
        if budget is None:
            budget = _Budget(OPENED_SIZE_MAX, share=OPENED_SIZE_MAX // max(1, len(ranges)))
        by_leader: dict[int, list[int]] = {}
        for partition in ranges:
            leader = self._services.metadata_cache.leader_of(topic, partition)
            if leader != NO_LEADER:
                by_leader.setdefault(leader, []).append(partition)
        pieces: dict[int, Piece] = {}
        opening = asyncio.Lock()  # one thread at a time uses the budget

        async def read_chunk(leader: int, partitions: list[int]) -> None:
            chunk = {each: ranges[each] for each in partitions}
            async with self._reads:
                responses = await self._client.ask_each({leader: _request(topic, chunk, is_committed, piece_size)})
                response = responses.by_broker.get(leader)
                if response is None:
                    return
                data = [one for each in response.responses for one in each.partitions]
                async with opening:
                    opened = await self._services.cpu_pool.run(
                        lambda: [
                            _opened(one, chunk[one.partition_index], budget, is_committed, is_counting) for one in data
                        ]
                    )
            pieces.update({one.partition_index: piece for one, piece in zip(data, opened, strict=True)})

        await asyncio.gather(
            *(
                read_chunk(leader, partitions[first : first + PARTITIONS_PER_FETCH])
                for leader, partitions in by_leader.items()
                for first in range(0, len(partitions), PARTITIONS_PER_FETCH)
            )
        )
        stuck = [partition for partition, piece in pieces.items() if piece.is_stuck]
        for partition in stuck:
            if len(ranges) == 1:
                pieces[partition] = pieces[partition]._replace(next_offset=ranges[partition].end)
            elif budget.left > 0:
                # Only the first batch of a response is whole whatever its size, so this partition is read alone.
                alone = await self.read(
                    topic,
                    {partition: ranges[partition]},
                    is_committed=is_committed,
                    piece_size=piece_size,
                    is_counting=is_counting,
                    budget=budget,
                )
                pieces[partition] = alone.get(partition, pieces[partition])
        return pieces

    async def one(self, topic: str, partition: int, offset: int) -> Found:
        """Return the record at an offset. Raises ProblemError."""
        self.partitions_of(topic)
        pieces = await self.read(topic, {partition: Range(offset, offset + 1)}, is_committed=False)
        piece = pieces.get(partition)
        for found in () if piece is None else piece.records:
            if found.record.offset == offset:
                return found
        raise not_found(f"{topic}-{partition} has no record at offset {offset}")


def _request(topic: str, ranges: Mapping[int, Range], is_committed: bool, piece_size: int) -> FetchRequest:
    return FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=piece_size * len(ranges),
        isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=each, fetch_offset=one.start, partition_max_bytes=piece_size)
                    for each, one in ranges.items()
                ],
            )
        ],
    )


@dataclass(slots=True)
class _Budget:
    """How many bytes of records may still be opened, and how many of them for one partition."""

    left: int
    share: int
    left_to_others: int = 0

    def begin_partition(self) -> None:
        self.left_to_others = max(0, self.left - self.share)

    @property
    def is_used_up(self) -> bool:
        """Whether the present partition may open no further record."""
        return self.left <= self.left_to_others


def _opened(data: PartitionData, wanted: Range, budget: _Budget, is_committed: bool, is_counting: bool) -> Piece:
    """Open the batches of one partition. Runs in a thread."""
    buffer = data.records or b""
    found: list[Found] = []
    next_offset, counted, problem, is_stuck = wanted.start, 0, "", wanted.start < wanted.end
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    open_aborted: set[int] = set()
    budget.begin_partition()
    left_before = budget.left
    if data.error_code:
        return Piece([], next_offset, 0, data.error_code, "", 0)
    try:
        for position, header in batches(buffer):
            is_stuck = False
            if header.base_offset >= wanted.end:
                next_offset = max(next_offset, wanted.end)
                break
            if budget.is_used_up:
                break
            while aborted and aborted[0][0] <= header.last_offset:
                open_aborted.add(aborted.pop(0)[1])
            next_offset = header.next_offset
            if header.is_control:
                if _is_abort(buffer, position, header):
                    open_aborted.discard(header.producer_id)
                continue
            if is_committed and header.is_transactional and header.producer_id in open_aborted:
                continue
            is_whole = header.base_offset >= wanted.start and header.last_offset < wanted.end
            if is_counting and is_whole:
                counted += header.records_count
                continue
            try:
                inner, stopped_at = _inner(buffer, position, header, wanted, budget)
            except Malformed as error:
                problem = f"the batch at offset {header.base_offset} cannot be opened: {error}"
                continue
            if stopped_at is not None:
                next_offset = stopped_at  # the next read opens this batch again
            counted += len(inner)
            if not is_counting:
                found += (Found(data.partition_index, one, header) for one in inner)
    except Malformed as error:
        problem, next_offset, is_stuck = str(error), wanted.end, False
    opened_size = left_before - budget.left
    return Piece(found, min(next_offset, wanted.end), len(buffer), 0, problem, counted, is_stuck, opened_size)


def _inner(
    buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader, wanted: Range, budget: _Budget
) -> tuple[list[Record], int | None]:
    """Return the wanted records of one batch, and the offset of the first one that exceeds the share, if one does.

    Raises Malformed.
    """
    if not crc_is_valid(buffer, position, header):
        raise Malformed("its CRC is wrong")
    inner: list[Record] = []
    for one in records(buffer, position, size_max=BATCH_SIZE_MAX):
        if wanted.start <= one.offset < wanted.end:
            if budget.is_used_up:
                return inner, one.offset
            budget.left -= _cost(one)
            inner.append(one)
    return inner, None


def _cost(record: Record) -> int:
    """Return about how many bytes of memory a record takes."""
    headers = sum(HEADER_COST + len(key) + len(value or b"") for key, value in record.headers)
    return RECORD_COST + len(record.key or b"") + len(record.value or b"") + headers


def _is_abort(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> bool:
    marker = read_usual_marker(buffer, position, header)
    if marker is None:
        record = next(iter(records(buffer, position, size_max=BATCH_SIZE_MAX)), None)
        marker = None if record is None else read_marker(record)
    return marker is not None and marker.control_type is ControlType.ABORT
