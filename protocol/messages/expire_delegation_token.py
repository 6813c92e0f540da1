"""ExpireDelegationToken (40): changes when a delegation token expires, or expires it now.

v2 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, int32, int64, message


@message(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=range(0, 3), flexible=2)
class ExpireDelegationTokenRequest:
    hmac: bytes_
    expiry_time_period_ms: int64  # below 0: now


@message(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=range(0, 3), flexible=2)
class ExpireDelegationTokenResponse:
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = -1
    throttle_time_ms: int32 = 0
