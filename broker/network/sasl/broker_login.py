"""The login of this broker to another one.

Owns the requests of a login. Must not know connections: a function sends the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from broker.network.sasl.clients import SaslClient, ServerNotTrusted
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2

T = TypeVar("T")

Ask = Callable[[Any, int], Awaitable[Any]]
"""Sends a request in a version and returns the response."""


class Run(Protocol):
    """Runs work that computes, or waits for a server, in a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class BrokerLogin:
    """Logs in over any number of connections."""

    def __init__(self, mechanism: str, new_client: Callable[[str], SaslClient], run: Run) -> None:
        """`new_client(host)` returns the client of one login, and `run` what it computes, in a thread."""
        self._mechanism = mechanism
        self._new_client = new_client
        self._run = run

    async def __call__(self, ask: Ask, host: str) -> int:
        """Return for how many ms the login is valid; 0: without limit. Raises PermissionError if it is refused."""
        offered = await ask(SaslHandshakeRequest(mechanism=self._mechanism), HANDSHAKE_VERSION)
        if offered.error_code:
            raise PermissionError(f"it does not offer {self._mechanism}, only {', '.join(offered.mechanisms)}")
        try:
            client = await self._run(lambda: self._new_client(host))
            token: bytes | None = await self._run(client.first)
            lifetime_ms = 0
            while token is not None:
                response = await ask(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
                if response.error_code:
                    raise PermissionError(f"it refuses the login of this broker: {response.error_message}")
                lifetime_ms = response.session_lifetime_ms
                challenge = bytes(response.auth_bytes)  # the response is valid until the next request only
                token = await self._run(partial(client.respond, challenge))
        except ServerNotTrusted as error:
            raise PermissionError(str(error)) from error
        return int(lifetime_ms)
