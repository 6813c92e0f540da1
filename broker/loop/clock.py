"""The machine's two clocks: `base.clock.Clock` for a broker that runs.

Owns the one place where time is read. Must not know what it is used for.
"""

from __future__ import annotations

import time


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
