"""Metrics of client quotas.

Owns their names and texts. Must not know how rates are computed. Without quotas each has one sample of value 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from broker.metrics.metric import Kind, Metric, Sample, Samples, Shown, alone
from broker.quotas.enforcement import EnforcedQuotas, Key, Usage

_TAGS = ("user", "client-id")
THROTTLE_TEXT = "Average throttle in ms, over the windows of the quota."
EXEMPT_TEXT = "Time of requests of followers and other brokers, which have no quota, in percent of one second."
EXEMPT_NAME = "kafka_server_quota_exempt_request_time"
MUTED_TEXT = "Connections that are muted because of the quota."
_PROMETHEUS_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "byte-rate": "Bytes of Produce requests, and of records in Fetch responses, per second.",
        "request-time": "Time of requests in percent of one second.",
        "mutation-rate": "Partitions created and deleted per second.",
        "tokens": "Partitions that may be created or deleted before the quota is exceeded.",
        "throttle-time": THROTTLE_TEXT,
        "queue-size": MUTED_TEXT,
    }
)
_NO_USAGE = Usage("", "", 0.0, 0.0, 0.0)

_TYPES: tuple[tuple[Key, str, tuple[tuple[str, str, Callable[[Usage], float]], ...]], ...] = (
    (Key.PRODUCE, "Produce", (("byte-rate", "Bytes of Produce requests per second.", lambda used: used.rate),)),
    (Key.FETCH, "Fetch", (("byte-rate", "Bytes of records in Fetch responses per second.", lambda used: used.rate),)),
    (
        Key.REQUEST,
        "Request",
        (("request-time", "Time of requests in percent of one second.", lambda used: used.rate),),
    ),
    (
        Key.MUTATION,
        "ControllerMutation",
        (
            ("mutation-rate", "Partitions created and deleted per second.", lambda used: used.rate),
            (
                "tokens",
                "Partitions that may be created or deleted before the quota is exceeded.",
                lambda used: used.tokens,
            ),
        ),
    ),
)


def quota_metrics(quotas: EnforcedQuotas) -> Iterator[Metric]:
    """Return Kafka's objects, one for each kind of quota; for Prometheus the kind is a label, as in jmx_exporter."""
    by_name: dict[str, list[tuple[str, Callable[[], Samples]]]] = {}
    for key, name, amounts in _TYPES:
        bean = f"kafka.server:type={name}"
        of_all = (*amounts, ("throttle-time", THROTTLE_TEXT, lambda used: used.throttle_ms))
        for attribute, text, amount in of_all:
            read = _of_each(quotas, key, amount)
            by_name.setdefault(attribute, []).append((name, read))
            yield Metric(Kind.GAUGE, bean, text, read, _TAGS, attribute=attribute, shown=Shown.JSON)
        muted = alone(partial(quotas.muted_count, key))
        by_name.setdefault("queue-size", []).append((name, muted))
        yield Metric(Kind.GAUGE, bean, MUTED_TEXT, muted, attribute="queue-size", shown=Shown.JSON)
    exempt = alone(quotas.exempt_request_time)
    request = "kafka.server:type=Request"
    yield Metric(Kind.GAUGE, request, EXEMPT_TEXT, exempt, attribute="exempt-request-time", own_name=EXEMPT_NAME)
    for attribute, text in _PROMETHEUS_TEXTS.items():
        yield Metric(
            Kind.GAUGE,
            "",
            text,
            partial(_of_resources, by_name[attribute]),
            ("resource",) if attribute == "queue-size" else ("resource", "user", "clientId"),
            own_name=f"kafka_server_quota_{attribute.replace('-', '_')}",
            shown=Shown.PROMETHEUS,
        )


def _of_resources(parts: Iterable[tuple[str, Callable[[], Samples]]]) -> Iterator[Sample]:
    for resource, read in parts:
        for sample in read():
            if sample is not None:
                tags, value = sample
                yield (resource, *tags), value


def _of_each(quotas: EnforcedQuotas, key: Key, value: Callable[[Usage], float]) -> Callable[[], Samples]:
    return lambda: [((used.user, used.client_id), value(used)) for used in quotas.usage(key) or [_NO_USAGE]]
