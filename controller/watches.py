"""One-shot watches for a store that detects changes itself, with the semantics of ZooKeeper's server.

Owns which callbacks wait for which path. Must not know where nodes are kept: the store reports the changes of each
committed transaction, in order. Invariant: a callback is called at most once each time it is armed; arming it twice
before it fires counts once.
"""

from collections.abc import Iterable

from controller.state_store import Watch, WatchEvent, WatchKind, parent_path


class Watches:
    def __init__(self) -> None:
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    @property
    def count(self) -> int:
        """How many paths are watched, one for its data and its children twice."""
        return len(self._data) + len(self._children)

    def watch_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def watch_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def fire(self, changes: Iterable[WatchEvent]) -> None:
        """Call the watches of each changed node, and of the parent of each that was created or deleted."""
        for change in changes:
            for watch, event in self.disarm(change):
                watch(event)

    def disarm(self, change: WatchEvent) -> list[tuple[Watch, WatchEvent]]:
        """Remove the watches that a change concerns, and return the calls that are due."""
        waiting = self._data.pop(change.path, {})
        if change.kind is WatchKind.DELETED:
            waiting |= self._children.pop(change.path, {})
        due = [(watch, change) for watch in waiting]
        if change.kind is not WatchKind.CHANGED:
            parent = parent_path(change.path)
            event = WatchEvent(WatchKind.CHILDREN, parent)
            due += [(watch, event) for watch in self._children.pop(parent, {})]
        return due

    def forget(self, watch: Watch, data: Iterable[str], children: Iterable[str]) -> None:
        """Remove one callback from paths where it waits."""
        for armed, paths in ((self._data, data), (self._children, children)):
            for path in paths:
                del armed[path][watch]
                if not armed[path]:
                    del armed[path]

    def clear(self) -> None:
        self._data.clear()
        self._children.clear()
