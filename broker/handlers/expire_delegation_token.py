"""ExpireDelegationToken: tokens are refused, so that there is none to end; see `broker.security_disabled`."""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.security_disabled import why_no_tokens
from broker.services import Services
from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    services: Services, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=why_no_tokens(context))
