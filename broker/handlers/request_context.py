"""What a handler may know about the request besides its body.

Owns who asks, over which listener, in which version. Must not know sockets, or what a request means.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.network.peer import Peer
from protocol.errors import Malformed


@dataclass(slots=True)
class RequestContext:
    """One request's header and its peer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    peer: Peer
    is_frame_kept: bool = False
    """Whether the request's frame, into which its records point, stays valid after the handler has returned."""

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def listener(self) -> str:
        return self.peer.listener

    @property
    def principal(self) -> str:
        return self.peer.principal


class CloseConnection(Malformed):
    """The protocol's only way to tell this peer something is to close its connection."""
