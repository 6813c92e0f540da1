"""SaslAuthenticate: evaluates one token of an authentication (KIP-152).

Version notes: v1 adds the lifetime of the login (KIP-368). On a listener without SASL, and after a completed
authentication, the request fails with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import LOGGED_IN_ALREADY
from broker.loop.clock import Clock
from broker.network.sasl.session import Stage, WrongState
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock


def handle(services: Needs, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    session, clock = context.channel.sasl, services.clock
    if session is None or session.stage is Stage.COMPLETE:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=LOGGED_IN_ALREADY)
    try:
        verdict = session.authenticate(bytes(request.auth_bytes), clock.monotonic_ms(), clock.now_ms(), is_raw=False)
    except WrongState:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if verdict.step is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=verdict.error)
    if verdict.step.login is not None:
        context.channel.authenticated(f"User:{verdict.step.login.user}")
    return SaslAuthenticateResponse(auth_bytes=verdict.step.token or b"", session_lifetime_ms=verdict.lifetime_ms)
