"""What a probe finds at an address, and what is said about it."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.broker import BrokerProcess
from tests.support.processes import closed_port
from tools.client.bootstrap import Endpoint
from tools.client.listener_probe import served_at, wrong_listener

QUICKLY_S, SOON_S, IN_TIME_S = 0.05, 1.0, 30.0
"""For peers that stay silent; others respond at once."""
Peer = Callable[[socket.socket], None]


@contextmanager
def serving(peer: Peer) -> Iterator[Endpoint]:
    """Serve each connection by a function of its socket, one after another."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    peer(connection)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Endpoint(*listener.getsockname())
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def http_at_once(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def http_after_a_line(connection: socket.socket) -> None:
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        piece = connection.recv(1024)
        if not piece:
            return
        received += piece
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")


def closes(connection: socket.socket) -> None:
    connection.recv(1024)


def stays_silent(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


def responds_to_another_request(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(struct.pack(">ii", 4, 77))


def closes_after_api_versions(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(struct.pack(">iihi", 10, 1, 0, 0))
    connection.recv(1024)


@pytest.mark.parametrize(
    ("peer", "timeout_s", "found"),
    [
        (http_at_once, IN_TIME_S, "HTTP"),
        (http_after_a_line, SOON_S, "HTTP"),  # it reads the first request as a part of a line, until that times out
        (closes, IN_TIME_S, None),
        (stays_silent, QUICKLY_S, None),
        (responds_to_another_request, IN_TIME_S, None),
        (closes_after_api_versions, IN_TIME_S, "SASL_PLAINTEXT"),
    ],
)
def test_peer_is_recognised_by_its_first_bytes(peer: Peer, timeout_s: float, found: str | None) -> None:
    with serving(peer) as endpoint:
        assert served_at(endpoint, timeout_s) == found


def test_closed_port_is_no_wrong_listener() -> None:
    with closed_port() as port:
        assert wrong_listener(Endpoint("127.0.0.1", port), "PLAINTEXT", "--command-config") is None


def test_listener_with_the_protocol_of_the_client_is_right(broker: BrokerProcess) -> None:
    endpoint = Endpoint("127.0.0.1", broker.port)
    assert served_at(endpoint) == "PLAINTEXT"
    assert wrong_listener(endpoint, "PLAINTEXT", "--command-config") is None


def test_broker_that_stops_between_two_requests_does_not_ask_for_a_login() -> None:
    scripts = iter((closes_after_api_versions, closes, closes, closes))

    def stops(connection: socket.socket) -> None:
        next(scripts)(connection)

    with serving(stops) as endpoint:
        assert wrong_listener(endpoint, "PLAINTEXT", "--command-config") is None
