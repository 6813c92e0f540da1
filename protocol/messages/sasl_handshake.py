"""SaslHandshake (17): agrees on a SASL mechanism.

After v0 the tokens follow without any frame of this protocol, after v1 in SaslAuthenticate.
"""

from protocol.schema import int16, message, string


@message(17, versions=range(0, 2), flexible=None)
class SaslHandshakeRequest:
    mechanism: string


@message(17, versions=range(0, 2), flexible=None)
class SaslHandshakeResponse:
    error_code: int16 = 0
    mechanisms: list[string]
