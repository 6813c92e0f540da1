"""Send requests to a dispatcher in the same process: for programs that host a broker, and for tests.

Owns encoding the request and decoding the response, as on the wire. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from base.clock import Clock
from base.file_slice import FileSlice
from broker.network.channel import Channel
from broker.network.connection import Buffer, Buffers, Dispatcher, Outcome
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.headers import read_response_header, request_header
from protocol.schema import message_info

CORRELATION_ID = 7
_LENGTH_SIZE = 4


class LocalClient:
    """One client of one broker."""

    def __init__(self, dispatcher: Dispatcher, clock: Clock, listener: str, *, port: int = 50_000) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self.channel = Channel("127.0.0.1", port, listener)

    async def ask(self, request: object, version: int | None = None, *, client_id: str = "local") -> Any:
        """Return the response to `request` in `version` (default: the usual one); None if there is none.

        Raises Malformed if the connection would close.
        """
        api = APIS[message_info(type(request)).api_key]
        version = api.usual_version if version is None else version
        frame = request_header(api.key, version, CORRELATION_ID, client_id) + b"".join(encode(request, version))
        buffers = await self.send(frame, self.channel)
        if buffers is None:
            return None
        pieces: Sequence[Buffer | FileSlice] = buffers
        framed = b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces)
        payload = framed[_LENGTH_SIZE:]
        correlation_id, position = read_response_header(api.key, version, payload)
        assert correlation_id == CORRELATION_ID
        return decode(api.response, version, payload, position)

    async def send(self, frame: bytes, channel: Channel) -> Buffers | None:
        """Return the framed response to the bytes of one request; None if there is none."""
        response = self._dispatcher.dispatch(memoryview(bytearray(frame)), channel)
        if isinstance(response, bytes | bytearray | memoryview):
            response = [response]
        elif not (response is None or isinstance(response, list | Outcome)):
            response = await response
        now_s = self._clock.monotonic_s()
        channel.sent(now_s, now_s)
        return response.buffers if isinstance(response, Outcome) else response
