"""Serve the controller before clients, while a broker of a cluster starts.

Owns which requests wait, and until when. Must not know requests beyond their keys. Afterwards it costs nothing: its
`dispatch` is then that of the dispatcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.network.channel import Channel
from broker.network.connection import Buffers, Dispatcher, Outcome, Response
from protocol.frame import kept
from protocol.headers import UnsupportedApi, read_request_header

LEADER_AND_ISR_KEY, STOP_REPLICA_KEY, UPDATE_METADATA_KEY = 4, 5, 6
SASL_HANDSHAKE_KEY, API_VERSIONS_KEY, SASL_AUTHENTICATE_KEY = 17, 18, 36

SERVED_BEFORE_CLIENTS = frozenset(
    {
        LEADER_AND_ISR_KEY,
        STOP_REPLICA_KEY,
        UPDATE_METADATA_KEY,
        SASL_HANDSHAKE_KEY,
        API_VERSIONS_KEY,
        SASL_AUTHENTICATE_KEY,
    }
)


class Admission:
    """A `Dispatcher` before another one, which serves only what the controller sends until `admit_clients`."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._admitted = asyncio.Event()
        self.dispatch: Callable[[memoryview, Channel], Response] = self._dispatch_of_controller

    def admit_clients(self) -> None:
        """Serve every request, also those that wait."""
        self.dispatch = self._dispatcher.dispatch
        self._admitted.set()

    def _dispatch_of_controller(self, frame: memoryview, channel: Channel) -> Response:
        try:
            header, _ = read_request_header(frame)
        except UnsupportedApi:
            return self._dispatcher.dispatch(frame, channel)
        if header.api_key in SERVED_BEFORE_CLIENTS:
            return self._dispatcher.dispatch(frame, channel)
        return asyncio.ensure_future(self._dispatch_later(kept(frame), channel))

    async def _dispatch_later(self, frame: memoryview, channel: Channel) -> Buffers | Outcome | None:
        await self._admitted.wait()
        response = self._dispatcher.dispatch(frame, channel)
        if isinstance(response, bytes | bytearray | memoryview):
            return [response]
        return response if response is None or isinstance(response, list | Outcome) else await response
