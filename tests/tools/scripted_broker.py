"""A broker with scripted responses, for responses that a healthy broker never sends."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.headers import read_request_header, response_header
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_LENGTH = struct.Struct(">i")

Script = Callable[[Any], object]
"""Returns the response to a request; bytes are sent unchanged, None closes the connection."""


class ScriptedBroker:
    """Listens on 127.0.0.1 and responds with one script per request; the last one is repeated."""

    def __init__(self, *scripts: Script) -> None:
        self.requests: list[object] = []
        self._scripts = deque(scripts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                while (frame := _receive(connection)) is not None:
                    response = self._respond(frame)
                    if response is None:
                        break
                    connection.sendall(_LENGTH.pack(len(response)) + response)

    def _respond(self, frame: bytes) -> bytes | None:
        header, position = read_request_header(frame)
        api = APIS[header.api_key]
        request = decode(api.request, header.api_version, frame, position)
        if isinstance(request, ApiVersionsRequest):
            response: object = _versions()
        else:
            self.requests.append(request)
            script = self._scripts.popleft() if len(self._scripts) > 1 else self._scripts[0]
            response = script(request)
        if response is None or isinstance(response, bytes):
            return response
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        return b"".join([head, *encode(response, header.api_version)])


def _versions() -> ApiVersionsResponse:
    keys = [
        ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1]) for api in APIS.values()
    ]
    return ApiVersionsResponse(api_keys=keys)


def _receive(connection: socket.socket) -> bytes | None:
    """Return the next frame; None at the end of the stream."""
    with connection.makefile("rb", buffering=0) as stream:
        head = stream.read(_LENGTH.size)
        if not head or len(head) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack(head)
        frame = b""
        while len(frame) < size:
            piece = stream.read(size - len(frame))
            if not piece:
                return None
            frame += piece
        return frame
