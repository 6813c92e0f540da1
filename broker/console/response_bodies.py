"""Bodies of responses from other servers, which may be of any size, and why there is none.

Owns the reading up to a limit. Must not know what a body contains.
"""

from __future__ import annotations

import errno

import aiohttp

_CONNECT_FAILURES = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network is unreachable",
    errno.ECONNRESET: "connection reset",
}
"""The texts of the event loop have the address as Python writes it."""


def connect_failure(error: aiohttp.ClientConnectorError) -> str:
    """Return why no connection to another server was made."""
    known = _CONNECT_FAILURES.get(error.os_error.errno or 0)
    return f"cannot connect: {known or error.os_error.strerror or 'the connection failed'}"


async def bounded_body(response: aiohttp.ClientResponse, size_max: int) -> bytes | None:
    """Return the body of a response; None if it has more than `size_max` bytes."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > size_max:
            return None
    return bytes(body)
