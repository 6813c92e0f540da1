"""Metrics of client quotas.

Owns their names and texts. Must not know how rates are computed. Without quotas each has one sample of value 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.metrics.metric import Kind, Metric, Samples, alone
from broker.quotas.enforcement import EnforcedQuotas, Key, Usage

_TAGS = ("user", "client-id")
_NOBODY = Usage("", "", 0.0, 0.0, 0.0)

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
    for key, name, amounts in _TYPES:
        bean = f"kafka.server:type={name}"
        for attribute, text, amount in amounts:
            yield Metric(Kind.GAUGE, bean, text, _of_each(quotas, key, amount), _TAGS, attribute=attribute)
        yield Metric(
            Kind.GAUGE,
            bean,
            "Average throttle in ms, over the windows of the quota.",
            _of_each(quotas, key, lambda used: used.throttle_ms),
            _TAGS,
            attribute="throttle-time",
        )
        yield Metric(
            Kind.GAUGE,
            bean,
            "Connections that are muted because of the quota.",
            alone(lambda key=key: quotas.muted_count(key)),  # type: ignore[misc]
            attribute="queue-size",
        )


def _of_each(quotas: EnforcedQuotas, key: Key, value: Callable[[Usage], float]) -> Callable[[], Samples]:
    return lambda: [((used.user, used.client_id), value(used)) for used in quotas.usage(key) or [_NOBODY]]
