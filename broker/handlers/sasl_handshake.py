"""SaslHandshake: refused as on any listener whose clients need not log in; see `broker.security_disabled`."""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def failed(request: SaslHandshakeRequest, context: RequestContext, code: ErrorCode) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=[])
