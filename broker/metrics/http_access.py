"""Who may read the HTTP port: basic authentication (RFC 7617), and what a refused client gets.

Owns the comparison of passwords, which takes the same time whatever differs, and the log lines of refusals, which are
few and short, as anyone may cause them. Must not know routes, or where users come from.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from base.line_limit import LineLimit

logger = logging.getLogger("kafka.authorizer.logger")

PATH_SHOWN_MAX: Final = 200
LINE_INTERVAL_S: Final = 10.0
LINES_MAX: Final = 10
"""How many refusals are logged in an interval."""
CHALLENGE: Final = 'Basic realm="milena", charset="UTF-8"'

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpAccess:
    """The users of one HTTP port. Without users everyone may read it."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._credentials = [f"{name}:{password}".encode() for name, password in users.items()]
        self._lines = LineLimit(LINE_INTERVAL_S, LINES_MAX)

    def admits(self, authorization: str | None) -> bool:
        """Return whether the value of the header `Authorization` names a user with its password."""
        if not self._credentials:
            return True
        scheme, _, encoded = (authorization or "").partition(" ")
        try:
            credential = base64.b64decode(encoded.strip(), validate=True)
        except ValueError:
            return False
        if scheme.lower() != "basic":
            return False
        # All are compared, so that the time does not reveal which user exists.
        matches = [hmac.compare_digest(credential, one) for one in self._credentials]
        return any(matches)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the request, or respond with 401."""
        if self.admits(request.headers.get(hdrs.AUTHORIZATION)):
            return await handler(request)
        suppressed = self._lines.admit(asyncio.get_running_loop().time())
        if suppressed is not None:
            logger.info(
                "HTTP request for %s from %s is denied: no user with this password (%d such requests not logged)",
                request.path[:PATH_SHOWN_MAX], request.remote, suppressed,
            )  # fmt: skip
        return web.Response(status=HTTPStatus.UNAUTHORIZED, headers={hdrs.WWW_AUTHENTICATE: CHALLENGE})
