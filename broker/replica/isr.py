"""Decisions about in-sync replicas, as pure functions of plain values.

Owns the high and low watermark, given the offsets of the replicas. Must not know partitions or logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNKNOWN_OFFSET = -1


def next_high_watermark(isr: Iterable[int], log_end_offset_by_replica: Mapping[int, int], current: int) -> int:
    """Return the offset below which every in-sync replica has all records; never below `current`.

    An ISR member whose position is unknown keeps the high watermark at `current`.
    """
    return max(current, min((log_end_offset_by_replica.get(replica, current) for replica in isr), default=current))


def low_watermark(replicas: Iterable[int], log_start_offset_by_replica: Mapping[int, int]) -> int:
    """Return the offset below which no replica has records; UNKNOWN_OFFSET while a replica's start is unknown."""
    return min(
        (log_start_offset_by_replica.get(replica, UNKNOWN_OFFSET) for replica in replicas), default=UNKNOWN_OFFSET
    )
