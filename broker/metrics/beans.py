"""Metrics as JMX objects: names with attributes.

Owns which attributes each kind of metric has. Must not know any particular metric, or how requests ask for objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Final

from base.dataclass import dataclass
from broker.metrics.metric import Distribution, Kind, Metric, Sample, Shown, TagValues
from broker.metrics.object_names import NamePattern, object_name
from broker.metrics.registry import SAMPLES_PER_STEP, Registry

Attributes = Mapping[str, object]
Bean = tuple[str, Attributes]

PERCENTILES: Final = (
    ("50thPercentile", "0.50"),
    ("75thPercentile", "0.75"),
    ("95thPercentile", "0.95"),
    ("98thPercentile", "0.98"),
    ("99thPercentile", "0.99"),
    ("999thPercentile", "0.999"),
)
RATE_UNITS: Final = {1.0: "SECONDS", 1e-9: "NANOSECONDS"}
EVENT_TYPES: Final[Mapping[frozenset[str], str]] = {
    frozenset(names.split()): word
    for word, names in {
        "messages": "MessagesInPerSec",
        "bytes": "BytesInPerSec BytesOutPerSec BytesRejectedPerSec BytesPerSec",
        "requests": "RequestsPerSec ErrorsPerSec DeprecatedRequestsPerSec ExpiresPerSec TotalProduceRequestsPerSec "
        "TotalFetchRequestsPerSec FailedProduceRequestsPerSec FailedFetchRequestsPerSec FetchMessageConversionsPerSec "
        "ProduceMessageConversionsPerSec NoKeyCompactedTopicRecordsPerSec InvalidMagicNumberRecordsPerSec "
        "InvalidMessageCrcRecordsPerSec InvalidOffsetOrSequenceRecordsPerSec",
        "shrinks": "IsrShrinksPerSec",
        "expands": "IsrExpandsPerSec",
        "failedUpdates": "FailedIsrUpdatesPerSec",
        "elections": "UncleanLeaderElectionsPerSec",
        "evictions": "IncrementalFetchSessionEvictionsPerSec",
        "disconnects": "ZooKeeperDisconnectsPerSec",
        "syncconnects": "ZooKeeperSyncConnectsPerSec",
        "authfailures": "ZooKeeperAuthFailuresPerSec",
        "readonlyconnects": "ZooKeeperReadOnlyConnectsPerSec",
        "saslauthentications": "ZooKeeperSaslAuthenticationsPerSec",
        "expires": "ZooKeeperExpiresPerSec",
    }.items()
}
"""What meters count, by their names."""
METER_ATTRIBUTES: Final = (
    "EventType",
    "RateUnit",
    "OneMinuteRate",
    "FiveMinuteRate",
    "FifteenMinuteRate",
    "MeanRate",
    "Count",
)
HISTOGRAM_ATTRIBUTES: Final = (*(name for name, _ in PERCENTILES), "Count", "Min", "Max", "Mean", "StdDev")
ATTRIBUTES: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.GAUGE: ("Value",),
    Kind.RATE: ("Value",),
    Kind.LOWEST_RATE: ("Value",),
    Kind.METER: METER_ATTRIBUTES,
    Kind.HISTOGRAM: HISTOGRAM_ATTRIBUTES,
    Kind.TIMER: ("LatencyUnit", *METER_ATTRIBUTES, *HISTOGRAM_ATTRIBUTES),
}


@dataclass(frozen=True)
class Family:
    """The objects that differ only in the values of their tags, with the metrics that are their attributes."""

    bean: str
    tags: tuple[str, ...]
    metrics: list[Metric] = field(default_factory=list)

    @property
    def domain(self) -> str:
        return self.bean.partition(":")[0]

    @property
    def fixed(self) -> dict[str, str]:
        """The keys that all have, with their values."""
        return dict(each.split("=", 1) for each in self.bean.partition(":")[2].split(","))


def families(registry: Registry, *, with_partitions: bool) -> Collection[Family]:
    """Return all families of objects."""
    found: dict[tuple[str, tuple[str, ...]], Family] = {}
    for metric in registry.metrics:
        if metric.bean and metric.shown is not Shown.PROMETHEUS and (with_partitions or not metric.is_per_partition):
            key = metric.bean, metric.tags
            found.setdefault(key, Family(*key)).metrics.append(metric)
    return found.values()


def beans(registry: Registry, family: Family, wanted: NamePattern | None = None) -> Iterator[Bean | None]:
    """Yield the objects of `family` that match; a None means that enough was computed for one turn."""
    if wanted is not None and not _may_match(family, wanted):
        return
    gathered: dict[TagValues, dict[str, object]] = {}
    for metric in family.metrics:
        for number, sample in enumerate(registry.samples(metric)):
            if sample is None or number % SAMPLES_PER_STEP == SAMPLES_PER_STEP - 1:
                yield None
            if sample is None or (wanted is not None and not _matches(family, sample[0], wanted)):
                continue
            attributes = _attributes(registry, metric, sample)
            if len(family.metrics) == 1:
                yield object_name(family.bean, family.tags, sample[0]), attributes
            else:
                gathered.setdefault(sample[0], {}).update(attributes)
    for tags, merged in gathered.items():
        yield object_name(family.bean, family.tags, tags), merged


def _may_match(family: Family, wanted: NamePattern) -> bool:
    fixed = family.fixed
    if not wanted.matches_domain(family.domain) or not wanted.properties.keys() <= {*fixed, *family.tags}:
        return False
    if not wanted.is_open and not fixed.keys() <= wanted.properties.keys():
        return False
    return wanted.matches(fixed, fixed.values())


def _matches(family: Family, tags: TagValues, wanted: NamePattern) -> bool:
    named = {tag: value for tag, value in zip(family.tags, tags, strict=False) if value}
    return wanted.matches_keys(frozenset({*family.fixed, *named})) and wanted.matches(named, named.values())


def attribute_names(metric: Metric) -> tuple[str, ...]:
    """Return the attributes that `metric` gives its objects."""
    return (metric.attribute,) if metric.attribute else ATTRIBUTES[metric.kind]


def event_type(metric: Metric) -> str:
    """Return what a meter counts, in Kafka's words."""
    if metric.kind is Kind.TIMER:
        return "calls"
    name = metric.bean.rpartition("name=")[2]
    return metric.event_type or next((word for words, word in EVENT_TYPES.items() if name in words), "events")


