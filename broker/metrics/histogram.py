"""How a measure is distributed lately: quantiles of a sample in which old values fade, and totals.

Owns: the quantiles and the totals. Must not know what is measured. Pure: times are arguments.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Final

from broker.loop.reservoir import Reservoir
from broker.metrics.metric import Distribution

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


class Histogram:
    """`count` and `total` are of all values, the quantiles of the sample."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        """`uniform()` returns random numbers from 0 (included) to 1 (excluded)."""
        self._sample: Reservoir[float] = Reservoir(uniform)
        self.count = 0
        self.total = 0.0

    def update(self, value: float, now_s: float) -> None:
        """Add one value at `now_s`, seconds of any clock that only rises."""
        self.count += 1
        self.total += value
        if self._sample.is_due(now_s):
            self._sample.add(value, now_s)

    def distribution(self) -> Distribution:
        """Return totals and quantiles; quantiles are 0 while there is no value."""
        return distribution(self.count, self.total, self._sample.values())


def distribution(count: int, total: float, sample: Iterable[float]) -> Distribution:
    """Return `count` and `total` of all values with the quantiles of `sample`."""
    values = sorted(sample)
    quantiles = {share: _quantile(values, float(share)) for share in QUANTILES}
    if not values:
        return Distribution(count, total, quantiles)
    return Distribution(count, total, quantiles, values[0], values[-1], statistics.pstdev(values, fmean(values)))


def _quantile(values: list[float], share: float) -> float:
    """Interpolate between the two sorted values nearest to `share`."""
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
