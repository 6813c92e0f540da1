"""CreateDelegationToken (38): creates a delegation token.

v3 lets one principal create tokens for another (KIP-373).
"""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, int32, int64, message, since, string, struct


@struct
class CreatableRenewers:
    principal_type: string
    principal_name: string


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions=range(0, 4), flexible=2)
class CreateDelegationTokenRequest:
    owner_principal_type: string | None = since(3, default=None)
    owner_principal_name: string | None = since(3, default=None)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int64


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions=range(0, 4), flexible=2)
class CreateDelegationTokenResponse:
    error_code: int16 = 0
    principal_type: string = ""
    principal_name: string = ""
    token_requester_principal_type: string = since(3, default="")
    token_requester_principal_name: string = since(3, default="")
    issue_timestamp_ms: int64 = -1
    expiry_timestamp_ms: int64 = -1
    max_timestamp_ms: int64 = -1
    token_id: string = ""
    hmac: bytes_ = b""
    throttle_time_ms: int32 = 0
