"""GetTelemetrySubscriptions (71): returns which metrics a client is asked to push, and how often (KIP-714)."""

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, boolean, int8, int16, int32, message, string, uuid


@message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=range(0, 1), flexible=0)
class GetTelemetrySubscriptionsRequest:
    client_instance_id: uuid  # zero: the client has none yet


@message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=range(0, 1), flexible=0)
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = []  # besides none; the preferred one first
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: boolean = False
    requested_metrics: list[string] = []  # prefixes of names; empty: none, *: all
