"""Drives the broker's tick timer from the event loop: wakes up only when the next deadline is due.

Owns the one event-loop timer for all deadlines. Must not know what is due.
"""

from __future__ import annotations

import asyncio

from base.clock import Clock
from broker.loop.timer import Timer


class LoopTimer:
    """A `Timer` that advances by itself while the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._wake_up: asyncio.TimerHandle | None = None
        self.timer = Timer(self._wake_up_at)

    def close(self) -> None:
        """Stop advancing; armed deadlines stay armed."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _wake_up_at(self, deadline_ms: int) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._wake_up = self._loop.call_later(delay_ms / 1000, self._advance)

    def _advance(self) -> None:
        self._wake_up = None
        self.timer.advance(self._clock.monotonic_ms())
        deadline_ms = self.timer.next_deadline_ms()
        if deadline_ms is not None and self._wake_up is None:
            self._wake_up_at(deadline_ms)
