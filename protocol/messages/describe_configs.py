"""DescribeConfigs (32): returns the configs of brokers and topics.

v1 adds synonyms and sources, v3 types and documentation.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int8, int16, int32, message, since, string, struct


@struct
class DescribeConfigsResource:
    resource_type: int8  # 2: topic, 4: broker, 8: broker logger
    resource_name: string
    configuration_keys: list[string] | None  # None: all


@message(ApiKey.DESCRIBE_CONFIGS, versions=range(0, 5), flexible=4)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = since(1, default=False)
    include_documentation: boolean = since(3, default=False)


@struct
class DescribeConfigsSynonym:
    name: string
    value: string | None
    source: int8


@struct
class DescribeConfigsResourceResult:
    name: string
    value: string | None
    read_only: boolean
    is_default: boolean = since(0, until=0, default=False)
    config_source: int8 = since(1, default=-1)  # 1: topic, 2: broker, 3: all brokers, 4: static, 5: default, 6: logger
    is_sensitive: boolean
    synonyms: list[DescribeConfigsSynonym] = since(1, default=[])
    config_type: int8 = since(3, default=0)
    documentation: string | None = since(3, default=None)


@struct
class DescribeConfigsResult:
    error_code: int16 = 0
    error_message: string | None = None
    resource_type: int8
    resource_name: string
    configs: list[DescribeConfigsResourceResult] = []


@message(ApiKey.DESCRIBE_CONFIGS, versions=range(0, 5), flexible=4)
class DescribeConfigsResponse:
    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = since(0, takes_encoded=True)
