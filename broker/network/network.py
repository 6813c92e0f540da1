"""The port to the network: addresses to listen on, the connections that arrive there, and connections to other brokers.

Owns the interface. Must not know sockets (`broker.network.os_network`), or which clients are connected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from base.dataclass import dataclass
from broker.network.tls import ClientContext, ServerContext


class ListenError(Exception):
    """An address cannot be bound; the message names it."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options of the sockets of one listener, named like their properties; -1: the kernel chooses.

    A socket that connects has no backlog.
    """

    backlog_size: int = 50
    send_buffer_bytes: int = 102400
    receive_buffer_bytes: int = 102400


class Arrival(Protocol):
    """A connection that a client has opened, and that is not served yet."""

    host: str
    port: int

    async def serve(self, protocol: asyncio.BufferedProtocol, tls: ServerContext | None = None) -> asyncio.Transport:
        """Connect `protocol` to the client; return its transport. Raises OSError if the client has left.

        With `tls`, the protocol is connected after the handshake. Raises OSError if that fails or takes too long.

        Do not cancel this: the socket would be closed without `connection_lost`.
        """

    def close(self) -> None: ...


class ListeningPort(Protocol):
    """One bound address. Clients that connect while nothing accepts wait in its backlog."""

    port: int

    def watch(self, on_arrival: Callable[[ListeningPort], None]) -> None:
        """Call `on_arrival(self)` in each turn of the event loop in which a connection waits, until `unwatch`."""

    def unwatch(self) -> None: ...

    def accept(self) -> Arrival | None:
        """Return the first connection of the backlog; None if none waits.

        Raises:
            OSError: There are no descriptors or no memory for it; it stays in the backlog.
        """

    def close(self) -> None: ...


class Network(Protocol):
    """The network that a broker is connected to."""

    def listen(self, host: str, port: int, options: SocketOptions) -> Sequence[ListeningPort]:
        """Bind `host` ("" = all addresses) and `port` (0 = any free port, the same for all addresses).

        Raises:
            ListenError: An address cannot be bound. No other is bound then.
        """

    async def connect(
        self,
        protocol: asyncio.BufferedProtocol,
        host: str,
        port: int,
        options: SocketOptions,
        tls: ClientContext | None = None,
    ) -> asyncio.Transport:
        """Open a connection, connect `protocol` to it, after a handshake with `tls`, and return its transport.

        May be cancelled before it returns; nothing is connected then.

        Raises:
            OSError: The host is unknown, or none of its addresses accepts connections on this port.
        """
