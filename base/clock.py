"""The clocks of the machine, as a port, so that tests and the simulation can set the time.

Owns the port and nothing else: the caller that builds a part passes the clock (`broker.loop.clock.SystemClock`). Pure
code has no clock; it gets times as arguments.
"""

from __future__ import annotations

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
