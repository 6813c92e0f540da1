"""DescribeDelegationToken: tokens are refused, so that there is none to show; see `broker.security_disabled`."""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.security_disabled import why_no_tokens
from broker.services import Services
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    services: Services, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=why_no_tokens(context))
