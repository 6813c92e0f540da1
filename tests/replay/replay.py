"""Captured conversations, sent again to a broker under test.

Owns: the sockets (one for each captured connection), the order, and waiting for responses that depend on a request of
another member.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Any, Self

from protocol.codec import encode
from protocol.frame import LENGTH
from protocol.headers import request_header
from tests.replay.comparison import differences
from tests.replay.exchange import Exchange
from tests.replay.translation import Translation, UntoldError

PATIENCE_S = 1.0
"""How long a request may keep the next one of another connection waiting."""
TIMEOUT_S = 20.0


class Replay:
    """One run against the broker at `port`; `untold` are the requests whose ids no response has contained."""

    def __init__(self, port: int, translation: Translation) -> None:
        self._port = port
        self._connections: dict[int, _Connection] = {}
        self._translation = translation
        self.untold: list[Exchange] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def run(self, exchanges: Iterable[Exchange]) -> Iterator[tuple[Exchange, list[str]]]:
        """Yield every exchange with its differences, in the order of the responses."""
        for exchange in exchanges:
            connection = self._connections.get(exchange.connection)
            if connection is None:
                connection = self._connections[exchange.connection] = _Connection(self._port)
            yield from self._collect(connection, TIMEOUT_S)
            try:
                self._send(connection, exchange)
                yield from self._collect(connection, PATIENCE_S)
            except UntoldError:
                self.untold.append(exchange)
            except ConnectionError as error:
                del self._connections[exchange.connection]
                connection.close()
                yield exchange, [f"connection: {error}"]
        for connection in self._connections.values():
            yield from self._collect(connection, TIMEOUT_S)

    def _send(self, connection: _Connection, exchange: Exchange) -> None:
        request = exchange.request()
        self._translation.apply(request, exchange.response() if exchange.response_frame else None)
        header = exchange.header
        connection.send(request_header(*header) + b"".join(encode(request, header.api_version)))
        if exchange.response_frame is not None:
            connection.waiting = (exchange, request)

    def _collect(self, connection: _Connection, timeout_s: float) -> Iterator[tuple[Exchange, list[str]]]:
        if connection.waiting is None:
            return
        frame = connection.receive(timeout_s)
        if frame is None:
            return
        exchange, request = connection.waiting
        connection.waiting = None
        theirs, ours = exchange.response(), exchange.decode_response(frame)
        self._translation.learn(request, theirs, ours)
        yield exchange, list(differences(theirs, ours))


class _Connection:
    """A socket and the request whose response is pending."""

    def __init__(self, port: int) -> None:
        self.waiting: tuple[Exchange, Any] | None = None
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._received = bytearray()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(LENGTH.pack(len(frame)) + frame)

    def receive(self, timeout_s: float) -> bytes | None:
        """The next frame; None when it is not complete in time."""
        self._socket.settimeout(timeout_s)
        while True:
            if len(self._received) >= LENGTH.size:
                end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
                if len(self._received) >= end:
                    frame = bytes(self._received[LENGTH.size : end])
                    del self._received[:end]
                    return frame
            try:
                piece = self._socket.recv(65536)
            except TimeoutError:
                return None
            if not piece:
                raise ConnectionResetError("the broker closed it")
            self._received += piece

    def close(self) -> None:
        self._socket.close()
