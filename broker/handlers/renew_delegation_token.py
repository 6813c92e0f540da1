"""RenewDelegationToken: tokens are refused, so that there is none to renew; see `broker.security_disabled`."""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.security_disabled import why_no_tokens
from broker.services import Services
from protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(
    services: Services, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=why_no_tokens(context))
