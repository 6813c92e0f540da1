"""How fast the partitions that other brokers lead grow, by the last two samples of their end offsets.

Owns the samples and their bounds. Must not know HTTP, or how offsets are asked for. Pure: methods get the time.

Kafka's protocol has no request for the rates of another broker, but ListOffsets has the end offsets of every partition.
Their growth counts records and also markers of transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from base.dataclass import dataclass

INTERVAL_MS: Final = 5_000
"""The shortest time between two samples of one topic."""
VALID_MS: Final = 60_000
"""A sample of this age no longer counts: the growth since then says little about the present."""
PARTITIONS_MAX: Final = 20_000

EndOffsets = Mapping[int, int]
"""End offsets by partition."""


@dataclass(frozen=True, slots=True)
class _Samples:
    """The last sample of a topic, and the growth per second since the one before; None without one."""

    at_ms: int
    ends: EndOffsets
    per_second: float | None


class OffsetGrowth:
    """The growth of topics in partitions that other brokers lead."""

    def __init__(self) -> None:
        self._topics: dict[str, _Samples] = {}
        """The topic that was sampled last is the last one."""
        self._partition_count = 0

    def record(self, topics: Mapping[str, EndOffsets], now_ms: int) -> None:
        """Take one sample of some topics. Ignores those whose last sample is younger than `INTERVAL_MS`.

        Above `PARTITIONS_MAX` partitions the topics that were sampled least recently are forgotten.
        """
        for name, ends in topics.items():
            last = self._topics.get(name)
            if last is not None:
                if now_ms - last.at_ms < INTERVAL_MS:
                    continue
                self._forget(name)
            self._topics[name] = _Samples(now_ms, dict(ends), _growth(last, ends, now_ms))
            self._partition_count += len(ends)
        while self._partition_count > PARTITIONS_MAX:
            self._forget(next(iter(self._topics)))

    def per_second(self, topic: str, now_ms: int) -> float | None:
        """Return the growth in offsets per second; None without two samples that are recent enough."""
        last = self._topics.get(topic)
        return None if last is None or now_ms - last.at_ms >= VALID_MS else last.per_second

    def _forget(self, topic: str) -> None:
        self._partition_count -= len(self._topics.pop(topic).ends)


def _growth(before: _Samples | None, ends: EndOffsets, now_ms: int) -> float | None:
    """Return the growth per second. A partition whose end offset fell, by a new topic of that name, counts as 0."""
    if before is None or now_ms - before.at_ms >= VALID_MS or before.ends.keys() != ends.keys():
        return None  # partitions that were added or changed their leader are compared at the next sample
    growth = sum(max(0, end - before.ends[partition]) for partition, end in ends.items())
    return growth * 1000 / (now_ms - before.at_ms)
