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

TOLD_TOGETHER_MAX = 64
"""So many watchers are told in one step; consumers that wait are answered in it."""


class Watcher(Protocol):
    """Who watches one partition."""

    def has_news(self) -> None:
        """Something happened to the partition; the watch is over."""


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

    def tell(self, key: Hashable) -> None:
        """Something happened to `key`."""
        watchers = self.watched.pop(key, None)
        if watchers is None:
            return
        if len(watchers) > TOLD_TOGETHER_MAX:
            self._tell_in_parts(deque(watchers))
            return
        for watcher in watchers:
            _tell(watcher)

    def _tell_in_parts(self, watchers: deque[Watcher]) -> None:
        for _ in range(min(len(watchers), TOLD_TOGETHER_MAX)):
            _tell(watchers.popleft())
        if watchers:
            self._postpone(lambda: self._tell_in_parts(watchers))


def _tell(watcher: Watcher) -> None:
    """A watcher that fails is a bug of ours, and neither the others' concern nor that of who caused the event."""
    try:
        watcher.has_news()
    except Exception:
        logger.exception("a fetch session could not be told of news")
