"""Listening ports come from the kernel, and a closed port stays closed."""

import os
import socket
import subprocess
import sys

import pytest

from tests.support.processes import closed_port, listening_ports


def test_listening_ports_of_this_process_are_found_and_connected_ones_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            found = listening_ports(os.getpid())
            assert port in found
            assert client.getsockname()[1] not in found
            assert bound.getsockname()[1] not in found
    assert port not in listening_ports(os.getpid())


def test_listening_ports_are_those_of_the_process_only() -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
    ):
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert listening_ports(other.pid) == [port]
        assert port not in listening_ports(os.getpid())
        assert own.getsockname()[1] not in listening_ports(other.pid)
        other.communicate("\n")


def test_a_closed_port_rejects_connections_and_stays_reserved() -> None:
    with closed_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
