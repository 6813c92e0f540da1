"""Opens the URLs that settings name, such as that of an identity provider.

Owns which redirects are followed: as in Java, those that keep the scheme, so that no https URL ends at an http or file
URL. Imported on demand.
"""

from __future__ import annotations

from http.client import HTTPMessage, HTTPResponse
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener
from urllib.response import addinfourl


class _SameScheme(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != req.type:
            raise HTTPError(req.full_url, code, f"redirect to {newurl}, expected {req.type}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opened(url: str, *, timeout_s: float) -> HTTPResponse | addinfourl:
    """Return the open response of a GET request. Blocks. Raises OSError, ValueError."""
    response: HTTPResponse | addinfourl = build_opener(_SameScheme).open(url, timeout=timeout_s)
    return response
