"""The request log: one line of JSON for each completed request (`kafka.request.logger`).

Owns the content of a line. Must not know how a request is served, or where the log goes.

At DEBUG a line has the header, the connection and the parts of the time. At TRACE it also has what request and response
contain. Bytes, such as records, passwords and tokens, are shown as their number. Values of settings are hidden.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final, cast

from base.file_slice import FileSlice
from broker.handlers.request_context import RequestContext
from broker.network.connection import Buffer
from protocol.api import APIS
from protocol.codec import decode
from protocol.frame import LENGTH_SIZE
from protocol.headers import read_response_header
from protocol.schema import Struct

DEBUG, TRACE = logging.DEBUG, 5
RESPONSE_SIZE_MAX: Final = 256 << 10
"""Bytes of the largest response that a line shows."""
LIST_LENGTH_MAX: Final = 100
"""Elements of one list that a line shows."""
HIDDEN: Final = "[hidden]"
SECRET_FIELDS: Final = frozenset({"value", "config_value", "error_message"})
"""Fields with values of settings, which may be passwords; messages of errors repeat them."""

request_logger = logging.getLogger("kafka.request.logger")


def described(context: RequestContext, frame: memoryview, position: int) -> object:
    """Return what the request in `frame` contains, as JSON may have it; None unless the level is TRACE."""
    if not request_logger.isEnabledFor(TRACE):
        return None
    api = APIS[context.api_key]
    try:
        return _shown(decode(api.request, context.api_version, frame, position))
    except Exception as error:  # the request itself gets its own error
        return f"cannot be decoded: {type(error).__name__}"


def described_response(context: RequestContext, buffers: Sequence[Buffer | FileSlice]) -> object:
    """Return what a framed response contains, as `described` does for its request."""
    if not request_logger.isEnabledFor(TRACE):
        return None
    size = sum(map(len, buffers))
    if size > RESPONSE_SIZE_MAX or FileSlice in map(type, buffers):
        return f"{size} bytes"
    frame = memoryview(b"".join(cast("Sequence[Buffer]", buffers)))[LENGTH_SIZE:]
    try:
        _, position = read_response_header(context.api_key, context.api_version, frame)
        return _shown(decode(APIS[context.api_key].response, context.api_version, frame, position))
    except Exception as error:  # its version may differ from that of the request
        return f"{size} bytes, which cannot be decoded: {type(error).__name__}"


def log_request(
    context: RequestContext, times_ms: Mapping[str, float], details: object, response_details: object
) -> None:
    """Write the line of a completed request; `described` and `described_response` have returned its details."""
    channel = context.channel
    api = APIS[context.api_key]
    software_name, software_version = channel.software
    line: dict[str, object] = {
        "requestHeader": {
            "requestApiKey": api.key,
            "requestApiVersion": context.api_version,
            "correlationId": context.correlation_id,
            "clientId": context.client_id,
            "requestApiKeyName": api.name,
            **({"requestApiVersionDeprecated": True} if context.api_version in api.deprecated else {}),
        },
        "connection": f"{channel.client_host}:{channel.client_port}",
        **{name: round(value, 3) for name, value in times_ms.items()},
        "securityProtocol": channel.security_protocol,
        "principal": channel.principal,
        "listener": channel.listener,
        "clientInformation": {"softwareName": software_name, "softwareVersion": software_version},
    }
    if details is not None:
        line["request"] = details
    if response_details is not None:
        line["response"] = response_details
    request_logger.log(DEBUG, "Completed request:%s", json.dumps(line, separators=(",", ":")))


def _shown(value: object, name: str = "") -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if name in SECRET_FIELDS and value is not None:
        return HIDDEN
    if isinstance(value, Struct):
        return {field.name: _shown(getattr(value, field.name), field.name) for field in value.__fields__}
    if isinstance(value, list | tuple):
        shown = [_shown(each) for each in value[:LIST_LENGTH_MAX]]
        return shown if len(value) <= LIST_LENGTH_MAX else [*shown, f"and {len(value) - LIST_LENGTH_MAX} more"]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
