"""The state of one connection between its socket and its requests: who the client is, whether it may send requests, and
why its requests wait.

Owns: the client's identity, the state of its authentication, the reasons to hold its requests, and the requests whose
responses have not been handed to the socket yet. Keeps the client's bound partitions for others. Must not know:
sockets, frames, or what a request means.

Invariant: the connection serves no request while `holds` is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, Protocol

from broker.network.principals import PrincipalBuilder, ProvenClient, built
from broker.network.sasl.session import SaslSession

NOBODY = "ANONYMOUS"
ANONYMOUS = f"User:{NOBODY}"
UNKNOWN_SOFTWARE = ("unknown", "unknown")
NOTHING_TO_END: Final[Mapping[object, Callable[[], None]]] = MappingProxyType({})


class Hold:
    """Reasons why a connection serves no request and is not read. Each is a bit of `Channel.holds`."""

    RESPONSE_AWAITED = 1
    """The response to its last request is not complete."""
    UNSENT_RESPONSES = 2
    """Its client does not read its responses."""
    TURN_OVER = 4
    """Its turn is over; the event loop serves other connections."""
    REQUEST_MEMORY = 8
    """Arriving requests use all of `queued.max.request.bytes`."""
    REQUEST_QUEUE = 16
    """`queued.max.requests` requests wait for threads."""
    THROTTLED = 32
    """Its client exceeded a quota, and its mute time has not passed (KIP-219)."""


class Authentication(Enum):
    """How far a client has proved who it is."""

    PENDING = auto()
    """Only ApiVersions, SaslHandshake and SaslAuthenticate are served."""
    COMPLETE = auto()
    """The principal is known; it is `ANONYMOUS` on a listener without authentication."""


class CompletedRequest(Protocol):
    """A request whose response is complete."""

    def sent(self, now_s: float, sending_since_s: float | None) -> None:
        """Its response was handed to the socket at `now_s` (monotonic seconds).

        The write began at `sending_since_s`; None if it began when the response was complete.
        """


class Channel:
    """One client connection as dispatch and handlers see it."""

    __slots__ = (
        "_on_authenticated",
        "_on_closed",
        "_principal_builder",
        "authentication",
        "bound",
        "client_host",
        "client_port",
        "completed",
        "holds",
        "is_closed",
        "listener",
        "principal",
        "request_count",
        "sasl",
        "security_protocol",
        "software",
    )

    def __init__(
        self,
        client_host: str,
        client_port: int,
        listener: str,
        principal: str = ANONYMOUS,
        *,
        security_protocol: str = "PLAINTEXT",
        principal_builder: PrincipalBuilder | None = None,
    ) -> None:
        """`client_host` is the numeric address; `listener` names the listener that accepted the connection.

        Responses name brokers by their address on the same listener (KIP-103).
        """
        self.client_host = client_host
        self.client_port = client_port
        self.listener = listener
        self.principal = principal
        self.authentication = Authentication.COMPLETE
        self.sasl: SaslSession | None = None
        """The client's authentication; None on a listener without SASL."""
        self._principal_builder = principal_builder
        self._on_authenticated: Callable[[], None] | None = None
        """Lifts the limits on a client that has not authenticated itself."""
        self.security_protocol = security_protocol
        self.software = UNKNOWN_SOFTWARE
        """Name and version of the client library, as its ApiVersions request gave them (KIP-511)."""
        self.holds = 0
        """A bit set of `Hold`."""
        self.is_closed = False
        """The connection is gone; responses are complete when they would be sent."""
        self.completed: list[CompletedRequest] = []
        """Requests whose responses are complete and not handed to the socket yet, in order."""
        self._on_closed: Mapping[object, Callable[[], None]] = NOTHING_TO_END
        """By owner: ends what requests have begun that ends with the connection."""
        self.request_count = 0
        """Requests whose response was sent, or that expect none."""
        self.bound: dict[Any, Any] = {}
        """What the partitions that its requests name are bound to; filled by `broker.replica.bound_partition`."""

    def __str__(self) -> str:
        return f"{self.client_host}:{self.client_port} on {self.listener}"

    def authenticate_by(self, session: SaslSession, on_authenticated: Callable[[], None]) -> None:
        """Serve only the requests of an authentication until `authenticated`, which calls `on_authenticated` once."""
        self.sasl = session
        self._on_authenticated = on_authenticated
        self.authenticate_again()

    def authenticate_again(self) -> None:
        """Serve only the requests of an authentication until `authenticated`."""
        self.authentication = Authentication.PENDING

    def uses_software(self, name: str, version: str) -> None:
        """Note the client library, as its ApiVersions request gave it."""
        self.software = name, version

    def identified(self, user: str, *, certificate: bytes | None = None, mechanism: str = "") -> None:
        """Determine the principal of a client that is connected, or has logged in. Raises NoPrincipalError."""
        client = ProvenClient(self.listener, self.security_protocol, self.client_host, certificate, mechanism, user)
        self.principal = built(self._principal_builder, client)

    def authenticated(self, user: str, mechanism: str) -> None:
        """Serve all requests from now on, as those of a user. Raises NoPrincipalError."""
        self.identified(user, mechanism=mechanism)
        self.authentication = Authentication.COMPLETE
        if self._on_authenticated is not None:
            self._on_authenticated()
            self._on_authenticated = None

    def hold(self, reason: int) -> None:
        """Add one reason of `Hold`."""
        self.holds |= reason

    def release(self, reason: int) -> bool:
        """Remove one reason; return whether none is left. A reason that is not set has no effect."""
        self.holds &= ~reason
        return not self.holds

    def when_closed(self, owner: object, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection is gone, in the place of an earlier one of the same owner."""
        self._on_closed = {**self._on_closed, owner: callback}

    def closed(self, now_s: float) -> None:
        """The connection is gone; what was not sent will not be."""
        self.is_closed = True
        self.sent(now_s)
        for callback in self._on_closed.values():
            callback()

    def sent(self, now_s: float, sending_since_s: float | None = None) -> None:
        """Every response in `completed` was handed to the socket; see `CompletedRequest.sent`."""
        for request in self.completed:
            request.sent(now_s, sending_since_s)
        self.completed.clear()
