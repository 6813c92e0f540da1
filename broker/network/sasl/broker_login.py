"""The login of this broker to another one.

Owns the requests of a login. Must not know connections: a function sends the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from broker.network.sasl.clients import SaslClient, ServerNotTrusted
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2

Ask = Callable[[Any, int], Awaitable[Any]]
"""Sends a request in a version and returns the response."""


class BrokerLogin:
    """Logs in over any number of connections."""

    def __init__(self, mechanism: str, new_client: Callable[[], SaslClient]) -> None:
        self._mechanism = mechanism
        self._new_client = new_client

    async def __call__(self, ask: Ask) -> int:
        """Return for how many ms the login is valid; 0: without limit. Raises PermissionError if it is refused."""
        offered = await ask(SaslHandshakeRequest(mechanism=self._mechanism), HANDSHAKE_VERSION)
        if offered.error_code:
            raise PermissionError(f"it does not offer {self._mechanism}, only {', '.join(offered.mechanisms)}")
        client = self._new_client()
        token: bytes | None = client.first()
        lifetime_ms = 0
        while token is not None:
            response = await ask(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
            if response.error_code:
                raise PermissionError(f"it refuses the login of this broker: {response.error_message}")
            lifetime_ms = response.session_lifetime_ms
            try:
                token = client.respond(bytes(response.auth_bytes))
            except ServerNotTrusted as error:
                raise PermissionError(str(error)) from error
        return int(lifetime_ms)
