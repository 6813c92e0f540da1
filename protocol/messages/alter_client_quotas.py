"""AlterClientQuotas (49): changes the quotas of users, clients and addresses (KIP-546).

v1 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, float64, int16, int32, message, string, struct


@struct
class EntityData:
    entity_type: string
    entity_name: string | None  # None: the default


@struct
class OpData:
    key: string
    value: float64
    remove: boolean


@struct
class EntryData:
    entity: list[EntityData]
    ops: list[OpData]


@message(ApiKey.ALTER_CLIENT_QUOTAS, versions=range(0, 2), flexible=1)
class AlterClientQuotasRequest:
    entries: list[EntryData]
    validate_only: boolean


@struct
class EntryResult:
    error_code: int16 = 0
    error_message: string | None = None
    entity: list[EntityData]


@message(ApiKey.ALTER_CLIENT_QUOTAS, versions=range(0, 2), flexible=1)
class AlterClientQuotasResponse:
    throttle_time_ms: int32 = 0
    entries: list[EntryResult]
