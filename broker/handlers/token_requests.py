"""Which clients may send requests about delegation tokens.

Owns that rule. Must not know what is requested.
"""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.network.channel import ANONYMOUS
from protocol.errors import ErrorCode, KafkaError


def require_own_login(context: RequestContext) -> None:
    """Raise KafkaError unless the client has proved who it is, and not by a token (KIP-48).

    A token lets its bearer act as its owner: an unauthenticated client has no identity to delegate, and a token must
    not beget tokens that outlive it.
    """
    session = context.channel.sasl
    login = None if session is None else session.login
    if context.principal == ANONYMOUS or (login is not None and login.is_by_token):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
