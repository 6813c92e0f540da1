"""How a client protects its connection to ZooKeeper, and which nodes it lets others read and change.

Owns the ports for TLS and for a login, and the access of each path, which is Kafka's. Must not know stores of keys,
mechanisms, or who reads settings.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from base.dataclass import dataclass
from controller.tree.paths import CONSUMERS, DELEGATION_TOKENS


class SaslLogin(Protocol):
    """One login: a machine that gets the server's tokens and returns the client's."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the next token, None if the login is complete. `challenge` is None at the beginning.

        Called in a thread.

        Raises:
            LoginRefused: the server did not prove that it knows the secret, or sent something else.
            LoginUnavailable: this side has no first token. The next connection may have one.
        """
        ...


class LoginRefused(Exception):  # noqa: N818 - the name states the condition
    """A login cannot continue. The message states why."""


class LoginUnavailable(Exception):  # noqa: N818 - the name states the condition
    """A login cannot begin now, as without a ticket of Kerberos. The message states why."""


class TlsContext(Protocol):
    """A context of the TLS library."""

    def wrap_socket(self, sock: Any, *, server_hostname: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """Everything is off by default."""

    tls: TlsContext | None = None
    has_certificate: bool = False
    """Whether the client presents a certificate, by which ZooKeeper's scheme x509 knows it."""
    new_login: Callable[[str], SaslLogin] | None = None
    """Returns a login to the server of this host name. Called in a thread. Raises LoginUnavailable."""
    user: str = ""
    """The user that logs in, for messages."""

    @property
    def is_identified(self) -> bool:
        """Whether ZooKeeper knows the creator of a node, which `Access.CREATOR` needs."""
        return self.new_login is not None or self.has_certificate


UNPROTECTED = ZooKeeperSecurity()


class Access(Enum):
    """Which clients may use a node."""

    OPEN = "everyone may do everything"
    READABLE = "its creator may do everything, everyone may read"
    CREATOR = "its creator may do everything"


_SENSITIVE = ("/config/users", "/config/brokers", DELEGATION_TOKENS)


def access_of(path: str, *, is_secure: bool) -> Access:
    """Return the access to the node at `path` (without chroot), with `zookeeper.set.acl` or without."""
    if not is_secure or path == CONSUMERS:  # consumers of Kafka 0.8 write below this node
        return Access.OPEN
    return Access.CREATOR if path.startswith(_SENSITIVE) else Access.READABLE
