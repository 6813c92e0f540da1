"""SaslAuthenticate (36): carries the tokens of a SASL exchange.

v1 adds the lifetime of the session (KIP-368).
"""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, int64, message, since, string


@message(ApiKey.SASL_AUTHENTICATE, versions=range(0, 3), flexible=2)
class SaslAuthenticateRequest:
    auth_bytes: bytes_


@message(ApiKey.SASL_AUTHENTICATE, versions=range(0, 3), flexible=2)
class SaslAuthenticateResponse:
    error_code: int16 = 0
    error_message: string | None = None
    auth_bytes: bytes_ = b""
    session_lifetime_ms: int64 = since(1, default=0)  # 0: no need to authenticate again
