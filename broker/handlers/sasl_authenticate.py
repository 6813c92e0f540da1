"""SaslAuthenticate: evaluates one token of an authentication (KIP-152).

Version notes: v1 adds the lifetime of the login (KIP-368). On a listener without SASL, and after a completed
authentication, the request fails with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Protocol

from base.clock import Clock
from broker.handlers.declaration import Declaration
from broker.handlers.request_context import CloseConnection, RequestContext
from broker.handlers.security_disabled import LOGGED_IN_ALREADY
from broker.network.channel import Channel
from broker.network.principals import NoPrincipalError
from broker.network.sasl.exchange import AuthenticationFailed, Step
from broker.network.sasl.session import SaslSession, Stage, WrongState
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

API = Declaration(
    ApiKey.SASL_AUTHENTICATE,
    is_served_before_login=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock


async def handle(
    services: Needs, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    session = context.channel.sasl
    if session is None or session.stage is Stage.COMPLETE:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=LOGGED_IN_ALREADY)
    try:
        evaluate = session.evaluation(bytes(request.auth_bytes), is_raw=False)
    except WrongState:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    outcome = evaluate() if session.in_thread is None else await session.in_thread(evaluate)
    return _concluded(outcome, session, services.clock, context.channel)


def _concluded(
    outcome: Step | AuthenticationFailed, session: SaslSession, clock: Clock, channel: Channel
) -> SaslAuthenticateResponse:
    verdict = session.conclude(outcome, clock.monotonic_ms(), clock.now_ms())
    if verdict.step is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=verdict.error)
    if verdict.step.login is not None:
        try:
            channel.authenticated(verdict.step.login.user, session.mechanism)
        except NoPrincipalError as error:
            raise CloseConnection(str(error)) from error
    return SaslAuthenticateResponse(auth_bytes=verdict.step.token or b"", session_lifetime_ms=verdict.lifetime_ms)
