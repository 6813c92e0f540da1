"""SaslHandshake (17): agrees on a SASL mechanism.

After v0 the tokens follow as they are, each after its length; after v1 they travel in SaslAuthenticate.
"""

from protocol.schema import int16, message, string


@message(17, versions=range(0, 2), flexible=None)
class SaslHandshakeRequest:
    mechanism: string


@message(17, versions=range(0, 2), flexible=None)
class SaslHandshakeResponse:
    error_code: int16 = 0
    mechanisms: list[string]  # those of the listener, also when the one asked for is refused
