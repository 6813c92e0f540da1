"""Ports for servers that cannot choose one themselves, or whose port others must know before they start.

A server that can binds port 0 (`tests.support.processes`): nobody takes its port in between.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nobody is bound to at present."""
    with ExitStack() as bound:
        sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def free_port() -> int:
    (port,) = free_ports(1)
    return port
