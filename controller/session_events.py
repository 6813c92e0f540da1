"""What has happened to the sessions with ZooKeeper, as plain counts for metrics.

Owns the counts. Must not know who reads them.
"""

from collections.abc import Callable

from base.dataclass import dataclass

CONNECTED, CONNECTING, CLOSED = "CONNECTED", "CONNECTING", "CLOSED"


@dataclass(slots=True)
class SessionEvents:
    """Counts since the start of the process. `state` is CONNECTED, CONNECTING or CLOSED, as ZooKeeper names them."""

    state: str = CONNECTED
    disconnects: int = 0
    expires: int = 0
    sync_connects: int = 0
    auth_failures: int = 0
    read_only_connects: int = 0
    sasl_authentications: int = 0
    on_response: Callable[[float], None] = lambda seconds: None
    """Called with the time from a request to its response, in seconds."""

    def responded(self, seconds: float) -> None:
        """Record the time from a request to its response; `on_response` may be set later."""
        self.on_response(seconds)

    def connected(self, *, is_logged_in: bool) -> None:
        self.state = CONNECTED
        self.sync_connects += 1
        self.sasl_authentications += is_logged_in

    def lost(self) -> None:
        self.state = CONNECTING
        self.disconnects += 1

    def ended(self, *, is_login_refused: bool) -> None:
        self.state = CLOSED
        if is_login_refused:
            self.auth_failures += 1
        else:
            self.expires += 1
