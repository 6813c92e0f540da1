"""Responses to requests about security features that are not configured, in Kafka's words.

Owns the wording and the code. Must not know the APIs, of which each has its handler.
"""

from __future__ import annotations

from typing import Final

from broker.handlers.request_context import RequestContext
from protocol.errors import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."

# On a listener without authentication every client counts as authenticated from its first request on.
LOGGED_IN_ALREADY: Final = "SaslAuthenticate request received after successful authentication"

ANONYMOUS: Final = "User:ANONYMOUS"


def why_no_tokens(context: RequestContext) -> ErrorCode:
    """Return the error for a request about delegation tokens; an unauthenticated client gets its own error.

    A token lets its bearer act as its owner, and an unauthenticated connection has no identity to delegate (KIP-48).
    """
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
