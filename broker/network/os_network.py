"""The network of this machine: TCP sockets.

Owns the calls that resolve names, bind, listen, accept and connect. Must not know limits of connections, or requests.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

from broker.network.network import Arrival, ListenError, ListeningPort, SocketOptions
from broker.network.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S, ClientContext, ServerContext

# A machine without IPv6 fails with these; a listener on all addresses then uses those of IPv4.
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
FREE_PORT_ATTEMPTS = 10
"""A port that is free in one family may be taken in another; the kernel is asked this often for one."""


async def resolve_in_thread(host: str) -> list[str]:
    """Return the numeric addresses that a name stands for. It does not hold the event loop.

    Raises:
        OSError, UnicodeError: the name has no address, or cannot be a name.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class OsNetwork:
    """`Network` over the sockets of the operating system."""

    def listen(self, host: str, port: int, options: SocketOptions) -> Sequence[ListeningPort]:
        families = [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")] if not host else _addresses(host, port)
        return _listen(families, port, options, attempts=1 if port else FREE_PORT_ATTEMPTS)

    async def connect(
        self,
        protocol: asyncio.BufferedProtocol,
        host: str,
        port: int,
        options: SocketOptions,
        tls: ClientContext | None = None,
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        refused: OSError = ConnectionRefusedError(f"{host} has no address")
        for family, _, _, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connecting = _new_socket(family, options)
            try:
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(connecting, address)
            except OSError as error:
                connecting.close()
                refused = error
                continue
            except BaseException:
                connecting.close()
                raise
            if tls is None:
                transport, _ = await loop.create_connection(lambda: protocol, sock=connecting)
            else:
                transport, _ = await loop.create_connection(
                    lambda: protocol,
                    sock=connecting,
                    ssl=tls,
                    server_hostname=host,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
            return transport
        raise refused


class ListeningSocket:
    """`ListeningPort` over one socket."""

    def __init__(self, bound: socket.socket) -> None:
        """`bound` is a non-blocking socket that listens."""
        self._bound = bound
        self.port = int(bound.getsockname()[1])

    def watch(self, on_arrival: Callable[[ListeningPort], None]) -> None:
        asyncio.get_running_loop().add_reader(self._bound, on_arrival, self)

    def unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._bound)

    def accept(self) -> Arrival | None:
        try:
            accepted, address = self._bound.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return None
        return AcceptedSocket(accepted, address[0], address[1])

    def close(self) -> None:
        self._bound.close()


class AcceptedSocket:
    """`Arrival` over one socket."""

    def __init__(self, accepted: socket.socket, host: str, port: int) -> None:
        self._accepted = accepted
        self.host = host
        self.port = port

    async def serve(self, protocol: asyncio.BufferedProtocol, tls: ServerContext | None = None) -> asyncio.Transport:
        self._accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        if tls is None:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, self._accepted)
        else:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                self._accepted,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        return transport

    def close(self) -> None:
        self._accepted.close()


def _listen(
    families: Sequence[tuple[int, str]], port: int, options: SocketOptions, attempts: int
) -> Sequence[ListeningPort]:
    ports: list[ListeningSocket] = []
    for family, address in families:
        try:
            ports.append(_listening_socket(family, address, ports[0].port if ports else port, options))
        except OSError as error:
            if family == socket.AF_INET6 and len(families) > 1 and error.errno in NO_IPV6:
                continue
            for other in ports:
                other.close()
            if error.errno == errno.EADDRINUSE and attempts > 1:
                return _listen(families, port, options, attempts - 1)
            raise ListenError(
                f"cannot listen on {address}:{port}: {error.strerror}; expected a free port of this machine"
            ) from error
    return ports


def _listening_socket(family: int, address: str, port: int, options: SocketOptions) -> ListeningSocket:
    bound = _new_socket(family, options)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address, port))
        # `listen` reports an address in use; clients that connect before the broker accepts wait in the backlog.
        bound.listen(options.backlog_size)
    except OSError:
        bound.close()
        raise
    return ListeningSocket(bound)


def _new_socket(family: int, options: SocketOptions) -> socket.socket:
    """Return a non-blocking socket with its buffer sizes. Sockets that a listening one accepts inherit them."""
    new = socket.socket(family, socket.SOCK_STREAM)
    try:
        new.setblocking(False)
        # The receive buffer must be set before the TCP window is negotiated.
        for option, size in (
            (socket.SO_SNDBUF, options.send_buffer_bytes),
            (socket.SO_RCVBUF, options.receive_buffer_bytes),
        ):
            if size != -1:
                new.setsockopt(socket.SOL_SOCKET, option, size)
    except OSError:
        new.close()
        raise
    return new


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    # For text Python imports its tables of international names, which takes a millisecond; bytes are passed on.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}, which cannot be resolved: {error}") from error
    return list(dict.fromkeys((family, str(sockaddr[0])) for family, _, _, _, sockaddr in found))
