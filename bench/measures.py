"""Measures with their units and targets, and the comparison of their values.

Pure: values in, verdicts out.

Owns targets and ratios. Must not know cases, servers or the layout of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from bench.names import KAFKA, MILENA, MILENA_BEFORE, MILENA_INTERPRETED, REFERENCES

Values = Mapping[str, float]
"""The result of one run of a case: the value of each measure, by name."""


class Better(Enum):
    """The direction in which a measure improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Target:
    """A limit for Milena: as a multiple of Kafka's value, or absolute in the measure's unit."""

    limit: float
    is_multiple: bool


@dataclass(frozen=True)
class Measure:
    """One figure of a case, with or without a target."""

    name: str
    unit: str
    better: Better
    target: Target | None = None
    decimals: int = 0

    def target_text(self) -> str:
        if self.target is None:
            return ""
        sign = "≤" if self.better is Better.LOWER else "≥"
        return f"{sign} {self.target.limit:g} {'x' if self.target.is_multiple else self.unit}"


def times(limit: float) -> Target:
    return Target(limit, is_multiple=True)


def absolute(limit: float) -> Target:
    return Target(limit, is_multiple=False)


def moved_bytes(throughput: Target | None = None, cpu: Target | None = None) -> tuple[Measure, Measure]:
    """Return the two measures of a case that moves bytes, with their targets."""
    return (
        Measure("throughput", "MB/s", Better.HIGHER, throughput),
        Measure("CPU", "s/GB", Better.LOWER, cpu, decimals=2),
    )


@dataclass(frozen=True)
class Row:
    """One measure's values over the rounds, for every server that ran."""

    case: str
    title: str
    measure: Measure
    values: Mapping[str, Sequence[float]]
    """By the name of the server; none for a server that did not run the case."""
    client_share: float
    """The largest share of the time in which the client computed; near 1 the client limits the result."""

    @property
    def milena(self) -> Sequence[float]:
        return self.values.get(MILENA, ())

    @property
    def reference(self) -> str | None:
        """Return the server that ratios refer to; None if the run has none of `REFERENCES`."""
        return next((name for name in REFERENCES if name in self.values), None)

    @property
    def ratio(self) -> float | None:
        """Return Milena's median divided by the reference's; None unless both ran."""
        return self.ratio_of(MILENA)

    def ratio_of(self, server: str) -> float | None:
        """Return the median of a server divided by the reference's; None unless both ran."""
        own, reference = self.values.get(server), self.values.get(self.reference or "")
        if not own or not reference or not median(reference):
            return None
        return median(own) / median(reference)

    @property
    def best_peer(self) -> str | None:
        """Return the server with the best median of those that are not Milena; None if none of them ran."""
        versions = (MILENA, MILENA_INTERPRETED, MILENA_BEFORE)
        peers = [name for name, values in self.values.items() if values and name not in versions]
        best = min if self.measure.better is Better.LOWER else max
        return best(peers, key=lambda name: median(self.values[name]), default=None)

    @property
    def is_met(self) -> bool | None:
        """Return whether Milena's median meets the target; None without a target or the required runs."""
        target = self.measure.target
        if target is None or not self.milena or (target.is_multiple and self.reference != KAFKA):
            return None
        value = self.ratio if target.is_multiple else median(self.milena)
        if value is None:
            return None
        return value <= target.limit if self.measure.better is Better.LOWER else value >= target.limit

    @property
    def advantage(self) -> float | None:
        """Return how many times better Milena is, in the direction in which the measure improves."""
        if not self.ratio:
            return None
        return self.ratio if self.measure.better is Better.HIGHER else 1 / self.ratio


def medians(sections: Sequence[Values]) -> Values:
    """Return the median of every measure over the sections, which all have the same measures."""
    return {name: median(section[name] for section in sections) for name in sections[0]}


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value with at least `share` of all values at or below it."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def as_json(rows: Sequence[Row]) -> list[Mapping[str, object]]:
    return [
        {
            "case": row.case,
            "title": row.title,
            "measure": row.measure.name,
            "unit": row.measure.unit,
            "better": row.measure.better.value,
            "target": row.measure.target_text(),
            "values": {name: list(values) for name, values in row.values.items()},
            "ratio": row.ratio,
            "best_peer": row.best_peer,
            "met": row.is_met,
            "client_share": row.client_share,
        }
        for row in rows
    ]
