"""PushTelemetry: keep the latest values of the metrics of a client (KIP-714)."""

from __future__ import annotations

from typing import Protocol

from base.clock import Clock
from broker.handlers.client_attributes import attributes_of
from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from broker.loop.cpu_pool import CpuPool
from broker.telemetry.client_instances import ClientInstances, Point
from broker.telemetry.otlp import points_of
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from protocol.records.compression import Compression, decompress

OPENED_SIZE_MAX = 4 << 20
"""In bytes. A compressed push may not open to more."""

API = Declaration(ApiKey.PUSH_TELEMETRY)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    client_instances: ClientInstances
    cpu_pool: CpuPool


async def handle(services: Needs, request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    instances, metrics, codec = services.client_instances, request.metrics, request.compression_type
    instances.check_push(
        request.client_instance_id,
        attributes_of(context),
        services.clock.monotonic_ms(),
        subscription_id=request.subscription_id,
        codec=codec,
        size=len(metrics),
        is_terminating=request.terminating,
    )
    if metrics:
        instances.keep(request.client_instance_id, await services.cpu_pool.run(lambda: _opened(codec, metrics)))
    return PushTelemetryResponse()


def _opened(codec: int, metrics: bytes) -> list[Point]:
    """Return the values of a push. Raises KafkaError(INVALID_RECORD)."""
    try:
        return points_of(decompress(Compression(codec), metrics, size_max=OPENED_SIZE_MAX))
    except (Malformed, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"metrics that cannot be read: {error}") from error
