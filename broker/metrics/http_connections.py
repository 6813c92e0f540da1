"""Bounds the connections of the HTTP port, so that slow clients cannot use up the broker's file descriptors.

Owns the limits. Must not know what is served.

A connection above the limit is closed immediately. A connection that has not completed its TLS handshake, and sent a
whole request header, after `FIRST_REQUEST_S` is closed as well, so that clients which send nothing make room. So is one
whose request has no whole body after `BODY_S`. A path has at most `SEGMENTS_MAX` parts, because the search for its
handler takes a time of their square.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from base.line_limit import LineLimit
from broker.network.tls import ServerContext

logger = logging.getLogger(__name__)
requests_logger = logging.getLogger("milena.http.requests")
"""The server's own lines about requests that failed."""

CONNECTIONS_MAX: Final = 256
FIRST_REQUEST_S: Final = 10.0
BODY_SIZE_MAX: Final = 2 << 20
BODY_S: Final = 10.0
LINE_SIZE_MAX: Final = 128 << 10
"""Bytes of a request line. The cursor in the address of a page of records has about 17 bytes a partition."""
SEGMENTS_MAX: Final = 64
"""Parts of a path; slashes in names are written `%2F`."""
REASON_MAX: Final = 200
LINGERING_S: Final = 1.0
"""How long the rest of a body is received after the response, so that the client gets to read it."""
PAUSE_S: Final = 0.1
"""Between two attempts to accept a connection, after one that failed."""
WRITE_TIMEOUT_S: Final = 30.0
"""How long a client may take to read the part of a response that does not fit into buffers."""
BAD_REQUEST_LINES_S: Final = 10.0
"""One line in this time is about requests that are no HTTP."""
KEEPALIVE_S: Final = 30.0
"""How long an idle connection stays open after a request."""


@web.middleware
async def whole_body(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Read the body of a request, of at most `BODY_SIZE_MAX` bytes, before its handler runs."""
    if request.body_exists:
        try:
            async with asyncio.timeout(BODY_S):
                await request.read()
        except TimeoutError:
            late = web.HTTPRequestTimeout(text=f"no whole body within {BODY_S:g} s\n")
            late.force_close()
            raise late from None
    return await handler(request)


async def written(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Write a part of a response. The connection of a client that does not read it is closed.

    Raises ConnectionError.
    """
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError(f"the client reads nothing for {WRITE_TIMEOUT_S:g} s") from None


class BadRequestLines(logging.Filter):
    """Makes one line, and only every now and then, of what the server logs about requests that are no HTTP."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._lines = LineLimit(BAD_REQUEST_LINES_S)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        held_back = self._lines.admit(self._monotonic_s())
        reason = " ".join(error.message.split())[:REASON_MAX]
        record.msg = "refused a request that is no HTTP: %s (%d such requests not logged)"
        record.args = (reason, held_back)
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return held_back is not None


class BoundedRunner(web.AppRunner):
    """An `AppRunner` that accepts its connections itself, at most `CONNECTIONS_MAX` at a time."""

    def __init__(self, application: web.Application, *, shutdown_timeout: float) -> None:
        super().__init__(
            application,
            access_log=None,
            shutdown_timeout=shutdown_timeout,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=LINGERING_S,
            max_line_size=LINE_SIZE_MAX,
            logger=requests_logger,
        )
        self._bad_request_lines = BadRequestLines(asyncio.get_running_loop().time)
        requests_logger.addFilter(self._bad_request_lines)
        self._silent: set[Any] = set()
        """New connections that have not sent a whole request header."""
        self._opening: set[asyncio.Task[None]] = set()
        """Accepted connections that have not completed their TLS handshake; the server does not know them yet."""

    async def setup(self) -> None:
        await super().setup()
        server = self.server
        assert server is not None
        server.request_handler = partial(self._serve, server.request_handler)

    async def _serve(
        self, serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], request: web.BaseRequest
    ) -> web.StreamResponse:
        """Serve a request whose whole header has arrived."""
        self._silent.discard(request.protocol)
        if request.rel_url.raw_path.count("/") > SEGMENTS_MAX:
            return web.Response(status=HTTPStatus.REQUEST_URI_TOO_LONG, text="the path has too many parts\n")
        return await serve(request)

    def listen(self, bound: socket.socket, context: ServerContext | None) -> asyncio.Task[None]:
        """Accept connections on a listening socket until the task is cancelled; with TLS if there is a `context`.

        The task closes the socket.
        """
        bound.setblocking(False)
        return asyncio.get_running_loop().create_task(self._accept_all(bound, context), name="HTTP listener")

    async def cleanup(self) -> None:
        for opening in self._opening:
            opening.cancel()
        requests_logger.removeFilter(self._bad_request_lines)
        await super().cleanup()

    async def _accept_all(self, bound: socket.socket, context: ServerContext | None) -> None:
        loop = asyncio.get_running_loop()
        server = self.server
        assert server is not None, "`setup` comes first"
        with bound:
            while True:
                try:
                    accepted, (host, port, *_) = await loop.sock_accept(bound)
                except OSError as error:  # out of descriptors, for example
                    logger.warning("cannot accept a connection of the HTTP port: %s", error)
                    await asyncio.sleep(PAUSE_S)
                    continue
                if len(self._opening) + len(server.connections) >= CONNECTIONS_MAX:
                    accepted.close()
                    continue
                opening = loop.create_task(self._open(accepted, f"{host}:{port}", context, server))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)

    async def _open(
        self, accepted: socket.socket, peer: str, context: ServerContext | None, server: web.Server
    ) -> None:
        loop = asyncio.get_running_loop()
        protocol = server()
        self._silent.add(protocol)
        loop.call_later(FIRST_REQUEST_S, self._close_if_silent, protocol)
        timeout_s = None if context is None else FIRST_REQUEST_S
        try:
            await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=timeout_s)
        except (OSError, TimeoutError) as error:
            logger.info("Failed authentication with %s on metrics_http (TLS handshake failed: %s)", peer, error)
            accepted.close()

    def _close_if_silent(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()
