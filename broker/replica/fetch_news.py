"""Which partitions of fetch sessions have news, so that the others cost nothing.

Owns: who is to be told of the next event of a partition. Must not know what an event means or how a session goes on.

A watch ends with the event that it waits for: whoever is told looks at the partition, and watches it again once there
is nothing left to be told. So an append costs by the sessions that have seen everything before it, and a fetch by the
partitions that something happened to.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

Postpone = Callable[[Callable[[], None]], object]

logger = logging.getLogger("kafka.server.FetchManager")

WOKEN_TOGETHER_MAX = 64
"""So many fetches that wait are woken in one step; each is answered in it."""

UNWATCHED_TOGETHER_MAX = 2_000
"""So many watches of a session that has ended are given up in one step."""


class Watcher(Protocol):
    """Who watches one partition."""

    def has_news(self) -> bool:
        """Something happened to the partition, and the watch is over. True if a fetch waits for that."""

    def wake(self) -> None:
        """Let the fetch that waits look at the partition."""


class FetchNews:
    """The watches of all fetch sessions of one broker."""

    def __init__(self, postpone: Postpone) -> None:
        """`postpone(callback)` calls back soon, when other work had its turn."""
        self._postpone = postpone
        self.watched: dict[Hashable, dict[Watcher, None]] = {}  # for others a quick look whether anybody watches

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Tell `watcher` of the next event of `key`. Harmless when it watches already."""
        watchers = self.watched.get(key)
        if watchers is None:
            self.watched[key] = {watcher: None}
        else:
            watchers[watcher] = None

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        """Harmless when it does not watch."""
        watchers = self.watched.get(key)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self.watched[key]

    def unwatch_all(self, watches: deque[tuple[Hashable, Watcher]]) -> None:
        """End these watches, thousands of them in parts."""
        for _ in range(min(len(watches), UNWATCHED_TOGETHER_MAX)):
            self.unwatch(*watches.popleft())
        if watches:
            self._postpone(lambda: self.unwatch_all(watches))

    def tell(self, key: Hashable) -> None:
        """Something happened to `key`."""
        watchers = self.watched.pop(key, None)
        if watchers is None:
            return
        # All know of it before anything else happens; only the answers are given one after another.
        waiting = deque(watcher for watcher in watchers if watcher.has_news())
        if waiting:
            self._wake_in_parts(waiting)

    def _wake_in_parts(self, waiting: deque[Watcher]) -> None:
        for _ in range(min(len(waiting), WOKEN_TOGETHER_MAX)):
            _wake(waiting.popleft())
        if waiting:
            self._postpone(lambda: self._wake_in_parts(waiting))


def _wake(watcher: Watcher) -> None:
    """A fetch that fails is a bug of ours, and neither the others' concern nor that of who caused the event."""
    try:
        watcher.wake()
    except Exception:
        logger.exception("a fetch session could not be told of news")
