"""SASL/PLAIN (RFC 4616): the client sends its user name and password in one token.

Owns the token's form and the check. Must not know where passwords are configured.

The token is `authorization id NUL user NUL password`, in UTF-8.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from broker.network.sasl.exchange import AuthenticationFailed, Login, Step

NAME = "PLAIN"

_PARTS = 3
_NO_SUCH_USER = b"\0"
"""Compared in place of a missing password, so that the check takes the same steps. No password contains NUL."""


class PlainExchange:
    """`Exchange` of one token."""

    def __init__(self, is_right: Callable[[str, str], bool]) -> None:
        """`is_right(user, password)` decides; see `by_table`."""
        self._is_right = is_right

    def evaluate(self, token: bytes) -> Step:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("Invalid SASL/PLAIN response: expected UTF-8") from None
        if len(parts) != _PARTS:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._is_right(user, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", Login(user))


def by_table(password_of: Callable[[str], str | None]) -> Callable[[str, str], bool]:
    """Return a check of passwords that takes the same steps for a user that does not exist.

    `password_of(user)` returns None for an unknown user.
    """

    def is_right(user: str, password: str) -> bool:
        expected = password_of(user)
        return hmac.compare_digest(_NO_SUCH_USER if expected is None else expected.encode(), password.encode())

    return is_right
