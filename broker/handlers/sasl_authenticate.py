"""SaslAuthenticate: rejected, as no listener requires authentication (`handlers/security_disabled.py`)."""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import LOGGED_IN_ALREADY
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(services: object, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=LOGGED_IN_ALREADY)
