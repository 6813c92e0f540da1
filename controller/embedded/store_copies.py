"""The copies of the embedded state store, one in each log directory, which are written together.

Owns which copy is valid and newest at start, how the others are brought up to date, and that a transaction is in every
live copy before it is acknowledged. Of the nodes it knows only `/cluster/id`: a copy without it belongs to no cluster,
and copies with different ids must not be mixed. Used from one thread; blocks on the disk.

Each session (a start of a broker or a tool) records itself in every copy that it writes, before its first transaction,
and writes all copies in the same order. So two copies with the same last session agree up to the smaller zxid. A copy
that failed is not written again in the session; it is an older copy at the next start.

Invariants: what `apply` returned is in every live copy, so the loss of all but one loses nothing; a copy is replaced
atomically (written beside, synced, renamed); a copy that holds transactions that the newest lacks is kept under another
name.
"""

import logging
import os
import sqlite3
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from base.clock import Clock
from base.system_calls import SYSTEM_CALLS
from controller.embedded.sqlite_file import (
    Applied,
    DamagedFileError,
    Session,
    SqliteFile,
    Transaction,
    is_disk_failure,
    is_in_use,
    is_shortage,
    may_be_shortage,
)
from controller.store.state_store import Node, Operation, StoreUnavailable
from controller.tree import paths

logger = logging.getLogger("kafka.zk.KafkaZkClient")

T = TypeVar("T")

_BESIDE: Final = ("-wal", "-shm", "-journal")
_REPLACEMENT: Final = ".tmp"
OPEN_TRIES: Final = 5
OPEN_RETRY_S: Final = 0.2
"""Attempts to open a copy, and seconds between them, while descriptors or memory may be short."""


class FoundCopy(NamedTuple):
    """What a start finds at one path: the last transaction's zxid, None if no copy with a cluster id exists."""

    path: Path
    zxid: int | None


