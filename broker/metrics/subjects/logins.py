"""Metrics of logins, for each listener.

Owns their names and texts. Must not know how clients log in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.metrics.metric import Kind, Metric, Sample
from broker.metrics.subjects.network import NETWORK_PROCESSOR
from broker.network.listener import Listener
from broker.network.sasl.session import AuthenticationCounts
from broker.network.socket_server import SocketServer

_BEAN = "kafka.server:type=socket-server-metrics"
_TAGS = ("listener", "networkProcessor")
_NONE = AuthenticationCounts()


def login_metrics(sockets: SocketServer) -> Iterator[Metric]:
    table: tuple[tuple[str, str, Callable[[Listener], int]], ...] = (
        (
            "successful-authentication-total",
            "Logins by SASL.",
            lambda listener: _counts(listener).successes,
        ),
        (
            "failed-authentication-total",
            "Logins by SASL and TLS handshakes that failed.",
            lambda listener: _counts(listener).failures + (0 if listener.tls is None else listener.tls.failure_count),
        ),
        (
            "successful-reauthentication-total",
            "Logins over a connection that had logged in before (KIP-368).",
            lambda listener: _counts(listener).reauthentications,
        ),
        (
            "failed-reauthentication-total",
            "Such logins that failed.",
            lambda listener: _counts(listener).failed_reauthentications,
        ),
        (
            "expired-connections-killed-count",
            "Connections closed because their login had expired (connections.max.reauth.ms).",
            lambda listener: _counts(listener).expired_connections,
        ),
    )
    for attribute, text, fact in table:
        yield Metric(Kind.GAUGE, _BEAN, text, _per_listener(sockets, fact), _TAGS, attribute)
        if attribute.endswith("-total"):
            rate = attribute.removesuffix("total") + "rate"
            per_second = f"{text.removesuffix('.')}, per second."
            yield Metric(Kind.RATE, _BEAN, per_second, _per_listener(sockets, fact), _TAGS, rate)


def _per_listener(sockets: SocketServer, fact: Callable[[Listener], int]) -> Callable[[], Iterator[Sample]]:
    return lambda: (((listener.name, NETWORK_PROCESSOR), fact(listener)) for listener in sockets.listeners)


def _counts(listener: Listener) -> AuthenticationCounts:
    return _NONE if listener.sasl is None else listener.sasl.counts
