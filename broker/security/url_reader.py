"""Opens the URLs that settings name, such as those of an identity provider.

Owns that redirects are not followed: the operator has named the server that is trusted with credentials, or whose keys
are trusted, and no response changes that. Imported on demand, because its modules cost every start.
"""

from __future__ import annotations

from http.client import HTTPResponse
from urllib import request as handlers
from urllib.error import HTTPError
from urllib.request import OpenerDirector, Request
from urllib.response import addinfourl

_REDIRECTS = range(300, 400)
_TARGET_SIZE_MAX = 200


def opened(request: Request, *, timeout_s: float) -> HTTPResponse | addinfourl:
    """Return the open response. Blocks. `timeout_s` limits the time to connect, and each wait for data.

    Raises:
        HTTPError: The server responds with an error.
        OSError: There is no response, or it is a redirect.
        ValueError: The URL is invalid.
    """
    opener = OpenerDirector()
    for handler in (  # those of urllib without redirects, FTP and `data:`
        handlers.ProxyHandler(),
        handlers.HTTPHandler(),
        handlers.HTTPSHandler(),
        handlers.FileHandler(),
        handlers.UnknownHandler(),
        handlers.HTTPErrorProcessor(),
        handlers.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    try:
        response: HTTPResponse | addinfourl = opener.open(request, timeout=timeout_s)
    except HTTPError as error:
        if error.code not in _REDIRECTS:
            raise
        with error:
            target = error.headers.get("Location", "")[:_TARGET_SIZE_MAX]
            raise OSError(
                f"{request.full_url} redirects to {target!r}; redirects are not followed: configure the final address"
            ) from None
    return response