class StoreCopies:
    """`examine` opens the newest copy for reading; `begin_session` brings the others up to date and enables `apply`.

    `on_disk_failed(path, error)` is called for each copy whose disk has failed, after the copy is closed.
    `sleep(seconds)` waits before another attempt to open a copy.
    """

    def __init__(
        self,
        file_paths: Sequence[Path],
        clock: Clock,
        on_disk_failed: Callable[[Path, Exception], None],
        *,
        sleep: Callable[[float], None],
    ) -> None:
        assert file_paths
        self._paths = file_paths
        self._clock = clock
        self._on_disk_failed = on_disk_failed
        self._sleep = sleep
        self._copies: list[SqliteFile] = []
        self._others: dict[Path, SqliteFile] = {}
        self._damaged: set[Path] = set()
        self._zxid = 0
        self.session_id = 0

    @property
    def count(self) -> int:
        """The number of live copies."""
        return len(self._copies)

    # -- start -----------------------------------------------------------------------------------------------------

    def examine(self) -> list[FoundCopy]:
        """Open and lock the existing copies, and read from the newest from now on. Change no content.

        Raises:
            StoreUnavailable: a file is in use, the copies belong to different clusters, none can be read, or
                descriptors or memory are short.
            sqlite3.Error: another failure.
        """
        opened: list[SqliteFile] = []
        try:
            errors = self._open_existing(opened)
            holding = {copy.path: cluster_id for copy in opened if (cluster_id := _cluster_id(copy)) is not None}
            if errors and not holding:
                raise StoreUnavailable(f"the metadata store cannot be read: {'; '.join(errors)}")
            _reject_mixed_clusters(holding)
        except BaseException:
            _close_all(opened)
            raise
        # A copy without a cluster id never counts as newest, though failing starts write it again and again.
        newest = max(opened, key=lambda copy: (copy.path in holding, copy.zxid), default=None)
        if newest is not None:
            self._copies = [newest]
            self._zxid = newest.zxid
        self._others = {copy.path: copy for copy in opened if copy is not newest}
        return [FoundCopy(path, self._zxid_of(path) if path in holding else None) for path in self._paths]

    def _open_existing(self, opened: list[SqliteFile]) -> list[str]:
        """Open the existing copies; return the errors of those that cannot be opened."""
        errors: list[str] = []
        has_several = len(self._paths) > 1
        for path in self._paths:
            if not path.exists():
                continue
            try:
                opened.append(self._open(path, is_checked=has_several))
            except DamagedFileError as error:
                self._damaged.add(path)
                errors.append(str(error))
            except sqlite3.Error as error:
                if is_in_use(error):
                    raise StoreUnavailable(f"{path}: in use by another process") from error
                if not has_several or not _is_disk_failure(error):
                    raise
                errors.append(f"{path}: {error}")
                self._on_disk_failed(path, error)
        return errors

    def _open(self, path: Path, *, is_checked: bool = False) -> SqliteFile:
        """Open a copy, in up to OPEN_TRIES attempts while descriptors or memory may be short.

        A shortage is not a disk failure, so it never takes a copy out of use.

        Raises:
            StoreUnavailable: the shortage persists.
            DamagedFileError, sqlite3.Error: as raised by `SqliteFile`.
        """
        for number in range(OPEN_TRIES):
            try:
                return SqliteFile(path, is_checked=is_checked)
            except sqlite3.Error as error:
                if number < OPEN_TRIES - 1 and may_be_shortage(error):
                    self._sleep(OPEN_RETRY_S)
                    continue
                _raise_if_shortage(error, path)
                raise
        raise AssertionError("the last attempt returns or raises")

    def _zxid_of(self, path: Path) -> int:
        zxids = {copy.path: copy.zxid for copy in (*self._copies, *self._others.values())}
        return zxids[path]

    def begin_session(self, without: Collection[Path] = ()) -> None:
        """Bring the copies up to date, create the missing ones, and write to all of them from now on.

        Copies at the paths in `without` are left unchanged and not written.

        Raises:
            StoreUnavailable, sqlite3.Error: no copy can be used.
        """
        if not self._copies:
            self._copies = [self._first_copy([path for path in self._paths if path not in without])]
        newest = self._copies[0]
        for path in self._paths:
            other = self._others.pop(path, None)
            if path in without:
                if other is not None:
                    other.close()
            elif path != newest.path:
                self._mirror(newest, other, path)
        if newest.path in without:
            self.leave(newest.path)
        # Session ids are unique: each is the zxid of the transaction that ends the earlier sessions.
        transaction = self._next_transaction()
        token = uuid.uuid4().hex
        self._write(transaction, lambda copy: copy.begin_session(transaction, token))
        self.session_id = transaction.zxid

    def _first_copy(self, usable: Sequence[Path]) -> SqliteFile:
        for path in usable[:-1]:
            try:
                return self._open(path)
            except sqlite3.Error as error:
                if not _is_disk_failure(error):
                    raise
                self._on_disk_failed(path, error)
        return self._open(usable[-1])

    def _mirror(self, newest: SqliteFile, other: SqliteFile | None, path: Path) -> None:
        """Bring the copy at `path` up to date with the newest, and add it to the live copies."""
        try:
            if other is None or not _is_same(other, newest):
                self._replace(newest, other, path)
                other = self._open(path)
        except (OSError, sqlite3.Error, DamagedFileError) as error:
            if other is not None:
                _close_all([other])
            _raise_if_shortage(error, path)
            self._on_disk_failed(path, error)
        else:
            self._copies.append(other)

    def _replace(self, newest: SqliteFile, other: SqliteFile | None, path: Path) -> None:
        """Replace the copy at `path` by the content of the newest. A crash leaves the old copy or the new one."""
        is_kept = path in self._damaged
        if other is not None:
            is_kept = _cluster_id(other) is not None and not _is_prefix(other, newest)
            other.close()  # which merges its write-ahead log into the file
        replacement = Path(f"{path}{_REPLACEMENT}")
        replacement.unlink(missing_ok=True)
        newest.backup(replacement)
        _sync(replacement)
        if is_kept:
            self._keep_aside(path)
        else:
            logger.info("copied the metadata store from %s to %s", newest.path, path)
        for ending in _BESIDE:
            # SQLite would apply the log of the old file to the new one.
            Path(f"{path}{ending}").unlink(missing_ok=True)
        _sync(path.parent)
        replacement.rename(path)
        _sync(path.parent)

    def _keep_aside(self, path: Path) -> None:
        number = 1
        while (kept := Path(f"{path}.{number}")).exists():
            number += 1
        for ending in (*_BESIDE, ""):
            if Path(f"{path}{ending}").exists():
                Path(f"{path}{ending}").rename(f"{kept}{ending}")
        _sync(path.parent)
        why = "is damaged" if path in self._damaged else "has changes that the newer copies lack"
        logger.error("%s %s: replaced it, and kept it as %s", path, why, kept)

    # -- reading ---------------------------------------------------------------------------------------------------

    def get_many(self, node_paths: Sequence[str]) -> list[Node | None]:
        return self._read(lambda copy: copy.get_many(node_paths))

    def children(self, path: str) -> list[str]:
        return self._read(lambda copy: copy.children(path))

    def _read(self, job: Callable[[SqliteFile], T]) -> T:
        while self._copies:
            copy = self._copies[0]
            try:
                return job(copy)
            except sqlite3.Error as error:
                if not _is_disk_failure(error):
                    raise
                self._drop_failed(copy, error)
        raise StoreUnavailable("no copy of the metadata store is left")

    # -- writing ---------------------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation]) -> Applied:
        """Perform `operations` in one transaction, durable in every live copy; return their results and the changes.

        Raises:
            StoreError: an operation was rejected; nothing was changed.
            StoreUnavailable: no copy is left, or the store is open for reading only.
            sqlite3.Error: the statement failed; nothing was changed.
        """
        if not self.session_id:
            raise StoreUnavailable("the metadata store is open for reading only")
        transaction = self._next_transaction()
        return self._write(transaction, lambda copy: copy.apply(operations, transaction))

    def _write(self, transaction: Transaction, job: Callable[[SqliteFile], T]) -> T:
        """Run `job` on each live copy; return the outcome of the first that succeeds.

        The first copy decides whether the operations can be performed at all.
        """
        outcome: list[T] = []
        for copy in list(self._copies):
            try:
                outcome.append(job(copy))
            except Exception as error:
                if not outcome and not _is_disk_failure(error):
                    raise
                # Whatever the error, this copy now lacks a transaction that another one holds.
                self._drop_failed(copy, error)
            # Also after a failure: the failed copy may hold the transaction, so its zxid must not be used again.
            self._zxid = transaction.zxid
        if not outcome:
            raise StoreUnavailable("no copy of the metadata store is left")
        return outcome[0]

    def _next_transaction(self) -> Transaction:
        return Transaction(self._zxid + 1, self.session_id, self._clock.now_ms())

    # -- failure and end -------------------------------------------------------------------------------------------

    def leave(self, path: Path) -> None:
        """Stop writing the copy at `path`, whose directory has failed, unless it is the last one."""
        if len(self._copies) > 1:
            for copy in self._copies:
                if copy.path == path:
                    self._copies.remove(copy)
                    _close_all([copy])
                    break

    def _drop_failed(self, copy: SqliteFile, error: Exception) -> None:
        self._copies.remove(copy)
        _close_all([copy])
        if _is_disk_failure(error):
            self._on_disk_failed(copy.path, error)
        else:
            logger.error("%s failed and is not used until the next start: %s", copy.path, error)

    def close(self) -> None:
        """End the session. If this fails in a copy, the next start treats it as older and ends the session there."""
        if self.session_id:
            transaction = self._next_transaction()
            for copy in self._copies:
                try:
                    copy.end_session(transaction)
                except sqlite3.Error as error:
                    logger.warning("%s: cannot end the session, the next start does: %s", copy.path, error)
        _close_all([*self._copies, *self._others.values()])
        self._copies, self._others, self._damaged = [], {}, set()
        self._zxid = self.session_id = 0


