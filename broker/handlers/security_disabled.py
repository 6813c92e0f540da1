"""What a broker answers to requests about security that it was not configured for, with Kafka's words.

Owns the wording and the code. Must not know the APIs, of which each has its handler.
"""

from __future__ import annotations

from typing import Final

from broker.handlers.request_context import RequestContext
from protocol.errors import ErrorCode, Malformed

NO_AUTHORIZER: Final = "No Authorizer is configured."

# On a listener without authentication every client counts as logged in from its first request on.
LOGGED_IN_ALREADY: Final = "SaslAuthenticate request received after successful authentication"

ANONYMOUS: Final = "User:ANONYMOUS"

UNKNOWN: Final = 0
"""What each enum of ACLs numbers 0: nothing that one could mean (KIP-140)."""


def refuse_unknown(*elements: int) -> None:
    """Raises Malformed, which closes the connection as at Kafka, when an enum of an ACL or a filter is UNKNOWN."""
    if UNKNOWN in elements:
        raise Malformed("an ACL, or a filter for them, has an element of type UNKNOWN")


def why_no_tokens(context: RequestContext) -> ErrorCode:
    """Why a request about delegation tokens is refused: first of all it must come from somebody who logged in.

    A token lets its bearer act for its owner, and a connection without authentication has none to give away (KIP-48).
    """
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
