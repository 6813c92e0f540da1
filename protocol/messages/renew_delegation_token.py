"""RenewDelegationToken (39): extends the life of a delegation token.

v2 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, int32, int64, message


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions=range(0, 3), flexible=2)
class RenewDelegationTokenRequest:
    hmac: bytes_
    renew_period_ms: int64


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions=range(0, 3), flexible=2)
class RenewDelegationTokenResponse:
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = -1
    throttle_time_ms: int32 = 0
