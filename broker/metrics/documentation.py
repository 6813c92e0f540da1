"""The table of metrics in docs/metrics.md, made from the metrics of a broker.

Owns the form of the table. Must not know any particular metric. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.metrics.metric import Kind, Metric, Shown

HEAD = ("| Prometheus name | kind | Kafka's name | meaning |", "|---|---|---|---|")
JSON_ONLY = "only in JSON"


def table(metrics: Iterable[Metric]) -> str:
    """Return the table, one row for each metric."""
    return "\n".join((*HEAD, *(_row(metric) for metric in metrics), ""))


def _row(metric: Metric) -> str:
    return f"| {_prometheus(metric)} | {metric.kind.value} | {_bean(metric)} | {metric.help} |"


def _prometheus(metric: Metric) -> str:
    if metric.shown is Shown.JSON:
        return JSON_ONLY
    name = metric.prometheus_name + ("_total" if metric.kind is Kind.METER else "")
    labels = ",".join(metric.label_names)
    return f"`{name}{{{labels}}}`" if labels else f"`{name}`"


def _bean(metric: Metric) -> str:
    return "".join(_parts(metric))


def _parts(metric: Metric) -> Iterator[str]:
    if metric.bean:
        yield f"`{','.join((metric.bean, *metric.tags))}`"
        if metric.attribute:
            yield f" {metric.attribute}"
