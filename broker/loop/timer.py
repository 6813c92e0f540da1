"""A tick timer: thousands of parked requests can arm and cancel deadlines at almost no cost.

Owns: which callbacks are due when. Must not know: clocks or event loops; the caller passes the time in and drives
`advance`, so that tests and the simulation jump it by hand.

Deadlines are rounded up to whole ticks and kept in one bucket a tick (a dict), with a heap of the ticks that have a
bucket. Arming is a dict look-up and an append; cancelling clears a slot. Cancelled entries are removed with their
bucket, or earlier when they are the majority. Hierarchical timing wheels as in Kafka's purgatory would save nothing:
the heap holds ticks, not entries, and under load a tick has many entries.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

logger = logging.getLogger("kafka.utils.timer.SystemTimer")

TICK_MS = 1
# Up to this many cancelled entries are kept until their tick.
CANCELLED_MAX = 1_000


class TimerHandle:
    """One armed deadline. `cancel` is idempotent and may be called after the callback ran."""

    __slots__ = ("_timer", "callback")

    def __init__(self, timer: Timer, callback: Callable[[], None]) -> None:
        self._timer = timer
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timer.note_cancelled()


class Timer:
    """Callbacks by deadline, in milliseconds of whatever monotonic clock the driver advances it with."""

    def __init__(self, on_earlier_deadline: Callable[[int], None] | None = None) -> None:
        """`on_earlier_deadline(deadline_ms)` is called when the driver has to wake up earlier than it planned."""
        self._buckets: dict[int, list[TimerHandle]] = {}
        self._armed_count = 0
        self._cancelled_count = 0
        self._ticks: list[int] = []
        self._earliest_tick = 0
        """While `advance` runs, the tick after those that it runs."""
        self._on_earlier_deadline = on_earlier_deadline

    def schedule(self, deadline_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Run `callback` in the first `advance` whose time is not before `deadline_ms`."""
        handle = TimerHandle(self, callback)
        self._armed_count += 1
        tick = max(-(-deadline_ms // TICK_MS), self._earliest_tick)
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
        """Return when `advance` has to be called next; None while nothing is armed."""
        return self._ticks[0] * TICK_MS if self._ticks else None

    def advance(self, now_ms: int) -> int:
        """Run all due callbacks in deadline order; return how many ran.

        A callback may schedule and cancel. What it schedules for `now_ms` or earlier runs in the next tick, so that a
        callback which repeats itself cannot keep this call from returning. An exception is a bug of its callback: it is
        logged, and must stop neither the other callbacks nor the driver.
        """
        self._earliest_tick = now_ms // TICK_MS + 1
        ran = 0
        ticks = self._ticks
        while ticks and ticks[0] * TICK_MS <= now_ms:
            for handle in self._buckets.pop(heapq.heappop(ticks)):
                callback = handle.callback
                if callback is None:
                    self._cancelled_count -= 1
                else:
                    self._armed_count -= 1
                    handle.callback = None
                    ran += 1
                    try:
                        callback()
                    except Exception:
                        logger.exception("what was due at %d ms failed unexpectedly", now_ms)
        self._earliest_tick = 0
        return ran

    def note_cancelled(self) -> None:
        """Count a cancelled entry, and remove all cancelled entries once they are the majority.

        Otherwise far deadlines that are armed and cancelled for every request would accumulate until they are due.
        """
        self._armed_count -= 1
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_MAX and self._cancelled_count > self._armed_count:
            self._drop_cancelled()

    def _drop_cancelled(self) -> None:
        for tick, bucket in list(self._buckets.items()):
            bucket[:] = [handle for handle in bucket if handle.callback is not None]
            if not bucket:
                del self._buckets[tick]
        self._ticks[:] = sorted(self._buckets)
        self._cancelled_count = 0
