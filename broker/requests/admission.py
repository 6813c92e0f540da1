"""Serve the controller before clients, while a broker of a cluster starts.

Owns that requests wait, and until when. Must not know requests beyond their declarations. Afterwards it costs nothing:
its `dispatch` is then that of the dispatcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.handlers.declaration import Declaration
from broker.loop.driver import start
from broker.network.channel import Channel
from broker.network.connection import Buffers, Dispatcher, Outcome, Response
from broker.requests.routes import TABLE
from protocol.frame import kept
from protocol.headers import UnsupportedApi, read_request_header


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
        if self._is_served(header.api_key):
            return self._dispatcher.dispatch(frame, channel)
        return start(self._dispatch_later(kept(frame), channel))

    @staticmethod
    def _is_served(api_key: int) -> bool:
        if api_key not in TABLE:
            return False
        declaration: Declaration = TABLE[api_key].API
        return declaration.is_served_before_login or declaration.is_served_before_clients

    async def _dispatch_later(self, frame: memoryview, channel: Channel) -> Buffers | Outcome | None:
        await self._admitted.wait()
        response = self._dispatcher.dispatch(frame, channel)
        if isinstance(response, bytes | bytearray | memoryview):
            return [response]
        return response if response is None or isinstance(response, list | Outcome) else await response
