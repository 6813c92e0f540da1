"""Which ports of the machine are bound; what they do is shown with the servers that use them."""

import errno
import socket

import pytest

from broker.network import os_network
from broker.network.network import ListenError, SocketOptions
from broker.network.os_network import FREE_PORT_ATTEMPTS, ListeningSocket, OsNetwork

bind = os_network._listening_socket


def refuse_ipv4(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let another process own the next ports in IPv4; return the list of those asked for in IPv4."""
    asked: list[int] = []

    def refusing(family: int, address: str, port: int, options: SocketOptions) -> ListeningSocket:
        if family == socket.AF_INET:
            asked.append(port)
            if len(asked) <= times:
                raise OSError(errno.EADDRINUSE, "Address already in use")
            return bind(family, address, port, options)
        return bind(socket.AF_INET, "127.0.0.1", port, options)

    monkeypatch.setattr(os_network, "_listening_socket", refusing)
    monkeypatch.setattr(
        os_network, "_addresses", lambda host, port: [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.2")]
    )
    return asked


def test_a_free_port_is_free_in_both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = refuse_ipv4(monkeypatch, FREE_PORT_ATTEMPTS - 1)
    ports = OsNetwork().listen("both", 0, SocketOptions())
    try:
        assert [listening.port for listening in ports] == [asked[-1]] * 2
    finally:
        for listening in ports:
            listening.close()
    assert len(asked) == FREE_PORT_ATTEMPTS


@pytest.mark.parametrize(("port", "attempts"), [(0, FREE_PORT_ATTEMPTS), (1, 1)])
def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch, port: int, attempts: int) -> None:
    asked = refuse_ipv4(monkeypatch, FREE_PORT_ATTEMPTS)
    if port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.2:{port}: Address already in use"):
        OsNetwork().listen("both", port, SocketOptions())
    assert len(asked) == attempts
