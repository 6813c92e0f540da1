"""Bodies of responses from other servers, which may be of any size.

Owns the reading up to a limit. Must not know what a body contains.
"""

from __future__ import annotations

import aiohttp


async def bounded_body(response: aiohttp.ClientResponse, size_max: int) -> bytes | None:
    """Return the body of a response; None if it has more than `size_max` bytes."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > size_max:
            return None
    return bytes(body)
