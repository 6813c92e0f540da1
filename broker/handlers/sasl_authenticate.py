"""SaslAuthenticate: refused as on any listener whose clients need not log in; see `broker.security_disabled`."""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.security_disabled import LOGGED_IN_ALREADY
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(services: Services, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=LOGGED_IN_ALREADY)
