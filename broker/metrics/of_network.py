"""Metrics of connections and of the memory that requests take.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.metrics.metric import Kind, Metric, alone
from broker.network.request_memory import RequestMemory
from broker.network.socket_server import SocketServer

NETWORK_PROCESSOR = "0"
"""One event loop serves all connections."""
UNLIMITED = 2**63 - 1
"""What is free where nothing limits it."""


def network_metrics(sockets: SocketServer) -> Iterator[Metric]:
    yield Metric(
        Kind.GAUGE,
        "kafka.server:type=socket-server-metrics",
        "Open connections.",
        lambda: (((it.name, NETWORK_PROCESSOR), it.connection_count) for it in sockets.listeners),
        ("listener", "networkProcessor"),
        attribute="connection-count",
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
        "Connections closed because they were idle (connections.max.idle.ms).",
        alone(lambda: sum(listener.expired_count for listener in sockets.listeners)),
    )
    counts: tuple[tuple[str, str, Callable[[], int]], ...] = (
        (
            "ConnectionsRefusedForDescriptorsPerSec",
            "Connections refused because too few file descriptors were left.",
            lambda: sum(listener.refused_count for listener in sockets.listeners),
        ),
        (
            "ConnectionsClosedForDescriptorsPerSec",
            "Idle connections closed because files needed their file descriptors.",
            lambda: sockets.closed_for_files_count,
        ),
    )
    for name, text, count in counts:
        yield Metric(Kind.METER, f"kafka.network:type=SocketServer,name={name}", text, alone(count))
    memory: tuple[tuple[str, str, Callable[[RequestMemory | None], int]], ...] = (
        (
            "MemoryPoolAvailable",
            "Bytes left of queued.max.request.bytes.",
            lambda memory: UNLIMITED if memory is None else memory.size_left,
        ),
        (
            "MemoryPoolUsed",
            "Bytes taken of queued.max.request.bytes by requests that arrive.",
            lambda memory: 0 if memory is None else memory.size_max - memory.size_left,
        ),
    )
    for name, text, fact in memory:
        yield Metric(Kind.GAUGE, f"kafka.network:type=SocketServer,name={name}", text, _of_memory(sockets, fact))


def _of_memory(
    sockets: SocketServer, fact: Callable[[RequestMemory | None], int]
) -> Callable[[], list[tuple[tuple[str, ...], int]]]:
    return lambda: [((), fact(sockets.request_memory))]
