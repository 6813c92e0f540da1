"""One file of the embedded state store: a SQLite database with ZooKeeper's data model.

Owns the schema (docs/formats/metadata-store.md), all SQL statements, and the sessions that wrote the file. Must not
know that the file has other copies, or what the nodes mean. Used from one thread.

Invariants: only one process uses the file (it is locked while open); a transaction is on the disk (write-ahead log,
synchronous FULL) before `apply` returns. The file is written only between `begin_session` and `close`.
"""

import errno
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from controller.store.state_store import (
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
    WatchEvent,
    WatchKind,
    parent_path,
)

SqliteError = sqlite3.Error
"""What SQLite raises. Its text does not name the file."""

APPLICATION_ID = 0x4D4C4E41  # "MLNA": identifies the store among SQLite databases, also to `file`
SCHEMA_VERSION = 2
SESSIONS_KEPT: Final = 1000

_SESSIONS = """
CREATE TABLE session (first_zxid INTEGER NOT NULL PRIMARY KEY, token TEXT NOT NULL);
"""

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
{_SESSIONS}
INSERT INTO node VALUES ('/', NULL, NULL, 0, 0, 0, 0, 0, 0);
INSERT INTO last_transaction VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""

_FROM_VERSION_1 = f"""
BEGIN IMMEDIATE;
{_SESSIONS}
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


class DamagedFileError(Exception):
    """The file is not a database, or its pages are inconsistent. The message names it."""


class Session(NamedTuple):
    """A session that wrote the file from `first_zxid` until the next session: one start of a broker or tool."""

    first_zxid: int
    token: str


class Transaction(NamedTuple):
    """The values that one `apply` writes. The same for all copies."""

    zxid: int
    session_id: int
    now_ms: int


class Applied(NamedTuple):
    """What one transaction did to one file."""

    results: list[Result]
    changes: list[WatchEvent]


def open_database(
    path: Path, schema_version: int, schemas: Mapping[int, str], *, is_checked: bool = False
) -> sqlite3.Connection:
    """Open a database that only this process uses, and whose transactions are on the disk when they return.

    Args:
        schemas: the statements that bring a file of an older version to `schema_version`; 0 is a new file.
        is_checked: read all of it to detect damaged pages now.

    Raises:
        DamagedFileError: the file is not a database, or is damaged.
        StoreUnavailable: a later version or another program has written the file; it is unchanged.
        sqlite3.Error: another process uses the file, or opening it failed.
    """
    # isolation_level None: the caller begins and ends transactions; the driver would begin them implicitly.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path, schema_version, schemas, is_checked)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.DatabaseError) and _primary_code(error) in _DAMAGE:
            raise DamagedFileError(f"{path}: {error}") from error
        raise
    return connection


def _prepare(
    connection: sqlite3.Connection, path: Path, schema_version: int, schemas: Mapping[int, str], is_checked: bool
) -> None:
    # EXCLUSIVE before the first access in WAL mode: the file stays locked until the connection closes, and the
    # index of the log is in memory instead of a third file.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found != schema_version and found not in schemas:
        raise StoreUnavailable(f"{path}: the store has schema version {found}, expected {schema_version}")
    if found == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise StoreUnavailable(f"{path}: the file has tables of another program, expected a store or a new file")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS only: there fsync does not empty the drive's cache
    connection.execute("BEGIN IMMEDIATE").execute("ROLLBACK")
    if is_checked:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise DamagedFileError(f"{path}: {verdict}")
    if found in schemas:
        connection.executescript(schemas[found])


class SqliteFile:
    """An open file, created if missing. While it is open, `path` may be renamed but not replaced."""

    def __init__(self, path: Path, *, is_checked: bool = False) -> None:
        """Open the file; with `is_checked`, read all of it to detect damaged pages now.

        Raises:
            DamagedFileError: the file is not a database, or is damaged.
            StoreUnavailable: a later version has written the file.
            sqlite3.Error: another process uses the file, or opening it failed.
        """
        self.path = path
        self._connection = open_database(path, SCHEMA_VERSION, {0: _SCHEMA, 1: _FROM_VERSION_1}, is_checked=is_checked)
        self.zxid: int = self._connection.execute("SELECT zxid FROM last_transaction").fetchone()[0]

    def close(self) -> None:
        self._connection.close()

    def backup(self, target: Path) -> None:
        """Write the whole content to the path `target`, which must not exist. Not durable.

        Raises:
            sqlite3.Error: reading or writing failed.
        """
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            copy.execute("PRAGMA synchronous = OFF")
            self._connection.backup(copy)
        finally:
            copy.close()

    # -- sessions --------------------------------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """Return the last `SESSIONS_KEPT` sessions that wrote the file, oldest first."""
        rows = self._connection.execute("SELECT first_zxid, token FROM session ORDER BY first_zxid")
        return [Session(*row) for row in rows]

    def begin_session(self, transaction: Transaction, token: str) -> None:
        """Record the session that writes from now on, and end earlier ones: delete their ephemeral nodes."""
        self._write(transaction, self._ephemerals(), Session(transaction.zxid, token))

    def end_session(self, transaction: Transaction) -> None:
        self._write(transaction, self._ephemerals())

    def _ephemerals(self) -> list[Operation]:
        return [Delete(path) for (path,) in self._connection.execute("SELECT path FROM node WHERE owner != 0")]

    # -- reading ---------------------------------------------------------------------------------------------------

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

    # -- writing ---------------------------------------------------------------------------------------------------

    def apply(self, operations: Iterable[Operation], transaction: Transaction) -> Applied:
        """Perform `operations` in one durable transaction; return their results and the changes.

        Raises:
            StoreError: an operation was rejected; nothing was changed.
            sqlite3.Error: the database failed.
        """
        return self._write(transaction, operations)

    def _write(
        self, transaction: Transaction, operations: Iterable[Operation], session: Session | None = None
    ) -> Applied:
        results: list[Result] = []
        changes: list[WatchEvent] = []
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for operation in operations:
                # The length of the results is the index of a failure.
                results.append(self._do(operation, transaction, changes))  # noqa: PERF401
            if session is not None:
                self._record(session)
            self._connection.execute("UPDATE last_transaction SET zxid = ?", (transaction.zxid,))
            self._connection.execute("COMMIT")
        except StoreError as error:
            error.index = len(results)
            self._connection.execute("ROLLBACK")
            raise
        except BaseException:
            # A full disk may have rolled the transaction back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self.zxid = transaction.zxid
        return Applied(results, changes)

    def _record(self, session: Session) -> None:
        self._connection.execute("INSERT INTO session VALUES (?, ?)", session)
        self._connection.execute(
            "DELETE FROM session WHERE first_zxid <= "
            "(SELECT first_zxid FROM session ORDER BY first_zxid DESC LIMIT 1 OFFSET ?)",
            (SESSIONS_KEPT,),
        )

    def _do(self, operation: Operation, transaction: Transaction, changes: list[WatchEvent]) -> Result:
        """Perform one operation, and append what it changes to `changes`. Raises StoreError."""
        match operation:
            case Create():
                return self._create(operation, transaction, changes)
            case SetData():
                return self._set(operation, transaction, changes)
            case Delete():
                self._delete(operation, changes)
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

    def _create(self, operation: Create, transaction: Transaction, changes: list[WatchEvent]) -> str:
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
        changes.append(WatchEvent(WatchKind.CREATED, path))
        return path

    def _set(self, operation: SetData, transaction: Transaction, changes: list[WatchEvent]) -> Stat:
        _check_size(operation.path, operation.data)
        before = self._require(operation.path, operation.version).stat
        self._connection.execute(
            "UPDATE node SET data = ?, version = version + 1, mzxid = ? WHERE path = ?",
            (operation.data, transaction.zxid, operation.path),
        )
        changes.append(WatchEvent(WatchKind.CHANGED, operation.path))
        return Stat(before.version + 1, before.czxid, transaction.zxid, before.ctime_ms, before.ephemeral_owner)

    def _delete(self, operation: Delete, changes: list[WatchEvent]) -> None:
        self._require(operation.path, operation.version)
        if self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (operation.path,)).fetchone():
            raise NotEmpty(operation.path)
        self._connection.execute("DELETE FROM node WHERE path = ?", (operation.path,))
        changes.append(WatchEvent(WatchKind.DELETED, operation.path))


def _check_size(path: str, data: bytes | None) -> None:
    if data is not None and len(data) > DATA_SIZE_MAX:
        raise DataTooLarge(path)


# -- errors --------------------------------------------------------------------------------------------------------

_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_DESCRIPTORS_OF_A_FILE: Final = 3  # the database, its write-ahead log, and the directory while it is synced
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DISK_FAILURE: Final = _DAMAGE | {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def is_disk_failure(error: sqlite3.Error) -> bool:
    """Return whether the file is unusable. Otherwise the statement failed and changed nothing."""
    code = getattr(error, "sqlite_errorcode", None)
    return code != sqlite3.SQLITE_IOERR_NOMEM and _primary_code(error) in _DISK_FAILURE


def may_be_shortage(error: sqlite3.Error) -> bool:
    """Return whether the cause may be a lack of descriptors or memory, which SQLite reports as an unreadable file."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_IOERR_NOMEM or _primary_code(error) in {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,  # the file could be opened for reading only after a first failure
    }


def is_shortage(error: Exception, path: Path) -> bool:
    """Return whether `error`, raised for the file at `path`, is due to a persisting lack of descriptors or memory."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    if not isinstance(error, sqlite3.Error) or not may_be_shortage(error):
        return False
    return _primary_code(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} or _lacks_descriptors(path)


def _lacks_descriptors(path: Path) -> bool:
    """Return whether descriptors are short now: SQLite does not pass on the system's error, so this asks again."""
    with ExitStack() as opened:
        try:
            for _ in range(_DESCRIPTORS_OF_A_FILE):
                opened.callback(os.close, os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            return error.errno in _SHORTAGES
    return False


def is_in_use(error: sqlite3.Error) -> bool:
    """Return whether another process, or another store of this process, has locked the file."""
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _primary_code(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
