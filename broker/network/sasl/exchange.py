"""What every SASL mechanism has in common: tokens in, tokens or a login out.

Owns the interface of a mechanism and its two outcomes. Must not know connections, requests or stores. Mechanisms are
pure: nonces and credentials are arguments.
"""

from __future__ import annotations

from typing import Protocol

from base.dataclass import dataclass


class AuthenticationFailed(Exception):  # noqa: N818 - the name states the condition
    """The login of the client failed. The message is sent to the client and never says whether a user exists."""


class InvalidCredentials(AuthenticationFailed):
    """The credentials are wrong. The client gets one text for every reason, which the message states for the log."""


@dataclass(frozen=True, slots=True)
class Login:
    """The outcome of a successful exchange."""

    user: str
    """The name of the principal, without its type."""
    expires_ms: int | None = None
    """When the credential expires, in milliseconds since the epoch; None: never."""
    is_by_token: bool = False
    """Whether the client has used a delegation token."""


@dataclass(frozen=True, slots=True)
class Step:
    """The response to one token of the client; with `login` it is the last one."""

    token: bytes | None
    """None: the mechanism has no message for the client. An empty message differs from none only in bare frames."""
    login: Login | None = None


class Exchange(Protocol):
    """One exchange of a mechanism."""

    def evaluate(self, token: bytes) -> Step:
        """Return the response to the client's next token. Raises AuthenticationFailed, after which it must not be used.

        Any bytes are a valid argument.
        """
