"""A network of this machine that records the frames which brokers send to each other.

Owns the frames. Must not know what they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from broker.network.network import SocketOptions
from broker.network.os_network import OsNetwork

LENGTH_SIZE = 4


class SentFrame(NamedTuple):
    """A request, without its length."""

    connection: int
    port: int
    frame: bytes


class RecordingNetwork(OsNetwork):
    """Several brokers may share one."""

    def __init__(self) -> None:
        self.sent: list[SentFrame] = []
        """In the order in which they were sent."""
        self._connections = 0

    async def connect(
        self, protocol: asyncio.BufferedProtocol, host: str, port: int, options: SocketOptions
    ) -> asyncio.Transport:
        self._connections += 1
        return await super().connect(_Recorded(self, self._connections, port, protocol), host, port, options)


class _Recorded(asyncio.BufferedProtocol):
    """A protocol whose transport records each frame."""

    def __init__(self, network: RecordingNetwork, connection: int, port: int, inner: asyncio.BufferedProtocol) -> None:
        self._network = network
        self._connection = connection
        self._port = port
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._inner.connection_made(self)  # type: ignore[arg-type]
        self.get_buffer = self._inner.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = self._inner.buffer_updated  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.buffer_updated(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    # asyncio.Transport, as the inner protocol sees it

    def writelines(self, buffers: Iterable[Any]) -> None:
        buffers = list(buffers)
        frame = b"".join(map(bytes, buffers))[LENGTH_SIZE:]
        self._network.sent.append(SentFrame(self._connection, self._port, frame))
        self._transport.writelines(buffers)

    def abort(self) -> None:
        self._transport.abort()
