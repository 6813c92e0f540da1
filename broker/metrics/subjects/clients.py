"""Metrics of clients that push theirs (KIP-714).

Owns their names and texts. Must not know which clients push what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.metrics.metric import Kind, Metric, Shown, alone
from broker.telemetry.client_instances import ClientInstances

_BEAN = "kafka.server:type=client-metrics"


def client_metrics(instances: ClientInstances, monotonic_ms: Callable[[], int]) -> Iterator[Metric]:
    yield Metric(
        Kind.GAUGE,
        _BEAN,
        "Clients that push metrics, or asked which ones to push.",
        alone(lambda: instances.count),
        attribute="instance-count",
    )
    yield Metric(
        Kind.GAUGE,
        _BEAN,
        "Pushes of a subscription that the client does not have any more.",
        alone(lambda: instances.unknown_subscription_count),
        attribute="unknown-subscription-request-count",
    )
    yield Metric(
        Kind.GAUGE,
        _BEAN,
        "Values that clients pushed and the broker did not keep, because one client or all have too many.",
        alone(lambda: instances.dropped_count),
        attribute="dropped-value-count",
    )
    yield Metric(
        Kind.GAUGE,
        "",
        "The latest values of the metrics that clients pushed, by the name that the client gave them.",
        lambda: instances.values(monotonic_ms()),
        ("client-id", "client-instance-id", "metric", "attributes"),
        own_name="kafka_client_metric",
        shown=Shown.PROMETHEUS,
    )
