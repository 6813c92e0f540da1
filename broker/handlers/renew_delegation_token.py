"""RenewDelegationToken: extend the life of a token (KIP-48).

Its owner, its requester and its renewers may do so.
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.token_requests import require_own_login
from broker.security.delegation_tokens import DelegationTokens
from protocol.api_key import ApiKey
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

API = Declaration(
    ApiKey.RENEW_DELEGATION_TOKEN,
    permissions=Permissions(note="by owner, requester or renewer of the token"),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    delegation_tokens: DelegationTokens


async def handle(
    services: Needs, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    require_own_login(context)
    expires_ms = await services.delegation_tokens.renew(context.principal, bytes(request.hmac), request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
