"""The commands to the process that hosts brokers, and its responses.

Owns the frames, and which response belongs to which command. Must not know what a command does.
`tools.launch.fixture.broker_host` is the other side.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

_LENGTH = struct.Struct(">I")
_PIECE_SIZE_MAX = 1 << 20


class NoResponseError(Exception):
    """No response came in time. If it comes later, it is discarded: the next command gets its own."""


class Control:
    """One side of a socket. Not thread-safe.

    A frame is its length and JSON. A response repeats the number of its command.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._number = 0
        self._received = bytearray()

    def exchange(self, message: Mapping[str, object], timeout_s: float) -> Any:
        """Send a command and return its response.

        Raises NoResponseError after `timeout_s`, and OSError if the process has ended or reads no commands: the socket
        cannot be used any more.
        """
        deadline_s = time.monotonic() + timeout_s
        self._number += 1
        data = json.dumps({**message, "number": self._number}).encode()
        self._link.settimeout(timeout_s)
        self._link.sendall(_LENGTH.pack(len(data)) + data)
        while True:
            response = self._next(deadline_s)
            if response["number"] == self._number:
                return response

    def _next(self, deadline_s: float) -> Any:
        self._fill(_LENGTH.size, deadline_s)
        (size,) = _LENGTH.unpack_from(self._received)
        end = _LENGTH.size + size
        self._fill(end, deadline_s)
        response = json.loads(self._received[_LENGTH.size : end])
        del self._received[:end]
        return response

    def _fill(self, size: int, deadline_s: float) -> None:
        """Receive until there are `size` bytes. What was received stays if that takes too long."""
        while len(self._received) < size:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise NoResponseError
            self._link.settimeout(left_s)
            try:
                piece = self._link.recv(min(size - len(self._received), _PIECE_SIZE_MAX))
            except TimeoutError:
                raise NoResponseError from None
            if not piece:
                raise ConnectionError("the process has ended")
            self._received += piece
