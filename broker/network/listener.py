"""One listener: its listening sockets, its open connections and their limits.

Owns: which connections are open. Must not know: requests.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from dataclasses import dataclass, field

from broker.network.connection import Connection, Dispatcher
from broker.request_context import Peer
from protocol.frame import FrameReader

logger = logging.getLogger("kafka.network.listener")

# What a machine without IPv6 says; its other addresses will do.
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

SCRATCH_SIZE = 256 << 10
# How much answer data may wait for a slow reader before its requests stay unread.
WRITE_HIGH_WATER_SIZE = 1 << 20
IDLE_SWEEPS_PER_LIMIT = 10


class ListenError(Exception):
    """The address cannot be listened on; the message names it."""


@dataclass(frozen=True)
class ListenerSettings:
    """Limits of one listener, by the names of their properties."""

    request_size_max: int
    backlog_size: int = 50
    send_buffer_bytes: int = 102400
    receive_buffer_bytes: int = 102400
    connections_max: int = 2**31 - 1
    connections_per_ip_max: int = 2**31 - 1
    connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    connection_idle_ms_max: int = 600_000


class Listener:
    """Accepts connections on one named address."""

    def __init__(self, name: str, settings: ListenerSettings) -> None:
        self.name = name
        self._settings = settings
        self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._connections: set[Connection] = set()
        self._connections_by_host: Counter[str] = Counter()
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._idle_sweep: asyncio.TimerHandle | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def bind(self, host: str, port: int) -> int:
        """Take `host` ("" = all addresses) and `port` (0 = any free one); the real port. Raises ListenError."""
        self._sockets = self._bound_sockets(host, port)
        return int(self._sockets[0].getsockname()[1])

    async def start(self, dispatcher: Dispatcher) -> None:
        """Accept connections on what was bound, and have their requests served."""
        loop = asyncio.get_running_loop()
        for bound in self._sockets:
            server = await loop.create_server(
                lambda: self._new_connection(dispatcher), sock=bound, backlog=self._settings.backlog_size
            )
            self._servers.append(server)
        self._schedule_idle_sweep(loop)

    def reconfigure(self, settings: ListenerSettings) -> None:
        """Apply changed limits from the next connection on; those that are open stay."""
        self._settings = settings

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections go on."""
        for server in self._servers:
            server.close()
        for bound in self._sockets:
            bound.close()
        self._servers.clear()
        self._sockets.clear()
        if self._idle_sweep is not None:
            self._idle_sweep.cancel()

    def close_connections(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _bound_sockets(self, host: str, port: int) -> list[socket.socket]:
        families = [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")] if not host else _addresses(host, port)
        sockets: list[socket.socket] = []
        for family, address in families:
            try:
                bound = self._bound_socket(family, address, sockets[0].getsockname()[1] if sockets else port)
            except OSError as error:
                if family == socket.AF_INET6 and len(families) > 1 and error.errno in NO_IPV6:
                    continue
                for other in sockets:
                    other.close()
                raise ListenError(
                    f"listener {self.name} cannot listen on {address}:{port}: {error.strerror}; expected a free port "
                    "of this machine"
                ) from error
            sockets.append(bound)
        return sockets

    def _bound_socket(self, family: int, address: str, port: int) -> socket.socket:
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Inherited by accepted sockets; the receive size has to be set before the window is negotiated.
            for option, size in (
                (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
                (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
            ):
                if size != -1:
                    bound.setsockopt(socket.SOL_SOCKET, option, size)
            bound.bind((address, port))
            # Listening is what finds the address in use; early clients wait in the backlog until `start`.
            bound.listen(self._settings.backlog_size)
        except OSError:
            bound.close()
            raise
        return bound

    def _new_connection(self, dispatcher: Dispatcher) -> Connection:
        return Connection(self, dispatcher, FrameReader(self._scratch, self._settings.request_size_max))

    def admit(self, connection: Connection, transport: asyncio.Transport) -> Peer | None:
        """Part of `Admission`: count the connection against the limits."""
        peername = transport.get_extra_info("peername")
        if peername is None:
            return None  # gone before it was accepted
        host, port = peername[:2]
        host_limit = self._settings.connections_per_ip_overrides.get(host, self._settings.connections_per_ip_max)
        if self._connections_by_host[host] >= host_limit:
            logger.warning("refused a connection from %s: %d connections of this address are open", host, host_limit)
            return None
        if len(self._connections) >= self._settings.connections_max:
            logger.warning("refused a connection from %s: %d connections are open", host, len(self._connections))
            return None
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_SIZE)
        self._connections.add(connection)
        self._connections_by_host[host] += 1
        return Peer(host, port, self.name)

    def closed(self, connection: Connection) -> None:
        """Part of `Admission`."""
        self._connections.discard(connection)
        host = connection.peer.client_host
        self._connections_by_host[host] -= 1
        if not self._connections_by_host[host]:
            del self._connections_by_host[host]

    def _schedule_idle_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        idle_ms_max = self._settings.connection_idle_ms_max
        if idle_ms_max >= 0:
            self._idle_sweep = loop.call_later(idle_ms_max / 1000 / IDLE_SWEEPS_PER_LIMIT, self._close_idle, loop)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        # Counting sweeps without traffic costs a request one attribute store; a clock reading would cost more.
        for connection in list(self._connections):
            if connection.has_received:
                connection.has_received = False
                connection.idle_sweeps = 0
                continue
            connection.idle_sweeps += 1
            if connection.idle_sweeps >= IDLE_SWEEPS_PER_LIMIT:
                logger.info("closing idle connection from %s", connection.peer)
                connection.abort()  # one that does not read would never drain
        self._schedule_idle_sweep(loop)


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"listener address {host}:{port} cannot be resolved: {error}") from error
    return list(dict.fromkeys((family, str(sockaddr[0])) for family, _, _, _, sockaddr in found))
