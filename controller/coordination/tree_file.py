"""The file of the coordination server: its tree and sessions in a SQLite database.

Owns the schema (docs/formats/coordination-store.md) and all SQL statements. Must not know what a change means. Used
from one thread at a time.

Invariants: only one process uses the file; `write` is atomic and on the disk when it returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller.coordination.machine import jute
from controller.coordination.machine.coordinator import Changes
from controller.coordination.machine.sessions import StoredSession
from controller.coordination.machine.tree import Znode
from controller.embedded.sqlite_file import open_database
from controller.store.state_store import StoreUnavailable

APPLICATION_ID: Final = 0x4D4C4E43  # "MLNC": identifies the file among SQLite databases
SCHEMA_VERSION: Final = 1

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE node (
    path TEXT NOT NULL PRIMARY KEY,
    data BLOB,
    acl BLOB NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL,
    mtime_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    version INTEGER NOT NULL,
    acl_version INTEGER NOT NULL,
    child_creates INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE session (id INTEGER NOT NULL PRIMARY KEY, password BLOB NOT NULL, timeout_ms INTEGER NOT NULL);
CREATE TABLE last (zxid INTEGER NOT NULL, session_id INTEGER NOT NULL);
INSERT INTO last VALUES (0, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


class TreeFile:
    """An open file, created if missing."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises what `open_database` raises."""
        self._connection = open_database(path, SCHEMA_VERSION, {0: _SCHEMA}, is_checked=True)
        (application_id,) = self._connection.execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            self._connection.close()
            raise StoreUnavailable(f"{path}: the database belongs to another application, {application_id:#x}")
        self.zxid, self.last_session_id = self._connection.execute("SELECT zxid, session_id FROM last").fetchone()

    def close(self) -> None:
        self._connection.close()

    def nodes(self) -> list[tuple[str, Znode]]:
        """Return all nodes, parents first."""
        rows = self._connection.execute("SELECT * FROM node ORDER BY path")
        return [(path, Znode(data, jute.decode_acl(acl), *numbers)) for path, data, acl, *numbers in rows]

    def sessions(self) -> list[StoredSession]:
        return [StoredSession(*row) for row in self._connection.execute("SELECT * FROM session")]

    def write(self, changes: Changes) -> None:
        """Write all changes in one transaction. Raises sqlite3.Error if the disk fails; then nothing is written."""
        put = [(path, n.data, jute.encode_acl(n.acl), *n[2:]) for path, n in changes.nodes if n is not None]
        gone = [(path,) for path, node in changes.nodes if node is None]
        begun = [session for _, session in changes.sessions if session is not None]
        ended = [(session_id,) for session_id, session in changes.sessions if session is None]
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(f"INSERT OR REPLACE INTO node VALUES (?{', ?' * 11})", put)
            connection.executemany("DELETE FROM node WHERE path = ?", gone)
            connection.executemany("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", begun)
            connection.executemany("DELETE FROM session WHERE id = ?", ended)
            connection.execute("UPDATE last SET zxid = ?, session_id = ?", (changes.zxid, changes.last_session_id))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk may have rolled it back already
                connection.execute("ROLLBACK")
            raise
