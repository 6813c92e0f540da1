"""Whether a group keeps up with what it reads, by the lag and the commits of the last minutes.

Owns the rules, which need no thresholds. Pure. Must not know where lags come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, Literal, get_args

from broker.console.rates import PartitionHistory

Status = Literal["OK", "NONE", "UNKNOWN", "WARN", "STALL", "STOP"]
"""A later one is worse. NONE: nothing was committed. UNKNOWN: the end of the partition is not known."""

MINUTES: Final = 10
MINUTES_MIN: Final = 3
_ORDER: Final = {status: number for number, status in enumerate(get_args(Status))}


def partition_status(lag: int | None, history: PartitionHistory, *, has_member: bool, is_committed: bool) -> Status:
    """Return the status of a group in one partition.

    STOP: unread records and no member. STALL: a member that has read nothing in the last minutes. WARN: a lag that grew
    in each of them.
    """
    if not is_committed:
        return "NONE"
    if lag is None:
        return "UNKNOWN"
    if not lag:
        return "OK"
    if not has_member:
        return "STOP"
    lags = [each for each in history.lags[-MINUTES:] if each is not None]
    if len(lags) < MINUTES_MIN or 0 in lags:
        return "OK"
    rates = [each for each in history.rates[-MINUTES:] if each is not None]
    if len(rates) >= MINUTES_MIN and not any(rates):
        return "STALL"
    return "WARN" if all(earlier < later for earlier, later in pairwise(lags)) else "OK"


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst of the statuses of partitions; NONE if there are none."""
    return max(statuses, key=_ORDER.__getitem__, default="NONE")


def rank(status: Status) -> int:
    """Return a number that is greater for a worse status."""
    return _ORDER[status]
