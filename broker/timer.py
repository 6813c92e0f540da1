"""A tick timer: deadlines that thousands of parked requests can arm and cancel for next to nothing.

Owns: which callbacks are due when. Must not know: clocks or event loops; the caller passes the time in and drives
`advance`, so that tests and the simulation jump it by hand.

Deadlines are rounded up to whole ticks and kept in one bucket a tick (a dict), with a heap of the ticks that have a
bucket. Arming is a dict look-up and an append, cancelling clears a slot; cancelled entries leave with their bucket. A
hierarchy of wheels as in Kafka's purgatory saves nothing here: the heap holds ticks, not entries, and a millisecond
holds many entries under load, where it matters.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

TICK_MS = 1


class TimerHandle:
    """One armed deadline. `cancel` is idempotent and may be called after the callback ran."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    @property
    def is_armed(self) -> bool:
        return self.callback is not None


class Timer:
    """Callbacks by deadline, in milliseconds of whatever monotonic clock the driver advances it with."""

    def __init__(self, on_earlier_deadline: Callable[[int], None] | None = None) -> None:
        """`on_earlier_deadline(deadline_ms)` tells the driver that it must wake up sooner than it planned to."""
        self._buckets: dict[int, list[TimerHandle]] = {}
        self._ticks: list[int] = []
        self._on_earlier_deadline = on_earlier_deadline

    def schedule(self, deadline_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Run `callback` in the first `advance` whose time is not before `deadline_ms`."""
        handle = TimerHandle(callback)
        tick = -(-deadline_ms // TICK_MS)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [handle]
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick and self._on_earlier_deadline is not None:
                self._on_earlier_deadline(tick * TICK_MS)
        else:
            bucket.append(handle)
        return handle

    def next_deadline_ms(self) -> int | None:
        """When `advance` has to be called next, or None while nothing is armed."""
        return self._ticks[0] * TICK_MS if self._ticks else None

    def advance(self, now_ms: int) -> int:
        """Run everything that is due, in deadline order, and return how many callbacks ran.

        A callback may schedule and cancel; what it schedules for `now_ms` or earlier runs in this same call.
        """
        ran = 0
        ticks = self._ticks
        while ticks and ticks[0] * TICK_MS <= now_ms:
            for handle in self._buckets.pop(heapq.heappop(ticks)):
                callback = handle.callback
                if callback is not None:
                    handle.callback = None
                    callback()
                    ran += 1
        return ran
