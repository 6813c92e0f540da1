"""A metric: its names, and a function that reads its value from the owner of the value.

Owns: the kinds of metrics, and the rule that derives a Prometheus name from an object name. Must not know: any
particular metric, or how metrics are shown.

Nothing is counted here. A metric is read on request, so a broker without requests for metrics does no work for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from base.dataclass import dataclass


class Kind(Enum):
    """The kind of a metric's values, under the name that docs/metrics.md uses."""

    GAUGE = "gauge"
    """A number that goes up and down, or a text."""
    METER = "meter"
    """A count of events, which only rises. JSON adds its rates."""
    HISTOGRAM = "histogram"
    """A `Distribution` of measured values."""
    TIMER = "timer"
    """A `Distribution` of durations. JSON adds how often they end."""
    LOWEST_RATE = "lowest rate"
    """The lowest rate of several counts, averaged over a minute. A sample has one tag value more than the metric has
    tags: it distinguishes the counts of one subject."""
    RATE = "rate"
    """A count of events, shown as events per second over the last windows (`metrics.sample.window.ms`)."""


class Shown(Enum):
    """Which of the two representations have a metric."""

    EVERYWHERE = "everywhere"
    PROMETHEUS = "prometheus"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Distribution:
    """The number and the sum of all measured values, and figures of a sample of the latest.

    The keys of `quantiles` are spelled as in Kafka's dashboards ("0.50"). It is empty if no sample is kept.
    """

    count: int
    total: float
    quantiles: Mapping[str, float]
    minimum: float = 0.0
    maximum: float = 0.0
    standard_deviation: float = 0.0


T = TypeVar("T")

TagValues = tuple[str, ...]
Value = int | float | str | Mapping[str, int | float] | Distribution
"""Texts and mappings are shown in JSON only."""
Sample = tuple[TagValues, Value]
Samples = Iterable[Sample | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of any number of subjects, which its `tags` distinguish.

    `bean` is its object name without tags ("kafka.server:type=ReplicaManager,name=LeaderCount"), `attribute` the
    attribute of a bean that has several ("offset-commit-count"). `read()` yields the values of the tags and the
    value of each present subject; a sample without tag values is the sum over all subjects. It runs on the event
    loop, which may serve other work between two samples. A None among the samples means that enough was computed for
    one turn.
    """

    kind: Kind
    bean: str
    help: str
    read: Callable[[], Samples]
    tags: tuple[str, ...] = ()
    attribute: str = ""
    own_name: str = ""
    """The Prometheus name where it does not follow from the object name."""
    is_per_partition: bool = False
    shown: Shown = Shown.EVERYWHERE
    event_type: str = ""
    """What a meter counts, in Kafka's words, where its name does not say it."""
    rate_unit_s: float = 1.0
    """The unit of time of a meter's rates, in seconds."""

    @property
    def prometheus_name(self) -> str:
        """As the usual rules of jmx_exporter make it: lower case, a meter's without PerSec. No suffix of its kind."""
        if self.own_name:
            return self.own_name
        domain, _, properties = self.bean.partition(":")
        parts = [domain, *(each.partition("=")[2] for each in properties.split(",")), self.attribute]
        name = "_".join(filter(None, parts)).lower().replace(".", "_").replace("-", "_")
        return name.removesuffix("persec") if self.kind is Kind.METER else name

    @property
    def label_names(self) -> tuple[str, ...]:
        """The tags as Prometheus may have them."""
        return tuple(tag.replace("-", "_") for tag in self.tags)


def alone(read: Callable[[], Value]) -> Callable[[], Iterable[Sample]]:
    """The view of a metric that the broker has once."""
    return lambda: [((), read())]


def counted(count: Callable[[], Iterable[int | None]]) -> Callable[[], Samples]:
    """The view of a metric that is counted in slices: `count()` yields None after each, and at last the value."""
    return lambda: (None if value is None else ((), value) for value in count())


def gauges(
    bean: str,
    table: Iterable[tuple[str, str, T]],
    view: Callable[[T], Callable[[], Samples]],
    tags: tuple[str, ...] = (),
    *,
    is_per_partition: bool = False,
) -> Iterator[Metric]:
    """A gauge for each row of the table: its name within `bean`, its text, and a fact that `view` looks up."""
    for name, text, fact in table:
        yield Metric(Kind.GAUGE, f"{bean},name={name}", text, view(fact), tags, is_per_partition=is_per_partition)
