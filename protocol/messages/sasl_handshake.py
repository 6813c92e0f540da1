"""SaslHandshake (17): agrees on a SASL mechanism.

After v0 the tokens follow as bare frames; after v1 they are sent in SaslAuthenticate.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, message, string


@message(ApiKey.SASL_HANDSHAKE, versions=range(0, 2), flexible=None)
class SaslHandshakeRequest:
    mechanism: string


@message(ApiKey.SASL_HANDSHAKE, versions=range(0, 2), flexible=None)
class SaslHandshakeResponse:
    error_code: int16 = 0
    mechanisms: list[string]  # those of the listener, also if the requested one is rejected
