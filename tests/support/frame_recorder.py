"""A TCP proxy in front of a Kafka broker that records the frames of every connection.

Owns: its listening socket, a thread per direction, and pairing requests with responses. Of a frame it knows only
its size, its correlation id, and that a Produce request may get no response.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Self

SIZE = struct.Struct(">i")
CORRELATION_OF_REQUEST = struct.Struct(">hhi")


@dataclass
class RecordedExchange:
    """One request and its response, if any; both without the length prefix."""

    connection: int
    number: int
    request: bytes
    response: bytes | None = None


@dataclass
class _Conversation:
    number: int
    exchanges: list[RecordedExchange] = field(default_factory=list)

    def add_request(self, frame: bytes) -> None:
        self.exchanges.append(RecordedExchange(self.number, len(self.exchanges) + 1, frame))

    def add_response(self, frame: bytes) -> None:
        (correlation_id,) = SIZE.unpack_from(frame)
        for exchange in self.exchanges:
            if exchange.response is None and CORRELATION_OF_REQUEST.unpack_from(exchange.request)[2] == correlation_id:
                exchange.response = frame
                return


class FrameRecorder:
    """Listens on `port` of 127.0.0.1 as soon as it is made, and asks `broker_port` for each connection."""

    def __init__(self, broker_port: Callable[[], int]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._broker_port = broker_port
        self._numbers = count(1)
        self._conversations: list[_Conversation] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def take(self) -> list[RecordedExchange]:
        """Return what was recorded since the last call, in the order of connections; responses that follow are lost."""
        taken, self._conversations = self._conversations, []
        return [replace(exchange) for conversation in taken for exchange in conversation.exchanges]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port()))
            except OSError:
                return  # the recorder was closed
            conversation = _Conversation(next(self._numbers))
            self._conversations.append(conversation)
            for source, target, keep in (
                (client, broker, conversation.add_request),
                (broker, client, conversation.add_response),
            ):
                threading.Thread(target=_copy, args=(source, target, keep), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, keep: object) -> None:
    assert callable(keep)
    received = bytearray()
    try:
        while piece := source.recv(1 << 16):
            received += piece
            while len(received) >= SIZE.size:
                end = SIZE.size + SIZE.unpack_from(received)[0]
                if len(received) < end:
                    break
                keep(bytes(received[SIZE.size : end]))  # before the other side can respond
                del received[:end]
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()
