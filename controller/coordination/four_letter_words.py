"""ZooKeeper's four-letter words: what an operator asks the server without a session.

Owns the texts. A word comes without a length before it; read as a length, it would be larger than any frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from base.dataclass import dataclass

VERSION: Final = "3.9.3-milena"
"""The ZooKeeper whose protocol this server speaks; tools compare the numbers."""
WORDS: Final = frozenset(
    {"conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "isro", "mntr", "ruok", "srst", "srvr", "stat", "stmk"}
    | {"wchc", "wchp", "wchs", "hash", "lead", "lagd"}
)
"""Those of ZooKeeper, served or not."""


@dataclass(slots=True)
class Latency:
    """How long clients have waited for responses, in milliseconds."""

    count: int = 0
    total_ms: float = 0.0
    min_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, seconds: float) -> None:
        waited_ms = seconds * 1000
        self.min_ms = min(self.min_ms, waited_ms) if self.count else waited_ms
        self.max_ms = max(self.max_ms, waited_ms)
        self.total_ms += waited_ms
        self.count += 1

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class ServerState:
    connections: int
    clients: list[str]
    """A line for each connection."""
    latency: Latency
    received: int
    sent: int
    outstanding: int
    zxid: int
    nodes: int
    ephemerals: int
    watches: int
    sessions: int
    data_bytes: int


def response(word: str, state: Callable[[], ServerState]) -> str:
    """Return the response to a word; those that are not served are refused by name."""
    text = _RESPONSES.get(word)
    if text is None:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return text(state)


def _srvr(state: ServerState) -> str:
    latency = state.latency
    return (
        f"Latency min/avg/max: {latency.min_ms:.0f}/{latency.average_ms:.4f}/{latency.max_ms:.0f}\n"
        f"Received: {state.received}\nSent: {state.sent}\nConnections: {state.connections}\n"
        f"Outstanding: {state.outstanding}\nZxid: {state.zxid:#x}\nMode: standalone\nNode count: {state.nodes}\n"
    )


def _stat(state: ServerState) -> str:
    clients = "".join(f" {line}\n" for line in state.clients)
    return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_srvr(state)}"


def _mntr(state: ServerState) -> str:
    values = {
        "version": VERSION,
        "server_state": "standalone",
        "avg_latency": f"{state.latency.average_ms:.4f}",
        "max_latency": f"{state.latency.max_ms:.0f}",
        "min_latency": f"{state.latency.min_ms:.0f}",
        "packets_received": state.received,
        "packets_sent": state.sent,
        "num_alive_connections": state.connections,
        "outstanding_requests": state.outstanding,
        "znode_count": state.nodes,
        "watch_count": state.watches,
        "ephemerals_count": state.ephemerals,
        "global_sessions": state.sessions,
        "approximate_data_size": state.data_bytes,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


_RESPONSES: Final[Mapping[str, Callable[[Callable[[], ServerState]], str]]] = {
    "ruok": lambda state: "imok",
    "srvr": lambda state: f"Zookeeper version: {VERSION}\n{_srvr(state())}",
    "stat": lambda state: _stat(state()),
    "mntr": lambda state: _mntr(state()),
}
