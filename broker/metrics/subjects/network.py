"""Metrics of connections and of the memory that requests take.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from broker.metrics.metric import Kind, Metric, Sample, alone
from broker.network.connection import Traffic
from broker.network.listener import Listener
from broker.network.request_memory import RequestMemory
from broker.network.socket_server import SocketServer

NETWORK_PROCESSOR = "0"
"""One event loop serves all connections."""
SOCKETS = "kafka.server:type=socket-server-metrics"
TAGS = ("listener", "networkProcessor")
CONNECTIONS_PER_TURN = 1000
SOFTWARE_MAX = 100
"""Names that clients choose: no more than so many for each listener, so that no client can fill the scrape."""
TRAFFIC: tuple[tuple[str, str, Callable[[Traffic], int]], ...] = (
    ("request", "Requests", lambda traffic: traffic.request_count),
    ("incoming-byte", "Bytes received", lambda traffic: traffic.incoming_size),
    ("outgoing-byte", "Bytes sent", lambda traffic: traffic.outgoing_size),
)
"""First part of the name, first part of the text, fact."""
UNLIMITED = 2**63 - 1
"""What is free where nothing limits it."""


LISTENER_FACTS: tuple[tuple[Kind, str, str, Callable[[Listener], float]], ...] = (
    (
        Kind.RATE,
        "connection-accept-rate",
        "Connections accepted per second, those included that are refused then.",
        lambda listener: listener.arrived_count,
    ),
    (
        Kind.GAUGE,
        "connection-accept-throttle-time",
        "Mean delay of connections above max.connection.creation.rate, in milliseconds.",
        lambda listener: listener.throttle_ms,
    ),
    (
        Kind.GAUGE,
        "ip-connection-accept-throttle-time",
        "Mean delay of connections above the quota connection_creation_rate of their address, in milliseconds.",
        lambda listener: listener.address_throttle_ms,
    ),
)


def network_metrics(sockets: SocketServer, waiting_requests: Callable[[], int]) -> Iterator[Metric]:
    """`waiting_requests()` is how many requests wait to be decoded."""
    yield from _connections(sockets)
    yield from _queues(sockets, waiting_requests)
    yield from _refusals(sockets)
    yield from _memory(sockets)


def _connections(sockets: SocketServer) -> Iterator[Metric]:
    yield Metric(
        Kind.GAUGE,
        SOCKETS,
        "Open connections.",
        _per_listener(sockets, lambda listener: listener.connection_count),
        TAGS,
        attribute="connection-count",
    )
    changes: tuple[tuple[str, str, Callable[[Listener], int]], ...] = (
        ("creation", "accepted", lambda listener: listener.accepted_count),
        ("close", "closed", lambda listener: listener.closed_count),
    )
    for name, participle, count_of in changes:
        read = _per_listener(sockets, count_of)
        yield Metric(
            Kind.RATE, SOCKETS, f"Connections {participle} per second.", read, TAGS, attribute=f"connection-{name}-rate"
        )
        yield Metric(
            Kind.GAUGE,
            SOCKETS,
            f"Connections {participle} since the start.",
            read,
            TAGS,
            attribute=f"connection-{name}-total",
        )
    for kind, name, text, fact in LISTENER_FACTS:
        yield Metric(kind, SOCKETS, text, _of_listeners(sockets, fact), ("listener",), attribute=name)
    yield Metric(
        Kind.RATE,
        SOCKETS,
        "Connections accepted per second by all listeners that count for max.connection.creation.rate of the broker.",
        alone(lambda: sum(it.arrived_count for it in sockets.listeners if not sockets.quotas.is_protected(it.name))),
        attribute="broker-connection-accept-rate",
    )
    for name, text, carried in TRAFFIC:
        for kind, suffix, measure in ((Kind.RATE, "rate", "per second"), (Kind.GAUGE, "total", "since the start")):
            yield Metric(
                kind,
                SOCKETS,
                f"{text} {measure}.",
                partial(_traffic, sockets, carried),
                TAGS,
                attribute=f"{name}-{suffix}",
            )
    yield Metric(
        Kind.GAUGE,
        SOCKETS,
        "Open connections by client library, as its ApiVersions request names it.",
        lambda: _by_software(sockets),
        ("clientSoftwareName", "clientSoftwareVersion", *TAGS),
        attribute="connections",
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
        "Connections closed because they were idle (connections.max.idle.ms).",
        alone(lambda: sum(listener.expired_count for listener in sockets.listeners)),
    )


def _queues(sockets: SocketServer, waiting_requests: Callable[[], int]) -> Iterator[Metric]:
    yield Metric(
        Kind.GAUGE,
        "kafka.network:type=RequestChannel,name=RequestQueueSize",
        "Requests that wait to be decoded.",
        alone(waiting_requests),
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.network:type=RequestChannel,name=ResponseQueueSize",
        "Connections with responses of which the socket has not taken all bytes yet.",
        partial(_unsent_responses, sockets),
        ("processor",),
    )
    yield Metric(
        Kind.METER,
        "kafka.network:type=Acceptor,name=AcceptorBlockedPercent",
        "0: an accepted connection never waits for a processor.",
        lambda: (((listener.name,), 0) for listener in sockets.listeners),
        ("listener",),
    )


def _refusals(sockets: SocketServer) -> Iterator[Metric]:
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


def _memory(sockets: SocketServer) -> Iterator[Metric]:
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
    for name, text, of_memory in memory:
        yield Metric(Kind.GAUGE, f"kafka.network:type=SocketServer,name={name}", text, _of_memory(sockets, of_memory))
    # The names are those of Kafka, in which the time is in milliseconds and the percentage a share.
    yield Metric(
        Kind.RATE,
        SOCKETS,
        "Share of the time for which requests waited for memory of queued.max.request.bytes, 0 to 1.",
        alone(lambda: _depleted_s(sockets)),
        attribute="MemoryPoolAvgDepletedPercent",
    )
    yield Metric(
        Kind.GAUGE,
        SOCKETS,
        "Milliseconds for which requests waited for memory of queued.max.request.bytes.",
        alone(lambda: 1000 * _depleted_s(sockets)),
        attribute="MemoryPoolDepletedTimeTotal",
    )


def _depleted_s(sockets: SocketServer) -> float:
    return 0.0 if sockets.request_memory is None else sockets.request_memory.depleted_s


def _per_listener(sockets: SocketServer, fact: Callable[[Listener], int]) -> Callable[[], Iterator[Sample]]:
    return lambda: (((it.name, NETWORK_PROCESSOR), fact(it)) for it in sockets.listeners)


def _of_listeners(sockets: SocketServer, fact: Callable[[Listener], float]) -> Callable[[], Iterator[Sample]]:
    return lambda: (((it.name,), fact(it)) for it in sockets.listeners)


def _unsent_responses(sockets: SocketServer) -> Iterator[Sample | None]:
    """The sum, which has no processor, then that of the only one."""
    total = 0
    for listener in list(sockets.listeners):
        for number, connection in enumerate(list(listener.connections())):
            if number % CONNECTIONS_PER_TURN == CONNECTIONS_PER_TURN - 1:
                yield None
            total += connection.size_left > 0
    yield (), total
    yield (NETWORK_PROCESSOR,), total


def _traffic(sockets: SocketServer, fact: Callable[[Traffic], int]) -> Iterator[Sample | None]:
    for listener in list(sockets.listeners):
        carried = []
        for number, connection in enumerate(list(listener.connections())):
            if number % CONNECTIONS_PER_TURN == CONNECTIONS_PER_TURN - 1:
                yield None
            carried.append((connection, fact(connection.traffic())))
        # Those that have closed in the meantime are in the sum of the listener.
        total = sum(value for connection, value in carried if connection.is_connected)
        total += fact(listener.traffic_of_closed)
        yield (listener.name, NETWORK_PROCESSOR), total


def _by_software(sockets: SocketServer) -> Iterator[Sample | None]:
    for listener in list(sockets.listeners):
        counts: Counter[tuple[str, str]] = Counter()
        for number, connection in enumerate(list(listener.connections())):
            if number % CONNECTIONS_PER_TURN == CONNECTIONS_PER_TURN - 1:
                yield None
            counts[connection.channel.software] += 1
        for software, count in sorted(counts.items())[:SOFTWARE_MAX]:
            yield (*software, listener.name, NETWORK_PROCESSOR), count


def _of_memory(
    sockets: SocketServer, fact: Callable[[RequestMemory | None], int]
) -> Callable[[], list[tuple[tuple[str, ...], int]]]:
    return lambda: [((), fact(sockets.request_memory))]
