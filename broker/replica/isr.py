"""Decisions about in-sync replicas, as pure functions of plain values.

Owns how far a partition is committed and deleted, given where its replicas are. Must not know partitions or logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNKNOWN_OFFSET = -1


def next_high_watermark(isr: Iterable[int], log_end_offset_by_replica: Mapping[int, int], current: int) -> int:
    """The offset below which every in-sync replica has the log; never below `current`.

    A member of the ISR that was not heard of yet holds it where it is.
    """
    return max(current, min((log_end_offset_by_replica.get(replica, current) for replica in isr), default=current))


def low_watermark(replicas: Iterable[int], log_start_offset_by_replica: Mapping[int, int]) -> int:
    """The offset below which no replica has records any more; UNKNOWN_OFFSET while one was not heard of."""
    return min(
        (log_start_offset_by_replica.get(replica, UNKNOWN_OFFSET) for replica in replicas), default=UNKNOWN_OFFSET
    )
