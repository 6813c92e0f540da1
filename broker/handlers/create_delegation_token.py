"""CreateDelegationToken: rejected (`handlers/security_disabled.py`); the response names the owner a token would have.

Version notes: v3 a requester may ask for a token of another owner (KIP-373).
"""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.handlers.security_disabled import why_no_tokens
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


def handle(
    services: object, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester_type, _, requester_name = context.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=why_no_tokens(context),
        principal_type=requester_type,
        principal_name=requester_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )
