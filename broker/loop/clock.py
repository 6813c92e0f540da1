"""The broker's two clocks. Everything below the edge takes times as arguments; this is where they come from.

Owns the one place where time is read. Must not know what it is read for.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is stored and compared between machines, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start, never going back."""

    def monotonic_s(self) -> float:
        """The same clock in seconds, as exact as the machine has it: for measuring how long something took."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
