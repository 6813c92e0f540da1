"""How fast counts rise: the moving averages of meters, and rates over windows.

Owns the arithmetic. Must not know what is counted. Pure: times are arguments, in seconds of a monotonic clock.

The owner of a count only adds to it. Every `TICK_S` seconds the counts are compared with those before, as in Kafka's
meters.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

TICK_S: Final = 5.0
AVERAGED_S: Final = (60.0, 300.0, 900.0)
"""The time constants of the three moving averages: one, five and fifteen minutes."""


class MeterRates:
    """The exponentially weighted rates of one count, per second."""

    __slots__ = ("_count", "_first_s", "_last_s", "_rates")

    def __init__(self, count: float, now_s: float) -> None:
        """Begin with a count of 0 at `now_s`, unless it has risen already."""
        self._first_s = self._last_s = now_s
        self._count = count
        self._rates: tuple[float, ...] | None = None

    def tick(self, count: float, now_s: float) -> None:
        """Add what was counted since the last tick."""
        elapsed_s = now_s - self._last_s
        if elapsed_s <= 0:
            return
        rate = (count - self._count) / elapsed_s
        if self._rates is None:
            self._rates = (rate,) * len(AVERAGED_S)
        else:
            self._rates = tuple(
                old + (1.0 - math.exp(-elapsed_s / averaged_s)) * (rate - old)
                for old, averaged_s in zip(self._rates, AVERAGED_S, strict=True)
            )
        self._count, self._last_s = count, now_s

    @property
    def rates(self) -> tuple[float, ...]:
        """The averages over one, five and fifteen minutes; 0 before the first tick."""
        return self._rates or (0.0,) * len(AVERAGED_S)

    def mean(self, count: float, now_s: float) -> float:
        """Return the mean rate since the beginning."""
        elapsed_s = now_s - self._first_s
        return count / elapsed_s if elapsed_s > 0 else 0.0


class WindowedRate:
    """The rate of one count over the last `window_s` seconds."""

    __slots__ = ("_ticks",)

    def __init__(self, count: float, now_s: float) -> None:
        self._ticks = deque([(now_s, count)])

    def tick(self, count: float, now_s: float, window_s: float) -> None:
        """Remember the count, and forget counts that are older than the window."""
        while len(self._ticks) > 1 and self._ticks[1][0] <= now_s - window_s:
            self._ticks.popleft()
        self._ticks.append((now_s, count))

    def per_second(self, count: float, now_s: float) -> float:
        """Return how fast the count has risen within the window."""
        first_s, first = self._ticks[0]
        elapsed_s = now_s - first_s
        return (count - first) / elapsed_s if elapsed_s > 0 else 0.0
