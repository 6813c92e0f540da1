"""What all settings of security share: their error, the protocols, and what mechanisms of authentication need.

Must not know how a listener or a mechanism is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from base.pause import InThread
from broker.network.sasl.scram import Digest, ScramCredential, ScramUser
from config.listeners import SecurityProtocol

if TYPE_CHECKING:
    from broker.security.remote_keys import RemoteKeys

TLS_PROTOCOLS = frozenset({SecurityProtocol.SSL, SecurityProtocol.SASL_SSL})
SASL_PROTOCOLS = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})

CredentialOf = Callable[[str, str], ScramCredential | None]
"""Returns the SCRAM credential of a user for a mechanism."""


class InvalidSecurityError(Exception):
    """A setting of a listener's security is invalid. The message names the setting and what was expected."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where mechanisms get what they need."""

    credential_of: CredentialOf
    random: Random
    now_ms: Callable[[], int]
    """Milliseconds since the epoch."""
    token_user: Callable[[str, Digest], ScramUser | None]
    """Returns the owner of a delegation token by its id."""
    in_thread: InThread | None = None
    """Runs evaluations that read files in a thread; None: they block the caller."""
    remote_keys: dict[str, RemoteKeys] = field(default_factory=dict)
    """The key sets in use, by their URLs. The caller refreshes them."""
