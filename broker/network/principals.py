"""The principal of a client for ACLs and quotas, if a plug-in derives it from the client's certificate or login.

Owns what the plug-in of `principal.builder.class` is asked. Without one, the principal is the user of a login, or the
name in a certificate. Must not know connections.
"""

from __future__ import annotations

from typing import Protocol

from base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ProvenClient:
    """What is known of a client when it is connected, or has logged in."""

    listener: str
    security_protocol: str
    host: str
    """The numeric address."""
    certificate: bytes | None
    """The client's certificate in DER; None without one, and with SASL."""
    mechanism: str
    """The mechanism of its login; empty without SASL."""
    user: str
    """The user of its login, or the name of its certificate by `ssl.principal.mapping.rules`; else ANONYMOUS."""


class PrincipalBuilder(Protocol):
    """What a plug-in has."""

    def build(self, client: ProvenClient) -> object:
        """Return the principal, as `Type:name`; an exception refuses the client."""
        ...


class NoPrincipalError(Exception):
    """The plug-in gives a client no principal. The message says why, for the log."""


def built(builder: PrincipalBuilder | None, client: ProvenClient) -> str:
    """Return the principal of a client. Raises NoPrincipalError."""
    if builder is None:
        return f"User:{client.user}"
    try:
        principal = builder.build(client)
    except Exception as error:
        raise NoPrincipalError(f"principal.builder.class refuses the client: {error!r}") from error
    if not isinstance(principal, str) or not all(principal.partition(":")):
        raise NoPrincipalError(f"principal.builder.class returned {principal!r}, expected Type:name")
    return principal
