"""CreateDelegationToken: create a token for the client, or for another owner (KIP-48).

Version notes: v3 a requester may ask for a token of another owner, with CreateTokens on that user (KIP-373).
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.token_requests import require_own_login
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from broker.security.delegation_tokens import DelegationTokens
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

USER = "User"


API = Declaration(
    ApiKey.CREATE_DELEGATION_TOKEN,
    permissions=Permissions(note="CreateTokens on the user for a token of another owner"),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    delegation_tokens: DelegationTokens


async def handle(
    services: Needs, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    require_own_login(context)
    owner = _owner(request, context)
    if any(renewer.principal_type != USER for renewer in request.renewers) or not owner.startswith(f"{USER}:"):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    may_create = owner == context.principal or services.authorizer.allows(
        context, Operation.CREATE_TOKENS, ResourceType.USER, owner
    )
    if not may_create:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
    token = await services.delegation_tokens.create(owner, context.principal, renewers, request.max_lifetime_ms)
    response = failed(request, context, ErrorCode.NONE)
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.ends_ms
    response.token_id = token.token_id
    response.hmac = services.delegation_tokens.hmac_of(token)
    return response


def failed(
    request: CreateDelegationTokenRequest, context: RequestContext, code: ErrorCode
) -> CreateDelegationTokenResponse:
    """Return the response without a token; it names the owner that a token would have."""
    owner_type, _, owner_name = _owner(request, context).partition(":")
    requester_type, _, requester_name = context.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )


def _owner(request: CreateDelegationTokenRequest, context: RequestContext) -> str:
    if not request.owner_principal_name:
        return context.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"
