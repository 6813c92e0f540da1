"""DescribeDelegationToken: rejected, as no delegation tokens exist (`handlers/security_disabled.py`)."""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import why_no_tokens
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    services: object, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=why_no_tokens(context))
