"""All metrics of one broker, and the rates at which their counts rise.

Owns: the list of metrics, and the state of rates by metric and subject. Must not know any particular metric, or how
metrics are shown. Pure: times are arguments.

Every representation reads this registry: Prometheus, JSON and the reporters of `metric.reporters`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping

from base.pause import Pause
from broker.metrics.metric import Distribution, Kind, Metric, Sample, Samples, Shown, TagValues
from broker.metrics.rates import MeterRates, WindowedRate

SAMPLES_PER_STEP = 250
"""About half a millisecond."""
METERED = (Kind.METER, Kind.TIMER, Kind.LOWEST_RATE)

logger = logging.getLogger("kafka.server.Metrics")


class Registry:
    """Names are unique in Prometheus; several metrics may be attributes of one object in JSON."""

    def __init__(self, metrics: Iterable[Metric], now_s: Callable[[], float], window_s: float = 60.0) -> None:
        """`now_s()` is monotonic. `window_s` is the length of the window of rates."""
        self.metrics = list(metrics)
        names = [metric.prometheus_name for metric in self.metrics if metric.shown is not Shown.JSON]
        assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
        self._now_s = now_s
        self._window_s = window_s
        self._begin_s = now_s()
        self._meters: dict[int, dict[TagValues, MeterRates]] = {}
        self._windows: dict[int, dict[TagValues, WindowedRate]] = {}

    def samples(self, metric: Metric) -> Samples:
        """Return what `metric` reads; the counts of a rate become rates."""
        if metric.kind is Kind.RATE:
            return self._rated(metric)
        return self._lowest(metric) if metric.kind is Kind.LOWEST_RATE else metric.read()

    def rates(self, metric: Metric, tags: TagValues, count: float) -> tuple[float, float, float, float]:
        """Return the mean rate of a meter, and its averages over one, five and fifteen minutes, in its unit."""
        known = self._meters.get(id(metric), {}).get(tags)
        now_s, unit_s = self._now_s(), metric.rate_unit_s
        if known is None:
            elapsed_s = now_s - self._begin_s
            mean = count / elapsed_s if elapsed_s > 0 else 0.0
            return mean * unit_s, 0.0, 0.0, 0.0
        one, five, fifteen = known.rates
        return known.mean(count, now_s) * unit_s, one * unit_s, five * unit_s, fifteen * unit_s

    async def tick(self, pause: Pause) -> None:
        """Compare all counts with those of the last tick. To be run every `rates.TICK_S` seconds."""
        for metric in self.metrics:
            if metric.kind in METERED or metric.kind is Kind.RATE:
                try:
                    await self._tick(metric, pause)
                except Exception:
                    logger.exception("cannot read the metric %s", metric.prometheus_name)

    async def _tick(self, metric: Metric, pause: Pause) -> None:
        meters, windows = self._meters.get(id(metric), {}), self._windows.get(id(metric), {})
        is_first = id(metric) not in self._meters
        present_meters: dict[TagValues, MeterRates] = {}
        present_windows: dict[TagValues, WindowedRate] = {}
        for number, sample in enumerate(metric.read()):
            if sample is None or number % SAMPLES_PER_STEP == SAMPLES_PER_STEP - 1:
                await pause()
            if sample is None:
                continue
            tags, count = sample[0], _count(sample)
            now_s = self._now_s()
            if metric.kind is Kind.RATE:
                window = windows.get(tags) or WindowedRate(0, self._begin_s if is_first else now_s)
                window.tick(count, now_s, self._window_s)
                present_windows[tags] = window
            else:
                # What was counted before the subject was first seen counts from the last tick on.
                meter = meters.get(tags) or MeterRates(0, self._begin_s if is_first else now_s)
                meter.tick(count, now_s)
                present_meters[tags] = meter
        self._meters[id(metric)], self._windows[id(metric)] = present_meters, present_windows

    def _lowest(self, metric: Metric) -> Samples:
        lowest: dict[TagValues, float] = {}
        for sample in metric.read():
            if sample is None:
                yield None
                continue
            tags, count = sample[0], _count(sample)
            rate = self.rates(metric, tags, count)[1]
            subject = tags[: len(metric.tags)]
            lowest[subject] = min(rate, lowest.get(subject, rate))
        yield from lowest.items()

    def _rated(self, metric: Metric) -> Samples:
        windows = self._windows.get(id(metric), {})
        for sample in metric.read():
            if sample is None:
                yield None
                continue
            tags, count, now_s = sample[0], _count(sample), self._now_s()
            window = windows.get(tags) or WindowedRate(0, self._begin_s)
            yield tags, window.per_second(count, now_s)


def _count(sample: Sample) -> float:
    value = sample[1]
    if isinstance(value, Distribution):
        return value.count
    return math.nan if isinstance(value, str | Mapping) else value
