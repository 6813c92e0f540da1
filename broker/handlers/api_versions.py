"""ApiVersions: what this broker serves, derived from the table of handlers (network-and-requests A1 to A5).

Version notes: v3 client software name and version (KIP-511), features; the response header is version 0 always, and a
version that is not known is answered in the layout of version 0 by the dispatcher.
"""

from __future__ import annotations

import re

from broker import handlers
from broker.request_context import RequestContext
from broker.services import Services
from protocol.api import APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[-.a-zA-Z0-9]*[a-zA-Z0-9])?")


def handle(services: Services, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not SOFTWARE.fullmatch(name) or not SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.peer.software_name, context.peer.software_version = name, version
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=served())


def served(only: int | None = None) -> list[ApiVersion]:
    """Key and version range of every API that has a handler, or of one of them."""
    return [
        ApiVersion(api_key=key, min_version=APIS[key].versions.start, max_version=APIS[key].versions.stop - 1)
        for key in sorted(handlers.table())
        if only in (None, key)
    ]
