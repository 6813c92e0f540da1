"""ListConfigResources (74): lists what can have configurations.

v0 lists subscriptions to metrics of clients (KIP-714), and was named ListClientMetricsResources; v1 any types of
resources (KIP-1142).
"""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, message, since, string, struct


@message(ApiKey.LIST_CONFIG_RESOURCES, versions=range(0, 2), flexible=0)
class ListConfigResourcesRequest:
    resource_types: list[int8] = since(1, default=[])  # empty: all


@struct
class ConfigResource:
    resource_name: string
    resource_type: int8 = since(1, default=16)  # 16: a subscription to metrics of clients


@message(ApiKey.LIST_CONFIG_RESOURCES, versions=range(0, 2), flexible=0)
class ListConfigResourcesResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = []
