"""A TCP proxy in front of a Kafka broker that records the frames of every connection.

Owns: its listening socket, a thread per direction, and pairing requests with responses. Of a frame it knows only
its size, its correlation id, and that a Produce request may get no response.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
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


BeforeResponse = Callable[[RecordedExchange], None]
"""Gets each exchange before its response is passed on. An OSError cuts the connection: the response is lost."""


def pass_on(_exchange: RecordedExchange) -> None:
    """Lose nothing."""


@dataclass
class _Conversation:
    number: int
    before_response: BeforeResponse
    exchanges: list[RecordedExchange] = field(default_factory=list)

    def add_request(self, frame: bytes) -> None:
        self.exchanges.append(RecordedExchange(self.number, len(self.exchanges) + 1, frame))

    def add_response(self, frame: bytes) -> None:
        (correlation_id,) = SIZE.unpack_from(frame)
        for exchange in self.exchanges:
            if exchange.response is None and CORRELATION_OF_REQUEST.unpack_from(exchange.request)[2] == correlation_id:
                exchange.response = frame
                self.before_response(exchange)
                return


class FrameRecorder:
    """Listens on `port` of 127.0.0.1 as soon as it is made, and asks `broker_port` for each connection."""

    def __init__(self, broker_port: Callable[[], int], before_response: BeforeResponse = pass_on) -> None:
        """`before_response` can be replaced while connections are open; it then applies to those that follow."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._broker_port = broker_port
        self.before_response = before_response
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
            except OSError:
                return  # the recorder was closed
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port()))
            except OSError:
                client.close()  # the broker does not listen yet
                continue
            conversation = _Conversation(next(self._numbers), self.before_response)
            self._conversations.append(conversation)
            threading.Thread(target=_converse, args=(client, broker, conversation), daemon=True).start()


def _converse(client: socket.socket, broker: socket.socket, conversation: _Conversation) -> None:
    with client, broker:
        requests = threading.Thread(target=_copy, args=(client, broker, conversation.add_request), daemon=True)
        requests.start()
        _copy(broker, client, conversation.add_response)
        requests.join()


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
        for end in (source, target):
            with suppress(OSError):  # the other direction may have ended it
                end.shutdown(socket.SHUT_RDWR)
