"""A sample of values in which older values have less weight.

Owns: the sample. Must not know what the values are. Pure: times are arguments, in seconds of a monotonic clock.

Forward decay (Cormode et al., 2009): each value gets the priority weight / random, the weight growing exponentially
with its time, and the highest priorities stay. Priorities are kept as logarithms, so they never overflow.

Once the sample is full, most values of a busy source do not enter it. `is_due` decides that before the value exists.
The probability p that a value enters follows from the lowest priority in the sample, and the number of values that are
passed over before one enters is geometric with p. A geometric number may be drawn again at any time without a bias, so
it is drawn again every `REDRAW_S`, because p rises with time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar

SAMPLE_SIZE: Final = 1028
ALPHA: Final = 0.015
"""The decay per second: a value of five minutes ago has a hundredth of the weight of a new one."""
REDRAW_S: Final = 1.0

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps `SAMPLE_SIZE` values."""

    __slots__ = ("_arrivals", "_drawn_until_s", "_heap", "_passed_over", "_uniform")

    def __init__(self, uniform: Callable[[], float]) -> None:
        """`uniform()` returns random numbers from 0 (included) to 1 (excluded)."""
        self._uniform = uniform
        self._heap: list[tuple[float, int, T]] = []  # (logarithm of the priority, arrival, value)
        self._arrivals = count()
        self._passed_over = 0  # how many values are passed over before the next one enters
        self._drawn_until_s = -math.inf

    def is_due(self, now_s: float) -> bool:
        """Return whether the present value enters the sample; `add` is called with it if it does."""
        self._passed_over -= 1
        if self._passed_over >= 0 and now_s < self._drawn_until_s:
            return False
        return self._is_due_after_drawing(now_s)

    def due_among(self, count: int, now_s: float) -> Iterator[int]:
        """Yield the positions of those of the next `count` values that enter the sample.

        The caller calls `add` with each of them before it asks for the next position.
        """
        if now_s >= self._drawn_until_s:
            self._draw(now_s)
        position = self._passed_over
        while position < count:
            yield position
            position += 1 + self._passed_over
        self._passed_over = position - count

    def add(self, value: T, now_s: float) -> None:
        """Add a value that is due. In a full sample it replaces the value with the lowest priority."""
        entry = (ALPHA * now_s - math.log(self._entering(now_s) * (1.0 - self._uniform())), next(self._arrivals), value)
        if len(self._heap) < SAMPLE_SIZE:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heapreplace(self._heap, entry)
        self._draw(now_s)

    def values(self) -> list[T]:
        """Return the sample in no particular order."""
        return [value for _, _, value in self._heap]

    def _is_due_after_drawing(self, now_s: float) -> bool:
        if now_s >= self._drawn_until_s:
            self._draw(now_s)
            self._passed_over -= 1
        return self._passed_over < 0

    def _draw(self, now_s: float) -> None:
        self._drawn_until_s = now_s + REDRAW_S
        entering = self._entering(now_s)
        # 1 - uniform is never 0.
        self._passed_over = 0 if entering >= 1.0 else int(math.log(1.0 - self._uniform()) / math.log1p(-entering))

    def _entering(self, now_s: float) -> float:
        """Return the probability that a value of `now_s` enters, which bounds the random number in its priority."""
        if len(self._heap) < SAMPLE_SIZE:
            return 1.0
        return min(math.exp(min(ALPHA * now_s - self._heap[0][0], 0.0)), 1.0)
