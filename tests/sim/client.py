"""A connection of a client process: sends requests in frames, and matches the responses to them."""

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
    """One connection to a broker. Several requests may be in flight."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._awaited: dict[int, asyncio.Future[bytes]] = {}
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
            raise ConnectionError("the connection is lost")
        api = APIS[_KEY_OF[type(request)]]
        correlation_id = next(self._correlation_ids)
        payload = request_header(api.key, version, correlation_id, "sim") + b"".join(encode(request, version))
        response = self._awaited[correlation_id] = asyncio.get_running_loop().create_future()
        self._transport.write(struct.pack(">i", len(payload)) + payload)
        try:
            content = await response
        finally:
            self._awaited.pop(correlation_id, None)
        _, position = read_response_header(api.key, version, content)
        return decode(api.response, version, content, position)

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            content, self._received = bytes(self._received[4:end]), self._received[end:]
            response = self._awaited.get(int.from_bytes(content[:4], "big"))
            if response is not None and not response.done():
                response.set_result(content)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        for response in self._awaited.values():
            if not response.done():
                response.set_exception(ConnectionError("the connection is lost"))
