"""IncrementalAlterConfigs (44): changes single overrides of a resource.

v1 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int8, int16, int32, message, string, struct


@struct
class AlterableConfig:
    name: string
    config_operation: int8  # 0: set, 1: delete, 2: append, 3: subtract
    value: string | None


@struct
class AlterConfigsResource:
    resource_type: int8  # 2: topic, 4: broker, 8: broker logger
    resource_name: string
    configs: list[AlterableConfig]


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=range(0, 2), flexible=1)
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResourceResponse:
    error_code: int16 = 0
    error_message: string | None = None
    resource_type: int8
    resource_name: string


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=range(0, 2), flexible=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]
