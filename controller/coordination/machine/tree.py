"""The tree of nodes, in memory, with ZooKeeper's versions, zxids and rules.

Owns the nodes, and that a transaction which fails leaves no trace. Must not know sessions or watches, or where nodes
are kept: `changed` has the paths to write.

Invariants: every node but the root is among the children of its parent; an ephemeral node has no children; a node's
`child_creates` counts the children that it has ever had, which numbers sequential nodes and is half of its children
version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from controller.coordination.machine.access import OPEN, READ_ONLY, NoAuthError, Permission
from controller.coordination.machine.messages import Acl, Stat
from controller.store.state_store import (
    ANY_VERSION,
    SEQUENCE_DIGITS,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
    WatchEvent,
    WatchKind,
    parent_path,
)

SYSTEM_NODES: Final = {"/zookeeper": OPEN, "/zookeeper/config": READ_ONLY, "/zookeeper/quota": OPEN}
"""Nodes that a new ZooKeeper has. They cannot be deleted."""

_REFUSED_CHARACTERS: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
"""What ZooKeeper rejects in paths; Java sees the last range as pairs of surrogates."""


class BadArgumentsError(StoreError):
    """The path is invalid, or the node cannot be changed in this way."""


class Znode(NamedTuple):
    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    """The transaction that changed the list of children last."""
    ctime_ms: int
    mtime_ms: int
    owner: int
    version: int = 0
    acl_version: int = 0
    child_creates: int = 0


class Change(NamedTuple):
    """What happened to a node, for watches; `acl` and `parent_acl` say who may see it."""

    event: WatchEvent
    acl: Sequence[Acl]
    parent_acl: Sequence[Acl]


class Transaction:
    """One transaction in progress: its zxid and time, who it is, and what it has changed so far."""

    __slots__ = ("_acl_entries", "allows", "changes", "now_ms", "undo", "zxid")

    def __init__(self, zxid: int, now_ms: int, allows: Callable[[Sequence[Acl], int], bool]) -> None:
        self.zxid = zxid
        self.now_ms = now_ms
        self.allows = allows
        self.changes: list[Change] = []
        self.undo: list[tuple[str, Znode | None]] = []
        self._acl_entries = 0

    def count_acl_entries(self, count: int) -> int:
        """Count the entries of another access list, and return how many all lists have."""
        self._acl_entries += count
        return self._acl_entries


class Tree:
    def __init__(self, nodes: Iterable[tuple[str, Znode]] = ()) -> None:
        """Create the tree with these nodes, parents first; without nodes, with the root alone."""
        self.nodes: dict[str, Znode] = {}
        self._children: dict[str, dict[str, None]] = {}
        self.changed: dict[str, None] = {}
        self._nodes_of: dict[int, dict[str, None]] = {}
        for path, node in nodes:
            self._put(path, node)
        if not self.nodes:
            self._put("/", Znode(None, OPEN, 0, 0, 0, 0, 0, 0))

    def add_system_nodes(self) -> None:
        """Give a new tree the nodes of a new ZooKeeper."""
        for path, acl in SYSTEM_NODES.items():
            self._put(path, Znode(b"", acl, 0, 0, 0, 0, 0, 0))
        self.changed.update(dict.fromkeys(["/", *SYSTEM_NODES]))

    # -- reading ---------------------------------------------------------------------------------------------------

    def children(self, path: str) -> list[str]:
        """Return the names of the children of a node that exists, sorted."""
        return sorted(self._children[path])

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes, in the order of their creation."""
        return list(self._nodes_of.get(session_id, ()))

    def stat(self, path: str) -> Stat:
        """Return the metadata of a node that exists."""
        node = self.nodes[path]
        count = len(self._children[path])
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime_ms,
            node.mtime_ms,
            node.version,
            2 * node.child_creates - count,
            node.acl_version,
            node.owner,
            0 if node.data is None else len(node.data),
            count,
            node.pzxid,
        )

    def take_changed(self) -> list[tuple[str, Znode | None]]:
        """Return each node that was changed since the last call, None if it is gone."""
        changed = [(path, self.nodes.get(path)) for path in self.changed]
        self.changed.clear()
        return changed

    # -- transactions ----------------------------------------------------------------------------------------------

    def commit(self, transaction: Transaction) -> None:
        for path, _ in transaction.undo:
            self.changed[path] = None

    def roll_back(self, transaction: Transaction) -> None:
        for path, node in reversed(transaction.undo):
            self._put(path, node)

    def create(
        self, path: str, data: bytes | None, acl: tuple[Acl, ...], owner: int, sequential: bool, within: Transaction
    ) -> str:
        """Create a node and return its path. `owner` is the session of an ephemeral node, else 0."""
        above = parent_path(path)
        parent = self._require(above, path)
        _require_permission(parent, Permission.CREATE, path, within)
        asked = path
        if sequential:
            path += f"{parent.child_creates:0{SEQUENCE_DIGITS}d}"
        require_valid(path)
        if path in self.nodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(asked)
        zxid, now_ms = within.zxid, within.now_ms
        self._change(path, Znode(data, acl, zxid, zxid, zxid, now_ms, now_ms, owner), within)
        self._change(above, parent._replace(pzxid=zxid, child_creates=parent.child_creates + 1), within)
        within.changes.append(Change(WatchEvent(WatchKind.CREATED, path), acl, parent.acl))
        return path

    def set_data(self, path: str, data: bytes | None, version: int, within: Transaction) -> None:
        node = self._require(path, path)
        _require_permission(node, Permission.WRITE, path, within)
        _require_version(path, node.version, version)
        node = node._replace(data=data, version=node.version + 1, mzxid=within.zxid, mtime_ms=within.now_ms)
        self._change(path, node, within)
        within.changes.append(Change(WatchEvent(WatchKind.CHANGED, path), node.acl, ()))

    def set_acl(self, path: str, acl: tuple[Acl, ...], version: int, within: Transaction) -> None:
        node = self._require(path, path)
        _require_permission(node, Permission.ADMIN, path, within)
        _require_version(path, node.acl_version, version)
        self._change(path, node._replace(acl=acl, acl_version=node.acl_version + 1), within)

    def delete(self, path: str, version: int, within: Transaction) -> None:
        above = parent_path(path)
        parent = self._require(above, path)
        _require_permission(parent, Permission.DELETE, path, within)
        node = self._require(path, path)
        _require_version(path, node.version, version)
        if self._children[path]:
            raise NotEmpty(path)
        self.remove(path, within)

    def remove(self, path: str, within: Transaction) -> None:
        """Delete a node that exists and has no children, whoever may."""
        above = parent_path(path)
        node, parent = self.nodes[path], self.nodes[above]
        self._change(path, None, within)
        self._change(above, parent._replace(pzxid=within.zxid), within)
        within.changes.append(Change(WatchEvent(WatchKind.DELETED, path), node.acl, parent.acl))

    def check(self, path: str, version: int, within: Transaction) -> None:
        node = self._require(path, path)
        _require_permission(node, Permission.READ, path, within)
        _require_version(path, node.version, version)

    def _require(self, path: str, wanted: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(wanted)
        return node

    def _change(self, path: str, node: Znode | None, within: Transaction) -> None:
        within.undo.append((path, self.nodes.get(path)))
        self._put(path, node)

    def _put(self, path: str, node: Znode | None) -> None:
        before = self.nodes.get(path)
        if node is None:
            assert before is not None
            del self.nodes[path], self._children[path]
            del self._children[parent_path(path)][_name(path)]
            if before.owner:
                owned = self._nodes_of[before.owner]
                del owned[path]
                if not owned:
                    del self._nodes_of[before.owner]
            return
        if before is None:
            self._children[path] = {}
            if path != "/":
                self._children[parent_path(path)][_name(path)] = None
            if node.owner:
                self._nodes_of.setdefault(node.owner, {})[path] = None
        self.nodes[path] = node


def require_valid(path: str) -> None:
    """Raise BadArgumentsError if ZooKeeper would not accept the path."""
    if path == "/":
        return
    names = path.split("/")
    if (
        names[0]
        or len(names) < 2
        or not all(name not in ("", ".", "..") for name in names[1:])
        or _REFUSED_CHARACTERS.search(path)
    ):
        raise BadArgumentsError(path)


def _require_permission(node: Znode, permission: int, path: str, within: Transaction) -> None:
    if not within.allows(node.acl, permission):
        raise NoAuthError(path)


def _require_version(path: str, found: int, expected: int) -> None:
    if expected not in (ANY_VERSION, found):
        raise BadVersion(path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
