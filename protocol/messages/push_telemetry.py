"""PushTelemetry (72): carries the metrics that a client was asked for (KIP-714)."""

from protocol.api_key import ApiKey
from protocol.schema import boolean, bytes_, int8, int16, int32, message, uuid


@message(ApiKey.PUSH_TELEMETRY, versions=range(0, 1), flexible=0)
class PushTelemetryRequest:
    client_instance_id: uuid
    subscription_id: int32
    terminating: boolean  # whether it is the last push of the client
    compression_type: int8
    metrics: bytes_  # OpenTelemetry's MetricsData, compressed


@message(ApiKey.PUSH_TELEMETRY, versions=range(0, 1), flexible=0)
class PushTelemetryResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
