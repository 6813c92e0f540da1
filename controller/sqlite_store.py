"""The state store of a broker that runs alone: one SQLite file with ZooKeeper's data model.

Owns the file, its schema (docs/formats/metadata-store.md) and one worker thread, the only one that touches the
connection: the event loop never waits for the disk. Must not know what the nodes mean.

Invariants: one process at a time (the file is locked from `open` to `close`); ephemeral nodes of earlier sessions are
gone after `open`; a transaction is on the disk (write-ahead log, synchronous FULL) before its `multi` returns, so
kill -9 or a power cut loses nothing acknowledged.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from controller.clock import Clock
from controller.state_store import (
    ANY_VERSION,
    DATA_SIZE_MAX,
    SEQUENCE_DIGITS,
    BadVersion,
    Check,
    Create,
    DataTooLarge,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
    WatchEvent,
    WatchKind,
    parent_path,
)
from controller.watches import Watches

T = TypeVar("T")

METADATA_FILE = "metadata.sqlite"
"""The store's name in the first of a broker's log directories."""

STORE_FILES = frozenset(METADATA_FILE + ending for ending in ("", "-wal", "-shm", "-journal"))
"""All that SQLite may put there."""

APPLICATION_ID = 0x4D4C4E41  # "MLNA": `file` and we ourselves can tell the store from any other database
SCHEMA_VERSION = 1

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE node (
    path TEXT NOT NULL PRIMARY KEY,
    parent TEXT,
    data BLOB,
    version INTEGER NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    child_creates INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent);
CREATE INDEX node_by_owner ON node (owner) WHERE owner != 0;
CREATE TABLE last_transaction (zxid INTEGER NOT NULL);
INSERT INTO node VALUES ('/', NULL, NULL, 0, 0, 0, 0, 0, 0);
INSERT INTO last_transaction VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


@dataclass(slots=True)
class _Transaction:
    """What one `multi` has done so far."""

    zxid: int
    session_id: int
    now_ms: int
    changes: list[WatchEvent]


class _Database:
    """The connection and every statement. Used from the worker thread only."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        # isolation_level None: transactions begin and end where this module says so, not where the driver guesses.
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        # Exclusive before the first access in WAL mode: the lock on the file is held until the connection closes, and
        # the index of the log lives in memory instead of in a third file.
        self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("BEGIN IMMEDIATE").execute("ROLLBACK")
        (schema_version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if schema_version == 0:
            self._connection.executescript(_SCHEMA)
        elif schema_version != SCHEMA_VERSION:
            raise StoreUnavailable(f"the store has schema version {schema_version}, expected {SCHEMA_VERSION}")
        (self._zxid,) = self._connection.execute("SELECT zxid FROM last_transaction").fetchone()
        # No two sessions share an id: it is the zxid of the transaction that ended the ones before.
        self.session_id: int = self._zxid + 1
        self.end_sessions()

    def end_sessions(self) -> list[WatchEvent]:
        """Delete all ephemeral nodes; there is only one session at a time."""
        owned = [Delete(path) for (path,) in self._connection.execute("SELECT path FROM node WHERE owner != 0")]
        return self.apply(owned)[1]

    def close(self) -> None:
        try:
            self.end_sessions()
        finally:
            self._connection.close()

    def get(self, path: str) -> Node | None:
        row = self._connection.execute(
            "SELECT data, version, czxid, mzxid, ctime_ms, owner FROM node WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else Node(row[0], Stat(*row[1:]))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return [self.get(path) for path in paths]

    def children(self, path: str) -> list[str]:
        if self.get(path) is None:
            raise NoNode(path)
        prefix_size = len(path.rstrip("/")) + 1
        rows = self._connection.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [child[prefix_size:] for (child,) in rows]

    def apply(self, operations: Sequence[Operation]) -> tuple[list[Result], list[WatchEvent]]:
        """Do `operations` in one durable transaction; return their results and what watchers have to know."""
        transaction = _Transaction(self._zxid + 1, self.session_id, self._clock.now_ms(), [])
        results: list[Result] = []
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for operation in operations:
                results.append(self._do(operation, transaction))  # noqa: PERF401 - its length is the failing index
            self._connection.execute("UPDATE last_transaction SET zxid = ?", (transaction.zxid,))
            self._connection.execute("COMMIT")
        except StoreError as error:
            error.index = len(results)
            self._connection.execute("ROLLBACK")
            raise
        except BaseException:
            # A full disk may have ended the transaction already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._zxid = transaction.zxid
        return results, transaction.changes

    def _do(self, operation: Operation, transaction: _Transaction) -> Result:
        match operation:
            case Create():
                return self._create(operation, transaction)
            case SetData():
                return self._set(operation, transaction)
            case Delete():
                self._delete(operation, transaction)
            case Check():
                self._require(operation.path, operation.version)
        return None

    def _require(self, path: str, version: int) -> Node:
        node = self.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.stat.version):
            raise BadVersion(path)
        return node

    def _create(self, operation: Create, transaction: _Transaction) -> str:
        _check_size(operation.path, operation.data)
        parent = parent_path(operation.path)
        row = self._connection.execute("SELECT owner, child_creates FROM node WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNode(operation.path)
        parent_owner, child_creates = row
        if parent_owner:
            raise NoChildrenForEphemerals(operation.path)
        path = operation.path + (f"{child_creates:0{SEQUENCE_DIGITS}d}" if operation.sequential else "")
        owner = transaction.session_id if operation.ephemeral else 0
        try:
            self._connection.execute(
                "INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, ?, ?, 0)",
                (path, parent, operation.data, transaction.zxid, transaction.zxid, transaction.now_ms, owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self._connection.execute("UPDATE node SET child_creates = child_creates + 1 WHERE path = ?", (parent,))
        transaction.changes.append(WatchEvent(WatchKind.CREATED, path))
        return path

    def _set(self, operation: SetData, transaction: _Transaction) -> Stat:
        _check_size(operation.path, operation.data)
        before = self._require(operation.path, operation.version).stat
        self._connection.execute(
            "UPDATE node SET data = ?, version = version + 1, mzxid = ? WHERE path = ?",
            (operation.data, transaction.zxid, operation.path),
        )
        transaction.changes.append(WatchEvent(WatchKind.CHANGED, operation.path))
        return Stat(before.version + 1, before.czxid, transaction.zxid, before.ctime_ms, before.ephemeral_owner)

    def _delete(self, operation: Delete, transaction: _Transaction) -> None:
        self._require(operation.path, operation.version)
        if self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (operation.path,)).fetchone():
            raise NotEmpty(operation.path)
        self._connection.execute("DELETE FROM node WHERE path = ?", (operation.path,))
        transaction.changes.append(WatchEvent(WatchKind.DELETED, operation.path))


def _check_size(path: str, data: bytes | None) -> None:
    if data is not None and len(data) > DATA_SIZE_MAX:
        raise DataTooLarge(path)


class SqliteStore:
    """`StateStore` over the file `path`, which is made when missing. Its session never expires."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._watches = Watches()
        self._executor: ThreadPoolExecutor | None = None
        self._database: _Database | None = None

    @property
    def session_id(self) -> int:
        assert self._database is not None, "the store is not open"
        return self._database.session_id

    async def open(self) -> None:
        """Lock and repair the file. Raises `StoreUnavailable` when another process has it or it is not a store."""
        assert self._executor is None, "the store is open"
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        try:
            self._database = await self._run(executor, partial(_Database, self._path, self._clock))
        except BaseException:
            executor.shutdown(wait=False)
            raise
        self._executor = executor

    async def close(self) -> None:
        if self._executor is None or self._database is None:
            return
        executor, database = self._executor, self._database
        self._executor = self._database = None
        self._watches.clear()
        try:
            await self._run(executor, database.close)
        finally:
            executor.shutdown(wait=False)

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """Nothing to do: while the process lives, so does its session."""

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        (node,) = await self.get_many([path], watch)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return await self._ask(lambda database: database.get_many(paths), partial(self._arm_found, paths, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        node = await self._ask(lambda database: database.get(path), partial(self._arm, path, watch))
        return None if node is None else node.stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._ask(lambda database: database.children(path), partial(self._arm_children, path, watch))

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        results, _ = await self._ask(
            lambda database: database.apply(operations), lambda outcome: self._watches.fire(outcome[1])
        )
        return results

    def _arm(self, path: str, watch: Watch | None, _: Node | None) -> None:
        if watch is not None:
            self._watches.watch_data(path, watch)

    def _arm_found(self, paths: Sequence[str], watch: Watch | None, nodes: list[Node | None]) -> None:
        for path, node in zip(paths, nodes, strict=True):
            if node is not None:
                self._arm(path, watch, node)

    def _arm_children(self, path: str, watch: Watch | None, _: list[str]) -> None:
        if watch is not None:
            self._watches.watch_children(path, watch)

    async def _ask(self, job: Callable[[_Database], T], then: Callable[[T], None] | None = None) -> T:
        """Run `job` in the worker, then `then` with its result on the event loop.

        Jobs run one after the other in the order of the calls, and so do their `then`s: a watch armed by a read sees
        every write behind it and none before.
        """
        if self._executor is None or self._database is None:
            raise StoreUnavailable(f"{self._path} is closed")
        return await self._run(self._executor, partial(job, self._database), then)

    async def _run(
        self, executor: ThreadPoolExecutor, job: Callable[[], T], then: Callable[[T], None] | None = None
    ) -> T:
        future = asyncio.get_running_loop().run_in_executor(executor, job)
        if then is not None:
            future.add_done_callback(partial(_pass_on, then))
        try:
            # Shielded: a caller that is cancelled does not take back what the worker does, and watchers must know.
            return await asyncio.shield(future)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {_explain(error)}") from error


def _pass_on(then: Callable[[T], None], future: asyncio.Future[T]) -> None:
    if not future.cancelled() and future.exception() is None:
        then(future.result())


def _explain(error: sqlite3.Error) -> str:
    if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
        return "in use by another process"
    return str(error)
