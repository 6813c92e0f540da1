"""Batches as clients and checkers read them.

Owns the memory of what was read: every replica and every consumer has the same batches, and each is opened once. Must
not know where a batch comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, Record, batches, records


def opened_batches(content: bytes) -> Iterator[tuple[BatchHeader, tuple[Record, ...]]]:
    """Yield header and records of each whole batch. Raises Malformed as `batches` and `records` do."""
    for position, header in batches(content):
        yield header, _opened(content[position : position + header.size])


@lru_cache(maxsize=1024)
def _opened(batch: bytes) -> tuple[Record, ...]:
    return tuple(records(batch, size_max=1 << 20))


@lru_cache(maxsize=64)
def last_offset(content: bytes) -> int:
    """Return the last offset before the first partial or damaged batch, or -1 without a batch."""
    last, position, end = -1, 0, len(content)
    while end - position >= HEADER_SIZE:
        base_offset, length, _, magic, _, _, delta, *_ = HEADER.unpack_from(content, position)
        size = LOG_OVERHEAD + length
        if magic != MAGIC or not HEADER_SIZE <= size <= end - position:
            break
        last = base_offset + delta
        position += size
    return last
