"""The smallest request that shows that a broker serves: Metadata about no topic.

Packed by hand, so that it works with Apache Kafka and Milena and does not depend on code under test.
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
    """The brokers that a broker knows, and its controller (-1: none)."""

    brokers: frozenset[int]
    controller: int


def ask_metadata(port: int) -> ClusterView:
    """Send one request on one connection; return the response. Raises OSError without a listener or a response."""
    body = struct.pack(">hhih", METADATA_KEY, METADATA_VERSION, 1, -1) + struct.pack(">i", 0)
    with socket.create_connection(("127.0.0.1", port), ASK_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
        return _parse(_receive_exactly(connection, size))


def is_serving(port: int, broker_count: int = 1) -> bool:
    """Return whether the broker at `port` knows that many brokers, including a controller."""
    view = ask_metadata(port)
    return len(view.brokers) >= broker_count and view.controller in view.brokers


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the connection in the middle of a response")
        received += piece
    return bytes(received)


def _parse(response: bytes) -> ClusterView:
    (count,) = struct.unpack_from(">i", response, 4)
    position = 8
    brokers: set[int] = set()
    for _ in range(count):
        broker, host_size = struct.unpack_from(">ih", response, position)
        position += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", response, position)
        position += 2 + max(rack_size, 0)
        brokers.add(broker)
    (controller,) = struct.unpack_from(">i", response, position)
    return ClusterView(frozenset(brokers), controller)
