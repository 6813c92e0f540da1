"""The records of one partition that a page may take next, and the merge of several partitions by timestamp.

Owns the order of a page. Pure. Must not know how records are read.

A partition whose records are used up is read further before the merge continues. So what a page returns of each
partition is contiguous, and the cursors of the heads are where the next page begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from broker.console.records.pieces import Found, Piece, Range

SPAN_GROWTH = 4


class Head(Protocol):
    """The next records of one partition."""

    @property
    def has_to_be_read(self) -> bool:
        """Whether no record is at hand although the partition may have more."""

    @property
    def wanted(self) -> Range:
        """The offsets to read next."""

    @property
    def cursor(self) -> int:
        """The offset at which the next page continues."""

    @property
    def has_more(self) -> bool:
        """Whether the next page may have records of the partition."""

    @property
    def rank(self) -> int | None:
        """What decides which partition is next, the greatest first; None: there is no record."""

    def add(self, piece: Piece) -> None:
        """Add what was read of the wanted offsets."""

    def give_up(self) -> None:
        """Read no further: the leader did not respond, or with an error."""

    def pop(self) -> Found:
        """Return the next record and remove it."""


Heads = Mapping[int, Head]


class BackwardHead:
    """The newest records of one partition first."""

    __slots__ = ("_records", "_span", "_start", "_unread_before", "cursor")

    def __init__(self, start: int, end: int, span: int) -> None:
        self._start = start
        self.cursor = max(end, start)
        self._unread_before = self.cursor
        self._records: list[Found] = []  # oldest first
        self._span = span

    @property
    def has_to_be_read(self) -> bool:
        return not self._records and self._unread_before > self._start

    @property
    def wanted(self) -> Range:
        return Range(max(self._start, self._unread_before - self._span), self._unread_before)

    @property
    def has_more(self) -> bool:
        return self.cursor > self._start

    @property
    def rank(self) -> int | None:
        return self._records[-1].record.timestamp if self._records else None

    def add(self, piece: Piece) -> None:
        """Add a piece. One that ends early is dropped for one with fewer offsets."""
        wanted = self.wanted
        if piece.next_offset <= wanted.start < self._unread_before:
            return  # nothing was opened, because other partitions have used up the budget
        if piece.next_offset < self._unread_before and self._span > 1:
            self._span = max(1, self._span // SPAN_GROWTH)
            return
        self._records = piece.records
        self._unread_before = wanted.start
        if not self._records:
            self.cursor = self._unread_before
            self._span *= SPAN_GROWTH  # compacted offsets, or markers

    def give_up(self) -> None:
        self._unread_before = self._start

    def pop(self) -> Found:
        found = self._records.pop()
        self.cursor = found.record.offset if self._records else self._unread_before
        return found


class ForwardHead:
    """The oldest records of one partition first."""

    __slots__ = ("_end", "_position", "_records", "cursor")

    def __init__(self, start: int, end: int) -> None:
        self.cursor = self._position = min(start, end)
        self._end = end
        self._records: list[Found] = []  # newest first

    @property
    def has_to_be_read(self) -> bool:
        return not self._records and self._position < self._end

    @property
    def wanted(self) -> Range:
        return Range(self._position, self._end)

    @property
    def has_more(self) -> bool:
        return self.cursor < self._end

    @property
    def rank(self) -> int | None:
        return -self._records[-1].record.timestamp if self._records else None

    def add(self, piece: Piece) -> None:
        self._records = piece.records[::-1]
        self._position = piece.next_offset
        if not self._records:
            self.cursor = self._position

    def give_up(self) -> None:
        self._position = self._end

    def pop(self) -> Found:
        found = self._records.pop()
        self.cursor = found.record.offset + 1 if self._records else self._position
        return found


def merge(heads: Heads, found: list[Found], limit: int) -> None:
    """Move records to `found` in order, until a partition has to be read, or `limit` is reached."""
    if len(found) >= limit or any(head.has_to_be_read for head in heads.values()):
        return
    # By rank, the greatest first; of equal ones the partition that comes first in `heads`.
    ranked = [(-rank, number, head) for number, head in enumerate(heads.values()) if (rank := head.rank) is not None]
    heapify(ranked)
    while ranked:
        _, number, head = ranked[0]
        found.append(head.pop())
        if len(found) >= limit or head.has_to_be_read:
            return
        if (rank := head.rank) is None:
            heappop(ranked)
        else:
            heapreplace(ranked, (-rank, number, head))
