"""A state store in memory, independent of the SQLite one: its simple twin in tests, and a store for clusters.

Several `MemoryStore`s are sessions with one `MemoryTree`, as several brokers are with one ZooKeeper. The nodes are
those of the coordination server (`controller.coordination.machine.tree`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol

from controller.coordination.machine.access import OPEN
from controller.coordination.machine.tree import Transaction, Tree, Znode
from controller.store.state_store import (
    DATA_SIZE_MAX,
    Check,
    Create,
    DataTooLarge,
    Delete,
    Node,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SetData,
    SingleWrites,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
    WatchEvent,
)
from controller.store.watches import Watches

LATE_TURNS_MAX = 20


class Session(Protocol):
    """What the server knows of a session: the watches to fire."""

    @property
    def watches(self) -> Watches: ...


class MemoryTree:
    """The server: nodes and sessions."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.zxid = 0
        self._tree = Tree()
        self.sessions: dict[int, Session] = {}
        self.operations = 0

    @property
    def entries(self) -> dict[str, Znode]:
        """The nodes by path."""
        return self._tree.nodes

    def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        self.zxid += 1
        transaction = Transaction(self.zxid, self.now_ms, _anyone)
        results: list[Result] = []
        try:
            for operation in operations:
                results.append(self._do(operation, session_id, transaction))  # noqa: PERF401 - its length is the failing index
        except StoreError as error:
            self._tree.roll_back(transaction)
            self.zxid -= 1
            error.index = len(results)
            raise
        changes = [change.event for change in transaction.changes]
        for store in list(self.sessions.values()):
            store.watches.fire(changes)
        return results

    def _do(self, operation: Operation, session_id: int, transaction: Transaction) -> Result:
        tree, path = self._tree, operation.path
        match operation:
            case Create(_, data, ephemeral, sequential):
                _require_size(path, data)
                return tree.create(path, data, OPEN, session_id if ephemeral else 0, sequential, transaction)
            case SetData(_, data, version):
                _require_size(path, data)
                tree.set_data(path, data, version, transaction)
                return stat_of(tree.nodes[path])
            case Delete(_, version):
                tree.delete(path, version, transaction)
            case Check(_, version):
                tree.check(path, version, transaction)
        return None

    def end_session(self, session_id: int) -> None:
        self.sessions.pop(session_id, None)
        owned = self._tree.owned_by(session_id)
        if owned:
            self.apply([Delete(path) for path in owned], session_id)

    def dump(self) -> dict[str, bytes | None]:
        return {path: self.entries[path].data for path in sorted(self.entries)}


def stat_of(node: Znode) -> Stat:
    """Return what the port says of a node."""
    return Stat(node.version, node.czxid, node.mzxid, node.ctime_ms, node.owner)


def _anyone(acl: object, permission: int) -> bool:
    return True


def _require_size(path: str, data: bytes | None) -> None:
    if data is not None and len(data) > DATA_SIZE_MAX:
        raise DataTooLarge(path)


class LateWatches(Watches):
    """Watches whose calls follow some turns of the event loop after the change, in order."""

    def __init__(self, random_source: Random) -> None:
        super().__init__()
        self._random = random_source
        self._due: deque[tuple[Watch, WatchEvent]] = deque()

    def fire(self, changes: Iterable[WatchEvent]) -> None:
        for change in changes:
            self._due.extend(self.disarm(change))
        if self._due:
            self._call_later(self._random.randrange(LATE_TURNS_MAX))

    def _call_later(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._call_later, turns - 1)
        else:
            self.call_due()

    def call_due(self) -> None:
        while self._due:
            watch, event = self._due.popleft()
            watch(event)

    def clear(self) -> None:
        super().clear()
        self._due.clear()


class MemoryStore(SingleWrites):
    """A session. `pause` delays every operation until `resume`, like a stopped process.

    With `late` a watch fires some turns of the event loop after the change, as the port allows.
    """

    def __init__(self, tree: MemoryTree, late: Random | None = None) -> None:
        self.tree = tree
        self.watches = Watches() if late is None else LateWatches(late)
        self._session_id = 0
        self._expired = False
        self._is_expiry_known = False
        self._on_expired: list[Callable[[], None]] = []
        self._running = asyncio.Event()
        self._running.set()

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_usable(self) -> bool:
        return bool(self._session_id) and not self._expired and self._running.is_set()

    async def open(self) -> None:
        self.tree.zxid += 1
        self._session_id = self.tree.zxid
        self._expired = self._is_expiry_known = False
        self.tree.sessions[self._session_id] = self

    async def close(self) -> None:
        self.watches.clear()
        self.tree.end_session(self._session_id)
        self._session_id = 0

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    def expire(self) -> None:
        """Expire the session on the server; the client learns of it."""
        self.lose_session_silently()
        self._notify_expired()

    def _notify_expired(self) -> None:
        if self._is_expiry_known:
            return
        self._is_expiry_known = True
        for callback in self._on_expired:
            callback()

    def lose_session_silently(self) -> None:
        """Expire the session on the server; the client learns of it at its next operation."""
        self._expired = True
        self.watches.clear()
        self.tree.end_session(self._session_id)

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        (node,) = await self.get_many([path], watch)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await self._turn()
        found = {path: self.tree.entries[path] for path in paths if path in self.tree.entries}
        if watch is not None:
            for path in found:
                self.watches.watch_data(path, watch)
        return [Node(found[path].data, stat_of(found[path])) if path in found else None for path in paths]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._turn()
        if watch is not None:
            self.watches.watch_data(path, watch)
        entry = self.tree.entries.get(path)
        return None if entry is None else stat_of(entry)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._turn()
        if path not in self.tree.entries:
            raise NoNode(path)
        if watch is not None:
            self.watches.watch_children(path, watch)
        return self.tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._turn()
        return self.tree.apply(operations, self._session_id)

    async def _turn(self) -> None:
        await self._running.wait()
        self.tree.operations += 1
        await asyncio.sleep(0)  # an operation takes at least one turn of the loop, as with a real store
        if self._expired:
            self._notify_expired()
            raise SessionExpired("the session has expired")
        if not self._session_id:
            raise StoreUnavailable("the store is closed")
        if isinstance(self.watches, LateWatches):
            self.watches.call_due()  # before this session reads the changes
