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


@dataclass(frozen=True, slots=True)
class ServerState:
    connections: int
    clients: list[str]
    """A line for each connection."""
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
    return (
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
