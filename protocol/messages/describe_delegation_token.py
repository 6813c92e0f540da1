"""DescribeDelegationToken (41): lists delegation tokens.

v3 adds their requester (KIP-373).
"""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, int32, int64, message, since, string, struct


@struct
class DescribeDelegationTokenOwner:
    principal_type: string
    principal_name: string


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=range(0, 4), flexible=2)
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None  # None: all


@struct
class DescribedDelegationTokenRenewer:
    principal_type: string
    principal_name: string


@struct
class DescribedDelegationToken:
    principal_type: string
    principal_name: string
    token_requester_principal_type: string = since(3, default="")
    token_requester_principal_name: string = since(3, default="")
    issue_timestamp: int64
    expiry_timestamp: int64
    max_timestamp: int64
    token_id: string
    hmac: bytes_
    renewers: list[DescribedDelegationTokenRenewer]


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=range(0, 4), flexible=2)
class DescribeDelegationTokenResponse:
    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: int32 = 0
