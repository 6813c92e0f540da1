"""The group that a herder belongs to: that of the broker (`spark_jobs.connect.group.member`), or one of itself alone.

Owns the interface of both, and the group of one. Must not know what work is.
"""

from __future__ import annotations

import threading
from typing import Protocol

from spark_jobs.connect.group.member import Events, Round
from spark_jobs.connect.group.protocol import NO_WORK, Work


class Group(Protocol):
    """Gives work to a worker, by `Events.rebalanced`."""

    def start(self) -> None: ...

    def stop(self, timeout_s: float) -> None: ...

    def rejoin(self, reason: str) -> None:
        """Ask for a new round: what work exists has changed."""

    def release(self, work: Work) -> None:
        """Note that revoked work has stopped."""


class Alone:
    """A worker that has all work."""

    def __init__(self, url: str, events: Events) -> None:
        self._url = url
        self._events = events
        self._lock = threading.Lock()
        self._owned = NO_WORK

    def start(self) -> None:
        self.rejoin("the worker has started")

    def stop(self, timeout_s: float) -> None: ...

    def rejoin(self, reason: str) -> None:
        configured, offset = self._events.configured(-1)
        with self._lock:
            assigned, revoked = configured - self._owned, self._owned - configured
            self._owned = configured
        self._events.rebalanced(Round(0, self._url, True, offset, assigned, revoked))

    def release(self, work: Work) -> None: ...
