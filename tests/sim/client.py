"""A client process: sends requests, one at a time, and waits for the responses."""

from __future__ import annotations

import asyncio
import struct
from itertools import count
from typing import Any

from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.headers import read_response_header, request_header
from tests.sim.network import SimulatedHost

_KEY_OF = {api.request: api.key for api in APIS.values()}


class Client(asyncio.Protocol):
    """One connection to a broker."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._awaited: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport
        self._correlation_ids = count()
        self.is_lost = False

    @classmethod
    async def connected(cls, network: SimulatedHost, host: str, port: int) -> Client:
        client = cls()
        await network.connect(client, host, port)
        return client

    async def ask(self, request: object, version: int) -> Any:
        """Return the response. Raises ConnectionError if the connection is lost before it has come."""
        if self.is_lost:
            raise ConnectionError
        api = APIS[_KEY_OF[type(request)]]
        payload = request_header(api.key, version, next(self._correlation_ids), "sim") + b"".join(
            encode(request, version)
        )
        self._awaited = asyncio.get_running_loop().create_future()
        self._transport.write(struct.pack(">i", len(payload)) + payload)
        content = await self._awaited
        _, position = read_response_header(api.key, version, content)
        return decode(api.response, version, content, position)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4:
            return
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) >= 4 + size and self._awaited is not None and not self._awaited.done():
            content, self._received = bytes(self._received[4 : 4 + size]), self._received[4 + size :]
            self._awaited.set_result(content)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(ConnectionError())
