"""SaslHandshake: chooses the mechanism of an authentication (KIP-43).

Version notes: after v0 the tokens follow as bare frames, after v1 in SaslAuthenticate (KIP-152). On a listener without
SASL, and after a completed authentication, the request fails with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from broker.network.sasl.session import Stage, WrongState
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

FIRST_VERSION_WITH_SASL_AUTHENTICATE = 1


API = Declaration(
    ApiKey.SASL_HANDSHAKE,
    is_served_before_login=True,
)


def handle(services: object, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    session = context.channel.sasl
    if session is None or session.stage is Stage.COMPLETE:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    try:
        is_raw = context.api_version < FIRST_VERSION_WITH_SASL_AUTHENTICATE
        is_offered = session.choose(request.mechanism, is_raw=is_raw)
    except WrongState:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    code = ErrorCode.NONE if is_offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=session.offered)


def failed(request: SaslHandshakeRequest, context: RequestContext, code: ErrorCode) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=[])
