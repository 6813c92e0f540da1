"""The broker's two clocks. Pure code takes times as arguments; they are read here.

Owns the one place where time is read. Must not know what it is used for.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stored times and for comparisons between machines, monotonic time for waits."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never decreases."""

    def monotonic_s(self) -> float:
        """Seconds of the same clock at its full resolution, to measure durations."""

    def processor_s(self) -> float:
        """Seconds of processor time that this thread has used."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    # Read several times per request: as a built-in function it costs half as much as through a method.
    monotonic_s = staticmethod(time.monotonic)

    def processor_s(self) -> float:
        return time.thread_time()
