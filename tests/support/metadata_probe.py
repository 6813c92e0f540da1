"""The smallest question that only a serving broker answers: Metadata about no topic.

Packed by hand, so that it asks Apache Kafka and Milena alike and leans on nothing that is under test.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

METADATA_KEY = 3
METADATA_VERSION = 1
ASK_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class ClusterView:
    """Which brokers a broker knows of, and which of them it takes for the controller (-1: none)."""

    brokers: frozenset[int]
    controller: int


def ask_metadata(port: int) -> ClusterView:
    """One connection, one request, one answer; OSError when nobody is there or the peer hangs up."""
    body = struct.pack(">hhih", METADATA_KEY, METADATA_VERSION, 1, -1) + struct.pack(">i", 0)
    with socket.create_connection(("127.0.0.1", port), ASK_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
        return _parse(_receive_exactly(connection, size))


def is_serving(port: int, broker_count: int = 1) -> bool:
    """Whether the broker at `port` knows that many brokers and a controller among them."""
    view = ask_metadata(port)
    return len(view.brokers) >= broker_count and view.controller in view.brokers


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the connection in the middle of an answer")
        received += piece
    return bytes(received)


def _parse(answer: bytes) -> ClusterView:
    (count,) = struct.unpack_from(">i", answer, 4)
    position = 8
    brokers: set[int] = set()
    for _ in range(count):
        broker, host_size = struct.unpack_from(">ih", answer, position)
        position += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(rack_size, 0)
        brokers.add(broker)
    (controller,) = struct.unpack_from(">i", answer, position)
    return ClusterView(frozenset(brokers), controller)
