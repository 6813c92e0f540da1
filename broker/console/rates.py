"""What the console remembers over time: rates and latencies of this broker, an hour in detail and a day in outline.

Owns the rings and their bounds. Must not know HTTP, or how the figures come about. Pure: `record` gets the time.

Each series is a ring of integers, one every 10 s for an hour and one every 2 min for a day. A sample of a counter is
the difference since the sample before. Topics get a series when records reach them; the least active topic loses its
series to a new one above `TOPICS_MAX`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from base.pause import Pause

INTERVAL_MS: Final = 10_000
HOUR_SAMPLES: Final = 360
SAMPLES_PER_OUTLINE: Final = 12
DAY_SAMPLES: Final = 720
TOPICS_MAX: Final = 500
STEP_SIZE: Final = 200
"""Topics that are recorded in one step."""
NO_SAMPLE: Final = -1


class Counts(NamedTuple):
    """Counters of one topic, or of all."""

    messages_in: int
    bytes_in: int
    bytes_out: int


class Series:
    """The samples of one figure. A missing sample is `NO_SAMPLE`."""

    __slots__ = ("_day", "_hour", "_pending", "_pending_count")

    def __init__(self) -> None:
        self._hour = array("q", [NO_SAMPLE]) * HOUR_SAMPLES
        self._day = array("q", [NO_SAMPLE]) * DAY_SAMPLES
        self._pending = self._pending_count = 0

    def put(self, index: int, value: int, *, is_sum: bool) -> None:
        """Put the sample number `index`. In the outline samples are added if `is_sum`, else the largest counts."""
        self._hour[index % HOUR_SAMPLES] = value
        self._pending = self._pending + value if is_sum else max(self._pending, value)
        self._pending_count += 1
        if (index + 1) % SAMPLES_PER_OUTLINE == 0:
            outline = self._pending
            if is_sum and self._pending_count < SAMPLES_PER_OUTLINE:
                outline = self._pending * SAMPLES_PER_OUTLINE // self._pending_count
            self._day[index // SAMPLES_PER_OUTLINE % DAY_SAMPLES] = outline
            self._pending = self._pending_count = 0

    def hour(self, index: int) -> list[int | None]:
        """Return the samples of the last hour, the oldest first; `index` is the number of the last sample."""
        return _unrolled(self._hour, index, HOUR_SAMPLES)

    def day(self, index: int) -> list[int | None]:
        """Return the outline of the last day, the oldest first."""
        return _unrolled(self._day, (index + 1) // SAMPLES_PER_OUTLINE - 1, DAY_SAMPLES)

    def last(self, index: int) -> int | None:
        value = self._hour[index % HOUR_SAMPLES] if index >= 0 else NO_SAMPLE
        return None if value == NO_SAMPLE else value


def _unrolled(ring: Sequence[int], index: int, size: int) -> list[int | None]:
    values = (ring[each % size] if each >= 0 else NO_SAMPLE for each in range(index - size + 1, index + 1))
    return [None if value == NO_SAMPLE else value for value in values]


def _change(counts: Counts, before: Counts | None) -> Counts:
    """Return what was counted since the last sample; 0 for a topic that was deleted and created again."""
    if before is None or any(a < b for a, b in zip(counts, before, strict=True)):
        return Counts(0, 0, 0)
    return Counts(*(a - b for a, b in zip(counts, before, strict=True)))


class _TopicSeries:
    __slots__ = ("active_index", "series")

    def __init__(self) -> None:
        self.series = (Series(), Series(), Series())
        self.active_index = 0


class RatesHistory:
    """The history of one broker. `index` is the number of its last sample; before the first it is -1."""

    def __init__(self) -> None:
        self.index = -1
        self.recorded_ms = 0
        """Wall clock of the last sample."""
        self._known: dict[str, Counts] = {}
        self._topics: dict[str, _TopicSeries] = {}
        self._figures: dict[str, Series] = {}
        self._counters: dict[str, int] = {}
        self._rates: dict[str, Counts] = {}

    async def record(
        self,
        topics: Mapping[str, Counts],
        counters: Mapping[str, int],
        gauges: Mapping[str, int],
        now_ms: int,
        pause: Pause,
    ) -> None:
        """Take one sample: counts by topic, other counters, and values that are kept as they are."""
        self.index += 1
        self.recorded_ms = now_ms
        rates: dict[str, Counts] = {}
        for number, (name, counts) in enumerate(topics.items()):
            if number and number % STEP_SIZE == 0:
                await pause()
            before = self._known.get(name)
            if before is None and self.index:
                before = Counts(0, 0, 0)  # a new topic
            change = _change(counts, before)
            if any(change):
                rates[name] = change
            series = self._series_of(name, is_active=any(change))
            if series is not None:
                for one, value in zip(series.series, change, strict=True):
                    one.put(self.index, value, is_sum=True)
        self._rates = rates
        self._known = dict(topics)
        for name in self._topics.keys() - topics.keys():
            del self._topics[name]
        for name, count in counters.items():
            self._figure(name).put(self.index, max(0, count - self._counters.get(name, count)), is_sum=True)
        self._counters = dict(counters)
        for name, value in gauges.items():
            self._figure(name).put(self.index, value, is_sum=False)

    def rate_of(self, topic: str) -> tuple[float, float, float]:
        """Return records in, bytes in and bytes out per second over the last interval."""
        counts = self._rates.get(topic)
        seconds = INTERVAL_MS / 1000
        return (
            (0.0, 0.0, 0.0)
            if counts is None
            else (
                counts.messages_in / seconds,
                counts.bytes_in / seconds,
                counts.bytes_out / seconds,
            )
        )

    @property
    def figures(self) -> Mapping[str, Series]:
        """The series of this broker by name."""
        return self._figures

    def figure(self, name: str) -> Series | None:
        return self._figures.get(name)

    def topic(self, name: str) -> tuple[Series, Series, Series] | None:
        """Return the series of records in, bytes in and bytes out; None for a topic without activity."""
        found = self._topics.get(name)
        return None if found is None else found.series

    def _figure(self, name: str) -> Series:
        series = self._figures.get(name)
        if series is None:
            series = self._figures[name] = Series()
        return series

    def _series_of(self, name: str, *, is_active: bool) -> _TopicSeries | None:
        series = self._topics.get(name)
        if series is None:
            if not is_active:
                return None
            if len(self._topics) >= TOPICS_MAX:
                del self._topics[min(self._topics, key=lambda each: self._topics[each].active_index)]
            series = self._topics[name] = _TopicSeries()
        if is_active:
            series.active_index = self.index
        return series


GROUP_INTERVAL_MS: Final = 60_000
GROUP_SAMPLES: Final = 60
GROUP_PARTITIONS_MAX: Final = 20_000

GroupPartition = tuple[str, str, int]
"""Group, topic, partition."""


class Progress(NamedTuple):
    """How far a group is in a partition: unread offsets, and the committed offset."""

    lag: int
    committed: int


class PartitionHistory(NamedTuple):
    """The last hour of a group in a partition, the oldest sample first; rates are offsets per second."""

    lags: list[int | None]
    rates: list[float | None]


NO_HISTORY: Final = PartitionHistory([], [])


class GroupHistory:
    """The lag and the commits of the groups that this broker coordinates, one sample a minute for an hour."""

    def __init__(self) -> None:
        self.index = -1
        self.recorded_ms = 0
        self._rings: dict[GroupPartition, tuple[array[int], array[int]]] = {}
        """Lags and committed offsets."""

    def record(self, progress: Mapping[GroupPartition, Progress], now_ms: int) -> None:
        """Take one sample. Partitions that are no longer read by a group lose their history."""
        self.index += 1
        self.recorded_ms = now_ms
        for key in self._rings.keys() - progress.keys():
            del self._rings[key]
        for key, sample in progress.items():
            rings = self._rings.get(key)
            if rings is None:
                if len(self._rings) >= GROUP_PARTITIONS_MAX:
                    continue
                empty = array("q", [NO_SAMPLE]) * GROUP_SAMPLES
                rings = self._rings[key] = (empty, array("q", empty))
            for ring, value in zip(rings, sample, strict=True):
                ring[self.index % GROUP_SAMPLES] = value

    def of(self, group: str, topic: str, partition: int) -> PartitionHistory:
        """Return the history of a group in a partition; `NO_HISTORY` if there is none."""
        rings = self._rings.get((group, topic, partition))
        if rings is None:
            return NO_HISTORY
        lags, offsets = (_unrolled(ring, self.index, GROUP_SAMPLES) for ring in rings)
        return PartitionHistory(lags, [None, *map(_rate, pairwise(offsets))])


def _rate(offsets: tuple[int | None, int | None]) -> float | None:
    """Return the growth of committed offsets per second; 0 if they were reset to earlier ones."""
    before, after = offsets
    if before is None or after is None:
        return None
    return round(max(0, after - before) / (GROUP_INTERVAL_MS / 1000), 3)
