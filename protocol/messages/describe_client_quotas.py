"""DescribeClientQuotas (48): returns the quotas of users, clients and addresses (KIP-546).

v1 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, float64, int8, int16, int32, message, string, struct


@struct
class ComponentData:
    entity_type: string
    match_type: int8  # 0: exact, 1: default, 2: any of the type
    match: string | None


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=range(0, 2), flexible=1)
class DescribeClientQuotasRequest:
    components: list[ComponentData]
    strict: boolean


@struct
class EntityData:
    entity_type: string
    entity_name: string | None  # None: the default


@struct
class ValueData:
    key: string
    value: float64


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=range(0, 2), flexible=1)
class DescribeClientQuotasResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    entries: list[EntryData] | None = None
