"""One-shot watches for a store that detects changes itself, with the semantics of ZooKeeper's server.

Owns who waits for which path. Must not know where nodes are kept: the store reports the changes of each committed
transaction, in order. Invariant: a watcher is told at most once each time it is armed; arming it twice before it fires
counts once.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from controller.store.state_store import Watch, WatchEvent, WatchKind, parent_path

W = TypeVar("W", bound=Hashable)
"""A watcher."""


class Watchers(Generic[W]):
    """Who waits for changes of which nodes."""

    def __init__(self) -> None:
        self._data: dict[str, dict[W, None]] = {}
        self._children: dict[str, dict[W, None]] = {}

    def watch_data(self, path: str, watcher: W) -> None:
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: W) -> None:
        self._children.setdefault(path, {})[watcher] = None

    def disarm(self, change: WatchEvent) -> list[tuple[W, WatchEvent]]:
        """Remove the watches that a change concerns: of the node, and of the parent of one that was created or deleted.

        Returns whom to tell which event.
        """
        waiting = self._data.pop(change.path, {})
        if change.kind is WatchKind.DELETED:
            waiting |= self._children.pop(change.path, {})
        due = [(watcher, change) for watcher in waiting]
        if change.kind is not WatchKind.CHANGED:
            parent = parent_path(change.path)
            event = WatchEvent(WatchKind.CHILDREN, parent)
            due += [(watcher, event) for watcher in self._children.pop(parent, {})]
        return due

    def forget(self, watcher: W, data: Iterable[str], children: Iterable[str]) -> None:
        """Remove one watcher from paths for which it waits."""
        for armed, paths in ((self._data, data), (self._children, children)):
            for path in paths:
                del armed[path][watcher]
                if not armed[path]:
                    del armed[path]

    def clear(self) -> None:
        self._data.clear()
        self._children.clear()


class Watches(Watchers[Watch]):
    """Watchers that are callbacks."""

    def fire(self, changes: Iterable[WatchEvent]) -> None:
        """Call the watches that the changes concern."""
        for change in changes:
            for watch, event in self.disarm(change):
                watch(event)
