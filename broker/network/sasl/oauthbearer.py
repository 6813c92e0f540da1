"""SASL/OAUTHBEARER (RFC 7628): the client sends a token of an identity provider.

Owns the messages of both sides. Must not know where a token comes from, or how it is verified.

    client   n,a=AUTHZID,^A auth=Bearer TOKEN ^A key=value ^A ^A
    server   empty, or {"status":"invalid_token"}, to which the client responds with ^A before the login fails
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from broker.network.sasl.exchange import AuthenticationFailed, InvalidCredentials, Login, Step

NAME = "OAUTHBEARER"

_FIRST = re.compile(
    r"n,(?:a=(?P<authorization_id>(?:[^,=\x00\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01"
)
_BEARER = re.compile(r"Bearer +(?P<token>[-A-Za-z0-9._~+/]+=*)", re.IGNORECASE)
_INVALID_TOKEN = '{"status":"invalid_token"}'


class InvalidToken(Exception):  # noqa: N818 - the name states the condition
    """The token is not valid. The message states why, for the log."""


class OauthBearerExchange:
    """`Exchange` of one token, or of two messages if it is not valid."""

    def __init__(self, verify: Callable[[str], Login]) -> None:
        """`verify(token)` returns whom a token is about. Raises InvalidToken."""
        self._verify = verify
        self._problem: str | None = None

    def evaluate(self, token: bytes) -> Step:
        if self._problem is not None:
            raise AuthenticationFailed(_INVALID_TOKEN)
        try:
            message = _FIRST.fullmatch(token.decode())
        except UnicodeDecodeError:
            message = None
        if message is None:
            raise InvalidCredentials("the first client message is malformed")
        pairs = dict(pair.split("=", 1) for pair in message["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise InvalidCredentials("the first client message has no bearer token")
        try:
            login = self._verify(bearer["token"])
        except InvalidToken as error:
            self._problem = str(error)
            return Step(_INVALID_TOKEN.encode())
        authorization_id = message["authorization_id"]
        if authorization_id is not None and authorization_id.replace("=2C", ",").replace("=3D", "=") != login.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        return Step(b"", login)


class OauthBearerClient:
    """`SaslClient` of one login."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        return ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01").encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`. A challenge is an error; the response to it ends the login, which the server refuses."""
        return b"\x01" if challenge else None
