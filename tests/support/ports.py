"""Ports for servers that cannot choose one themselves, or whose port others must know before they start.

A server that can binds port 0 (`tests.support.processes`): nobody takes its port in between.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final

ATTEMPTS_MAX: Final = 100
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


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


def quiet_port() -> int:
    """Return a port that is free, and that the kernel gives neither to a client's connection nor to port 0.

    For a server that starts later, when clients of the same test have made connections.
    """
    lowest_given = int(_RANGE.read_text().split()[0])
    for port in SystemRandom().sample(range(lowest_given // 2, lowest_given), ATTEMPTS_MAX):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port among {ATTEMPTS_MAX} below {lowest_given}")
