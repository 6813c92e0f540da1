"""What has happened to the sessions with ZooKeeper, as plain counts for metrics.

Owns the counts. Must not know who reads them.
"""

from collections.abc import Callable
from dataclasses import field

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
    _followers: list[Callable[[float], None]] = field(default_factory=list)

    def follow_responses(self, follower: Callable[[float], None]) -> None:
        """Call `follower` with the time from each request to its response, in seconds."""
        self._followers.append(follower)

    def responded(self, seconds: float) -> None:
        """Report the time from a request to its response."""
        for follower in self._followers:
            follower(seconds)

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
