"""Single requests to a broker, field by field, for requests that client libraries do not send."""

from __future__ import annotations

import socket
from typing import Any, Self

from protocol.api import APIS, Api
from protocol.codec import decode, encode
from protocol.frame import LENGTH
from protocol.headers import read_response_header, request_header

TIMEOUT_S = 10.0


class WireClient:
    """One connection to 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: object, version: int) -> Any:
        """Send a request; return the response, an object of the request's API."""
        return self.receive(self.send(request, version), version)

    def receive(self, api: Api, version: int, *, behind: int = 0) -> Any:
        """Return the response to the last request, or to the one `behind` requests before it."""
        response = self._receive_frame()
        correlation_id, position = read_response_header(api.key, version, response)
        assert correlation_id == self._correlation_id - behind
        return decode(api.response, version, response, position)

    def send(self, request: object, version: int) -> Api:
        """Send a request without waiting for the response."""
        api = next(api for api in APIS.values() if api.request is type(request))
        self._correlation_id += 1
        frame = request_header(api.key, version, self._correlation_id, "wire-client")
        frame += b"".join(encode(request, version))
        self._socket.sendall(LENGTH.pack(len(frame)) + frame)
        return api

    def exchange_frame(self, frame: bytes) -> bytes:
        """Send a frame that is no request; return the frame that the broker sends back."""
        self.send_frame(frame)
        return self._receive_frame()

    def send_frame(self, frame: bytes) -> None:
        """Send a frame that is no request."""
        self._socket.sendall(LENGTH.pack(len(frame)) + frame)

    def _receive_frame(self) -> bytes:
        (size,) = LENGTH.unpack(self._receive(LENGTH.size))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)
