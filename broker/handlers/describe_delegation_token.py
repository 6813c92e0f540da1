"""DescribeDelegationToken: list the tokens that the client may see (KIP-48).

These are its own ones, and others with Describe on the token or DescribeTokens on their owner.

Version notes: v3 adds who has requested a token (KIP-373).
"""

from __future__ import annotations

from typing import Protocol

from base.pause import through
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.token_requests import require_own_login
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from broker.security.delegation_tokens import DelegationToken, DelegationTokens
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API = Declaration(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    permissions=Permissions(note="own tokens; others with Describe on the token or DescribeTokens on the user"),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    delegation_tokens: DelegationTokens
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    require_own_login(context)
    tokens = services.delegation_tokens
    if not tokens.is_enabled:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(tokens, token)
            async for token in through(tokens.known, services.sliced_work.pause)
            if (owners is None or owners.intersection((token.owner, *token.renewers)))
            and _may_see(services, context, token)
        ]
    )


def _may_see(services: Needs, context: RequestContext, token: DelegationToken) -> bool:
    if token.belongs_to(context.principal):
        return True
    return any(
        services.authorizer.allows(context, operation, resource_type, name, is_logged_if_denied=False)
        for operation, resource_type, name in (
            (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id),
            (Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner),
        )
    )


def _described(tokens: DelegationTokens, token: DelegationToken) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.ends_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
