"""A proxy before ZooKeeper, which cuts the connection at a chosen request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from enum import Enum

PING_XID = -2
_XID_BYTES = 4

Pair = set[asyncio.StreamWriter]
"""The two sides of one connection."""


class Cut(Enum):
    """Where the connection ends: before the request reaches the server, or before its response reaches the client."""

    REQUEST = "request"
    RESPONSE = "response"


class ZooKeeperProxy:
    """Counts requests, without pings and the first frame of each connection, which begins or resumes a session."""

    def __init__(self, port: int) -> None:
        self._target_port = port
        self.port = 0
        self.requests = 0
        self.cuts = 0
        self._cut_at: dict[int, Cut] = {}
        self._is_open = True
        self._connections: set[asyncio.StreamWriter] = set()

    def cut_at(self, request: int, where: Cut) -> None:
        """Cut the connection at the request with this number, counted from 0."""
        self._cut_at[request] = where

    def refuse(self) -> None:
        """Cut all connections, and refuse new ones until `admit`."""
        self._is_open = False
        self.cut_all()

    def admit(self) -> None:
        self._is_open = True

    def cut_all(self) -> None:
        _abort(self._connections)

    async def serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            client_writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            client_writer.transport.abort()
            return
        pair = {client_writer, server_writer}
        self._connections |= pair
        lost_xids: set[bytes] = set()
        both = [
            asyncio.ensure_future(self._forward_requests(client_reader, server_writer, pair, lost_xids)),
            asyncio.ensure_future(self._forward_responses(server_reader, client_writer, pair, lost_xids)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
                with suppress(asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
                    await task
            self._connections -= pair
            _abort(pair)

    async def _forward_requests(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, pair: Pair, lost_xids: set[bytes]
    ) -> None:
        server.write(await _frame(client))  # it begins or resumes the session
        while True:
            frame = await _frame(client)
            xid = frame[4 : 4 + _XID_BYTES]
            if int.from_bytes(xid, "big", signed=True) != PING_XID:
                where = self._cut_at.pop(self.requests, None)
                self.requests += 1
                if where is Cut.REQUEST:
                    self._cut(pair)
                elif where is Cut.RESPONSE:
                    lost_xids.add(xid)
            server.write(frame)
            await server.drain()

    async def _forward_responses(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, pair: Pair, lost_xids: set[bytes]
    ) -> None:
        while True:
            frame = await _frame(server)
            if frame[4 : 4 + _XID_BYTES] in lost_xids:
                self._cut(pair)
            client.write(frame)
            await client.drain()

    def _cut(self, pair: Pair) -> None:
        self.cuts += 1
        _abort(pair)


def _abort(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))


@asynccontextmanager
async def zookeeper_proxy(port: int) -> AsyncIterator[ZooKeeperProxy]:
    """Serve before the ZooKeeper at `port` of 127.0.0.1."""
    proxy = ZooKeeperProxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.refuse()
        await server.wait_closed()
