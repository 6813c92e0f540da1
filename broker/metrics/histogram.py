"""How a measure is distributed lately: a sample in which a value counts the less the older it is.

Owns: the sample and the totals. Must not know what is measured. Pure: times are arguments, in seconds of any clock that
only rises.

Forward decay (Cormode et al., 2009): each value gets the priority weight / random, the weight growing exponentially
with its time, and the highest priorities stay. Priorities are kept as logarithms, so they never overflow.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final

from broker.metrics.metric import Distribution

SAMPLE_SIZE: Final = 1028
ALPHA: Final = 0.015
"""A value of five minutes ago counts a hundredth of one of now."""
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


class Histogram:
    """`count` and `total` are of all values, the quantiles of the sample."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        """`uniform()` gives random numbers from 0 (included) to 1 (excluded)."""
        self._uniform = uniform
        self._sample: list[tuple[float, float]] = []  # a heap of (logarithm of the priority, value)
        self.count = 0
        self.total = 0.0

    def update(self, value: float, now_s: float) -> None:
        """Take one value in."""
        self.count += 1
        self.total += value
        entry = (ALPHA * now_s - math.log(1.0 - self._uniform()), value)
        if len(self._sample) < SAMPLE_SIZE:
            heapq.heappush(self._sample, entry)
        else:
            heapq.heappushpop(self._sample, entry)

    def distribution(self) -> Distribution:
        """What is known now; quantiles of 0 while nothing is."""
        values = sorted(value for _, value in self._sample)
        return Distribution(self.count, self.total, {share: _quantile(values, float(share)) for share in QUANTILES})


def _quantile(values: list[float], share: float) -> float:
    """Between the two sorted values nearest to `share`."""
    if not values:
        return 0.0
    position = share * (len(values) + 1)
    index = int(position)
    if index < 1:
        return values[0]
    if index >= len(values):
        return values[-1]
    lower, upper = values[index - 1], values[index]
    return lower + (position - index) * (upper - lower)
