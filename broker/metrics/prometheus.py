"""Writes metrics in the text format 0.0.4 of Prometheus, and in OpenMetrics 1.0.

Owns the two formats. Must not know any particular metric. Pure. The text comes in pieces of limited length, so that the
event loop can do other work in between. A broker may have a hundred thousand series, so this writes text directly
instead of building objects of a library.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Final

from broker.metrics.metric import Distribution, Kind, Metric, Shown, TagValues, Value
from broker.metrics.registry import Registry

SAMPLES_PER_PIECE = 250
"""About a quarter of a millisecond."""
LABELS_MAX = 50_000
"""How many texts of labels a response keeps, about 10 MB."""

logger = logging.getLogger("kafka.server.Metrics")


TYPES: Final[Mapping[Kind, str]] = {
    Kind.GAUGE: "gauge",
    Kind.RATE: "gauge",
    Kind.LOWEST_RATE: "gauge",
    Kind.METER: "counter",
    Kind.HISTOGRAM: "summary",
    Kind.TIMER: "summary",
}


def pieces(registry: Registry, *, with_partitions: bool, is_open_metrics: bool) -> Iterator[str]:
    """The text of all metrics, without OpenMetrics' end mark; a piece may be empty.

    A metric that cannot be read is logged and left out.
    """
    labels = _Labels()
    for metric in registry.metrics:
        if metric.shown is Shown.JSON or (metric.is_per_partition and not with_partitions):
            continue
        try:
            yield from _pieces_of(registry, metric, labels.of(metric.label_names), is_open_metrics)
        except Exception:
            logger.exception("cannot read the metric %s", metric.prometheus_name)


class _Labels:
    """The labels of one response by the names and values of the tags.

    Ten metrics have a line for each partition, so most lines have the labels of an earlier one.
    """

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], dict[TagValues, str]] = {}

    def of(self, names: tuple[str, ...]) -> dict[TagValues, str]:
        """Return the mapping from the values of these tags to the text between braces, which finds missing texts."""
        if names not in self._by_names:
            self._by_names[names] = _LabelsOfNames(names)
        return self._by_names[names]


class _LabelsOfNames(dict[TagValues, str]):
    """See `_Labels`. Keeps at most `LABELS_MAX` texts."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, tags: TagValues) -> str:
        if not tags:
            return ""  # a sum over all subjects has none
        if len(self) >= LABELS_MAX:
            self.clear()
        text = self[tags] = ",".join(
            [f'{name}="{_escaped(value)}"' for name, value in zip(self._names, tags, strict=True)]
        )
        return text


def _pieces_of(
    registry: Registry, metric: Metric, labels: Mapping[TagValues, str], is_open_metrics: bool
) -> Iterator[str]:
    name = metric.prometheus_name
    total = f"{name}_total" if metric.kind is Kind.METER else name
    title = name if is_open_metrics else total
    head = f"# HELP {title} {_escaped(metric.help)}\n# TYPE {title} {TYPES[metric.kind]}\n"
    lines: list[str] = []
    for sample in registry.samples(metric):
        if sample is not None:
            tags, value = sample
            text = labels[tags]
            if isinstance(value, int) and text:  # the great majority
                lines.append(f"{total}{{{text}}} {value}\n")
            else:
                lines.append(_line(total, text, value))
            if head:
                lines[0], head = head + lines[0], ""
        if sample is None or len(lines) >= SAMPLES_PER_PIECE:
            yield "".join(lines)
            lines.clear()
    if lines:
        yield "".join(lines)


def _line(name: str, labels: str, value: Value) -> str:
    assert not isinstance(value, str | Mapping), f"{name} is a text or a mapping, which only JSON can show"
    if isinstance(value, Distribution):
        return _summary(name, labels, value)
    return f"{name}{{{labels}}} {_number(value)}\n" if labels else f"{name} {_number(value)}\n"


def _summary(name: str, labels: str, value: Distribution) -> str:
    also = f",{labels}" if labels else ""
    of = f"{{{labels}}}" if labels else ""
    lines = [f'{name}{{quantile="{share}"{also}}} {_number(each)}\n' for share, each in value.quantiles.items()]
    return "".join((*lines, f"{name}_sum{of} {_number(value.total)}\n", f"{name}_count{of} {value.count}\n"))


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
