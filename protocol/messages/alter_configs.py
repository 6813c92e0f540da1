"""AlterConfigs (33): replaces all overrides of a resource.

v2 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int8, int16, int32, message, string, struct


@struct
class AlterableConfig:
    name: string
    value: string | None


@struct
class AlterConfigsResource:
    resource_type: int8  # 2: topic, 4: broker, 8: broker logger
    resource_name: string
    configs: list[AlterableConfig]


@message(ApiKey.ALTER_CONFIGS, versions=range(0, 3), flexible=2)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResourceResponse:
    error_code: int16 = 0
    error_message: string | None = None
    resource_type: int8
    resource_name: string


@message(ApiKey.ALTER_CONFIGS, versions=range(0, 3), flexible=2)
class AlterConfigsResponse:
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]
