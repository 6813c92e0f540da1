"""The watches that a ZooKeeper session has armed, and how each of their nodes looked when that was read.

Owns the callbacks, and the comparison of a node after a lost connection with what was read before: the server forgets
the watches of a connection that ends, and does not report what changed until they are armed again. Must not know
connections.

Invariant: a callback is called at most once each time it is armed; arming it twice before it fires counts once.
"""

from collections.abc import Iterable
from dataclasses import field

from base.dataclass import dataclass
from controller.store.state_store import Watch, WatchEvent, WatchKind


@dataclass(slots=True)
class _Armed:
    """`zxid` is that of the node's last change, None if the node does not exist."""

    zxid: int | None
    watches: dict[Watch, None] = field(default_factory=dict)


class ArmedWatches:
    def __init__(self) -> None:
        self._data: dict[str, _Armed] = {}
        self._children: dict[str, _Armed] = {}

    def arm_data(self, path: str, watch: Watch, zxid: int | None) -> None:
        """Arm `watch` for a node that was read; `zxid` is its mzxid, None if it does not exist."""
        _arm(self._data, path, watch, zxid)

    def arm_children(self, path: str, watch: Watch, zxid: int) -> None:
        """Arm `watch` for the children of a node; `zxid` is the node's pzxid."""
        _arm(self._children, path, watch, zxid)

    def paths_of_data(self) -> list[str]:
        return list(self._data)

    def paths_of_children(self) -> list[str]:
        return list(self._children)

    def fire(self, kind: WatchKind, path: str) -> None:
        """Call the watches that `kind` of change to the node concerns."""
        fired: list[_Armed | None] = []
        if kind is not WatchKind.CHILDREN:
            fired.append(self._data.pop(path, None))
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            fired.append(self._children.pop(path, None))
        _call(fired, WatchEvent(kind, path))

    def data_read_again(self, path: str, zxid: int | None) -> None:
        """Fire the watches of a node that is no longer as it was read before the connection was lost."""
        armed = self._data.get(path)
        if armed is None or armed.zxid == zxid:
            return
        if armed.zxid is None:
            self.fire(WatchKind.CREATED, path)
        else:
            self.fire(WatchKind.DELETED if zxid is None else WatchKind.CHANGED, path)

    def children_read_again(self, path: str, zxid: int | None) -> None:
        """The same for the children of a node; `zxid` is None if the node itself is gone."""
        armed = self._children.get(path)
        if armed is not None and armed.zxid != zxid:
            del self._children[path]
            _call([armed], WatchEvent(WatchKind.DELETED if zxid is None else WatchKind.CHILDREN, path))

    def clear(self) -> None:
        self._data.clear()
        self._children.clear()


def _arm(armed: dict[str, _Armed], path: str, watch: Watch, zxid: int | None) -> None:
    one = armed.setdefault(path, _Armed(zxid))
    one.zxid = zxid
    one.watches[watch] = None


def _call(fired: Iterable[_Armed | None], event: WatchEvent) -> None:
    for armed in fired:
        if armed is not None:
            for watch in armed.watches:
                watch(event)
