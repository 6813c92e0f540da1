"""GetTelemetrySubscriptions: tell a client which metrics to push (KIP-714).

Sums are requested as totals, not as deltas: the broker shows the latest value.
"""

from __future__ import annotations

from typing import Protocol

from base.clock import Clock
from broker.handlers.client_attributes import attributes_of
from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from broker.telemetry.client_instances import ClientInstances
from protocol.api_key import ApiKey
from protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from protocol.records.compression import Compression

ACCEPTED = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)

API = Declaration(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    client_instances: ClientInstances


def handle(
    services: Needs, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    instances = services.client_instances
    instance = instances.ask(request.client_instance_id, attributes_of(context), services.clock.monotonic_ms())
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=instances.max_bytes,
        delta_temporality=False,
        requested_metrics=list(instance.metrics),
    )
