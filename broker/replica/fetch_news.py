"""Which partitions of fetch sessions have news, so that unchanged partitions cost nothing.

Owns: which watchers are notified of the next event of a partition. Must not know what an event means or how a session
reacts.

A watch ends with its first event: the watcher reads the partition, and watches it again once its client is up to date.
So the cost of an append depends on the sessions that were up to date, and the cost of a fetch on the partitions that
have changed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Protocol

Postpone = Callable[[Callable[[], None]], object]

logger = logging.getLogger("kafka.server.FetchManager")

WOKEN_TOGETHER_MAX = 64
"""The most waiting fetches that are woken in one step, which also builds their responses."""

UNWATCHED_TOGETHER_MAX = 2_000
"""The most watches of a closed session that are removed in one step."""


class Watcher(Protocol):
    """A watch of one partition by one session."""

    def note_event(self) -> bool:
        """Record an event of the partition, which ends the watch; return whether a fetch waits for it."""

    def wake(self) -> None:
        """Have the waiting fetch check the partition."""


class FetchNews:
    """The watches of all fetch sessions of one broker."""

    def __init__(self, postpone: Postpone) -> None:
        """`postpone(callback)` calls `callback` in a later turn of the event loop."""
        self._postpone = postpone
        self.watched: dict[Hashable, dict[Watcher, None]] = {}  # callers test it before they call `notify`

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Notify `watcher` of the next event of `key`. Has no effect if it watches already."""
        watchers = self.watched.get(key)
        if watchers is None:
            self.watched[key] = {watcher: None}
        else:
            watchers[watcher] = None

    def is_watched(self, key: Hashable, watcher: Watcher) -> bool:
        """Return whether there was no event of `key` since `watcher` began to watch it."""
        return watcher in self.watched.get(key, ())

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        """Remove a watch. Has no effect if `watcher` does not watch `key`."""
        watchers = self.watched.get(key)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self.watched[key]

    def unwatch_all(self, watches: Iterator[tuple[Hashable, Watcher]]) -> None:
        """Remove these watches, in several steps if they are many."""
        together = list(islice(watches, UNWATCHED_TOGETHER_MAX))
        for key, watcher in together:
            self.unwatch(key, watcher)
        if len(together) == UNWATCHED_TOGETHER_MAX:
            self._postpone(lambda: self.unwatch_all(watches))

    def notify(self, key: Hashable) -> None:
        """Notify the watchers of `key` of an event."""
        watchers = self.watched.pop(key, None)
        if watchers is None:
            return
        # All watchers record the event in this step; only the waiting fetches are woken in parts.
        waiting = deque(watcher for watcher in watchers if watcher.note_event())
        if waiting:
            self._wake_in_parts(waiting)

    def _wake_in_parts(self, waiting: deque[Watcher]) -> None:
        for _ in range(min(len(waiting), WOKEN_TOGETHER_MAX)):
            _wake(waiting.popleft())
        if waiting:
            self._postpone(lambda: self._wake_in_parts(waiting))


def _wake(watcher: Watcher) -> None:
    """Wake one fetch. An exception is a bug of ours; it must not affect others, nor the cause of the event."""
    try:
        watcher.wake()
    except Exception:
        logger.exception("a fetch session could not be notified of news")
