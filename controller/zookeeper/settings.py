"""How a broker reaches ZooKeeper.

Owns the values, under Kafka's names without their prefix `zookeeper.`. Must not know who reads them from a file.
"""

from dataclasses import field

from base.dataclass import dataclass
from controller.store.session_events import SessionEvents
from controller.zookeeper.security import UNPROTECTED, ZooKeeperSecurity


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """`connect` is `host:port,...` with at most one chroot, at its end."""

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    """The longest wait for the first connection. Later a lost connection is retried for ever."""
    max_in_flight_requests: int = 10
    security: ZooKeeperSecurity = UNPROTECTED
    set_acl: bool = False
    """Whether nodes are created so that only this client's identity may change them."""
    events: SessionEvents = field(default_factory=SessionEvents, compare=False)
    """Counts what happens to the session."""

    @property
    def hosts(self) -> str:
        """The addresses, `host:port,...`."""
        return self.connect.partition("/")[0]

    @property
    def chroot(self) -> str:
        """The path below which this cluster's nodes are; empty for ZooKeeper's root."""
        path = self.connect.partition("/")[2].strip("/")
        return f"/{path}" if path else ""
