"""Bounds the connections of the HTTP port, so that slow clients cannot use up the broker's file descriptors.

Owns the limits. Must not know what is served.

A connection above the limit is closed at once. A connection that has not sent a whole request header after
`FIRST_REQUEST_S` is closed as well, so that clients which send nothing make room.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

CONNECTIONS_MAX: Final = 256
FIRST_REQUEST_S: Final = 10.0
KEEPALIVE_S: Final = 30.0
"""How long an idle connection stays open after a request."""


class BoundedRunner(web.AppRunner):
    """An `AppRunner` whose sites accept `CONNECTIONS_MAX` connections."""

    def __init__(self, application: web.Application, *, shutdown_timeout: float) -> None:
        super().__init__(application, access_log=None, shutdown_timeout=shutdown_timeout, keepalive_timeout=KEEPALIVE_S)
        self._silent: set[Any] = set()
        """New connections that have not sent a whole request header."""
        application.on_response_prepare.append(self._note)

    @property
    def server(self) -> Any:
        """The factory of protocols, as the sites call it; None before `setup`."""
        server = super().server
        return None if server is None else lambda: self._new_protocol(server)

    def _new_protocol(self, server: web.Server) -> asyncio.BaseProtocol:
        if len(server.connections) >= CONNECTIONS_MAX:
            return _Refused()
        protocol = server()
        self._silent.add(protocol)
        asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self._close_if_silent, protocol)
        return protocol

    def _close_if_silent(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()

    async def _note(self, request: web.Request, response: web.StreamResponse) -> None:
        self._silent.discard(request.protocol)


class _Refused(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
