"""Decisions about in-sync replicas, as pure functions of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def next_high_watermark(isr: Iterable[int], log_end_offset_by_replica: Mapping[int, int], current: int) -> int:
    """The offset below which every in-sync replica has the log; never below `current`.

    A member of the ISR that was not heard of yet holds it where it is.
    """
    return max(current, min((log_end_offset_by_replica.get(replica, current) for replica in isr), default=current))
