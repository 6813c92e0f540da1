"""Who is at the other end of a connection, as dispatch and handlers see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Peer:
    """One client connection as handlers see it."""

    client_host: str
    """Numeric address without the port, as shown by DescribeGroups (`127.0.0.1`)."""
    client_port: int
    listener: str
    """Name of the listener it came in on; answers name brokers by their address on this listener (KIP-103)."""
    principal: str = "User:ANONYMOUS"

    def __str__(self) -> str:
        return f"{self.client_host}:{self.client_port} on {self.listener}"