def _close_all(copies: Collection[SqliteFile]) -> None:
    for copy in copies:
        try:
            copy.close()
        except sqlite3.Error as error:
            logger.warning("%s: %s", copy.path, error)


def _raise_if_shortage(error: Exception, path: Path) -> None:
    """Raise StoreUnavailable if `error` comes from a shortage; the start can be repeated when it is over."""
    if is_shortage(error, path):
        raise StoreUnavailable(f"{path}: out of file descriptors or memory (not a disk failure): {error}") from error


def _is_disk_failure(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and is_disk_failure(error)


def _cluster_id(copy: SqliteFile) -> str | None:
    node = copy.get(paths.CLUSTER_ID)
    if node is None:
        return None
    try:
        return paths.decode_cluster_id(node.data)
    except paths.Undecodable as error:
        raise StoreUnavailable(f"{copy.path}: {paths.CLUSTER_ID}: {error}") from error


def _reject_mixed_clusters(cluster_ids: dict[Path, str]) -> None:
    """Raise StoreUnavailable unless all copies belong to one cluster."""
    if len(set(cluster_ids.values())) > 1:
        found = ", ".join(f"{path} belongs to cluster {cluster_id}" for path, cluster_id in cluster_ids.items())
        raise StoreUnavailable(f"the copies of the metadata store belong to different clusters: {found}")


def _is_same(copy: SqliteFile, newest: SqliteFile) -> bool:
    last = copy.sessions()[-1:]
    return bool(last) and last == newest.sessions()[-1:] and copy.zxid == newest.zxid


def _is_prefix(copy: SqliteFile, newest: SqliteFile) -> bool:
    """Return whether the newest copy holds every transaction of `copy`."""
    written = copy.sessions()
    if not written:
        return False
    last, sessions = written[-1], newest.sessions()
    if last not in sessions:
        return False
    later: Sequence[Session] = sessions[sessions.index(last) + 1 :]
    end_zxid = later[0].first_zxid - 1 if later else newest.zxid
    return copy.zxid <= end_zxid


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        SYSTEM_CALLS.sync(descriptor)
    finally:
        os.close(descriptor)
