"""Muted connections: they serve no request for some time because their clients exceeded a quota (KIP-219).

Owns: when each connection is released, with one timer for all of them. Must not know: why a connection is muted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

from broker.network.channel import Hold


class Muted(Protocol):
    """A connection that can be muted."""

    def release(self, reason: int) -> None:
        """Remove a reason of `Hold`. Has no effect on a closed connection."""


class MutedConnections:
    """The muted connections of one listener."""

    def __init__(
        self, monotonic_ms: Callable[[], int], call_later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """`call_later(delay_s, callback)` calls `callback` once, after `delay_s` seconds."""
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._waiting: list[tuple[int, int, Muted]] = []  # a heap: (release time in ms, arrival, connection)
        self._arrivals = count()
        self._timer_ms: int | None = None  # when the earliest pending timer fires

    @property
    def count(self) -> int:
        return len(self._waiting)

    def mute(self, connection: Muted, duration_ms: int) -> None:
        """Release `connection` from `Hold.THROTTLED` after `duration_ms`."""
        release_ms = self._monotonic_ms() + duration_ms
        heapq.heappush(self._waiting, (release_ms, next(self._arrivals), connection))
        self._arm()

    def _arm(self) -> None:
        release_ms = self._waiting[0][0]
        if self._timer_ms is None or release_ms < self._timer_ms:
            self._timer_ms = release_ms
            self._call_later(max(release_ms - self._monotonic_ms(), 0) / 1000, self._release_due)

    def _release_due(self) -> None:
        self._timer_ms = None
        now_ms = self._monotonic_ms()
        try:
            while self._waiting and self._waiting[0][0] <= now_ms:
                heapq.heappop(self._waiting)[2].release(Hold.THROTTLED)
        finally:  # a release serves requests: one that fails must not leave other connections muted
            if self._waiting:
                self._arm()