def _attributes(registry: Registry, metric: Metric, sample: Sample) -> dict[str, object]:
    tags, value = sample
    if metric.kind in (Kind.GAUGE, Kind.RATE, Kind.LOWEST_RATE):
        return {metric.attribute or "Value": value}
    attributes: dict[str, object] = {}
    if metric.kind is Kind.TIMER:
        attributes["LatencyUnit"] = "MILLISECONDS"
    if metric.kind is not Kind.HISTOGRAM:
        count = value.count if isinstance(value, Distribution) else value
        assert not isinstance(count, str | Mapping), f"the count of {metric.bean} is no number"
        mean, one, five, fifteen = registry.rates(metric, tags, count)
        attributes |= {
            "EventType": event_type(metric),
            "RateUnit": RATE_UNITS[metric.rate_unit_s],
            "OneMinuteRate": one,
            "FiveMinuteRate": five,
            "FifteenMinuteRate": fifteen,
            "MeanRate": mean,
            "Count": count,
        }
    if isinstance(value, Distribution):
        attributes |= {name: value.quantiles.get(share, 0.0) for name, share in PERCENTILES}
        attributes |= {
            "Count": value.count,
            "Min": value.minimum,
            "Max": value.maximum,
            "Mean": value.total / value.count if value.count else 0.0,
            "StdDev": value.standard_deviation,
        }
    return attributes
