"""The copies of the embedded state store, one in each log directory, written as one.

Owns which copy is valid and newest at a start, how the others are brought up to date, and that a transaction is in
every live copy before it counts. Knows of the nodes only `/cluster/id`: a copy without it holds no cluster, and copies
with different ones must not be mixed. Used from one thread, and blocks on the disk.

Each session (a start of a broker or a tool) records itself in every copy that it writes, before its first transaction,
and writes all of them in the same order. So two copies whose last session is the same agree up to the smaller zxid. A
copy that failed is not written again in the session; it is an older copy at the next start.

Invariants: what `apply` returned is in every copy that is still live, so the loss of all but one loses nothing; a copy
is replaced in one step (written beside, synced, renamed), and one that holds what the newest does not is kept aside.
"""

import logging
import os
import sqlite3
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from controller import paths
from controller.clock import Clock
from controller.sqlite_file import (
    DamagedFileError,
    Session,
    SqliteFile,
    Transaction,
    is_disk_failure,
    is_in_use,
    is_shortage,
    may_be_shortage,
)
from controller.state_store import Node, Operation, Result, StoreUnavailable, WatchEvent

logger = logging.getLogger("kafka.zk.KafkaZkClient")

T = TypeVar("T")

_BESIDE: Final = ("-wal", "-shm", "-journal")
_REPLACEMENT: Final = ".tmp"
OPEN_TRIES: Final = 5
OPEN_RETRY_S: Final = 0.2
"""How often and how far apart a copy is opened that may only lack descriptors or memory."""


class FoundCopy(NamedTuple):
    """What a start finds at one path: the zxid of the last transaction, None where no copy of a cluster's store is."""

    path: Path
    zxid: int | None


class StoreCopies:
    """`examine` opens the newest copy for reading, `begin_session` brings the others up to date; then `apply` works.

    `on_disk_failed(path, error)` is called for each copy whose disk has failed, once it is given up. `sleep(seconds)`
    waits before a copy is opened once more.
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
        """How many copies are live."""
        return len(self._copies)

    # -- start -----------------------------------------------------------------------------------------------------

    def examine(self) -> list[FoundCopy]:
        """Open and lock what is there, and read from the newest copy from now on. Changes no content.

        Raises StoreUnavailable when a file is in use, the copies belong to different clusters, none can be read, or
        descriptors or memory are short; sqlite3.Error.
        """
        opened: list[SqliteFile] = []
        try:
            errors = self._open_existing(opened)
            holding = {copy.path: cluster_id for copy in opened if (cluster_id := _cluster_id(copy)) is not None}
            if errors and not holding:
                raise StoreUnavailable(f"the metadata store cannot be read: {'; '.join(errors)}")
            _refuse_mixture(holding)
        except BaseException:
            _close_all(opened)
            raise
        # A copy without a cluster never counts as newest: starts that fail write it again and again.
        newest = max(opened, key=lambda copy: (copy.path in holding, copy.zxid), default=None)
        if newest is not None:
            self._copies = [newest]
            self._zxid = newest.zxid
        self._others = {copy.path: copy for copy in opened if copy is not newest}
        return [FoundCopy(path, self._zxid_of(path) if path in holding else None) for path in self._paths]

    def _open_existing(self, opened: list[SqliteFile]) -> list[str]:
        """Returns what is wrong with those that cannot be opened."""
        errors: list[str] = []
        has_several = len(self._paths) > 1
        for path in self._paths:
            if not path.exists():
                continue
            try:
                opened.append(self._opened(path, is_checked=has_several))
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

    def _opened(self, path: Path, *, is_checked: bool = False) -> SqliteFile:
        """Open a copy; while that may lack descriptors or memory, up to OPEN_TRIES times.

        A shortage is no failure of the disk, so it never takes a copy out of use. Raises StoreUnavailable if it lasts,
        and what `SqliteFile` raises.
        """
        for number in range(OPEN_TRIES):
            try:
                return SqliteFile(path, is_checked=is_checked)
            except sqlite3.Error as error:
                if number < OPEN_TRIES - 1 and may_be_shortage(error):
                    self._sleep(OPEN_RETRY_S)
                    continue
                _refuse_shortage(error, path)
                raise
        raise AssertionError("every try returns or raises")

    def _zxid_of(self, path: Path) -> int:
        zxids = {copy.path: copy.zxid for copy in (*self._copies, *self._others.values())}
        return zxids[path]

    def begin_session(self, without: Collection[Path] = ()) -> None:
        """Bring the copies up to date, make those that are missing, and write to all from now on.

        Paths in `without` are left as they are, and not written. Raises StoreUnavailable, sqlite3.Error.
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
        # No two sessions share an id: it is the zxid of the transaction that ends the ones before.
        transaction = self._next_transaction()
        token = uuid.uuid4().hex
        self._write(transaction, lambda copy: copy.begin_session(transaction, token))
        self.session_id = transaction.zxid

    def _first_copy(self, usable: Sequence[Path]) -> SqliteFile:
        for path in usable[:-1]:
            try:
                return self._opened(path)
            except sqlite3.Error as error:
                if not _is_disk_failure(error):
                    raise
                self._on_disk_failed(path, error)
        return self._opened(usable[-1])

    def _mirror(self, newest: SqliteFile, other: SqliteFile | None, path: Path) -> None:
        """Put a copy like the newest at `path` into service."""
        try:
            if other is None or not _is_same(other, newest):
                self._replace(newest, other, path)
                other = self._opened(path)
        except (OSError, sqlite3.Error, DamagedFileError) as error:
            if other is not None:
                _close_all([other])
            _refuse_shortage(error, path)
            self._on_disk_failed(path, error)
        else:
            self._copies.append(other)

    def _replace(self, newest: SqliteFile, other: SqliteFile | None, path: Path) -> None:
        """Replace what is at `path` by the content of the newest copy. A crash leaves the old copy or the new one."""
        is_kept = path in self._damaged
        if other is not None:
            is_kept = _cluster_id(other) is not None and not _is_beginning(other, newest)
            other.close()  # and its write-ahead log becomes part of the file
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
        why = "damaged" if path in self._damaged else "written apart from the newer copies, which lack its changes"
        logger.error("%s was %s: it is replaced, and kept as %s", path, why, kept)

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
                self._give_up(copy, error)
        raise StoreUnavailable("no copy of the metadata store is left")

    # -- writing ---------------------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation]) -> tuple[list[Result], list[WatchEvent]]:
        """Do `operations` in one transaction, durable in every live copy; return their results and what has changed.

        Raises StoreError, StoreUnavailable when no copy is left, sqlite3.Error when nothing was changed.
        """
        if not self.session_id:
            raise StoreUnavailable("the metadata store is open for reading only")
        transaction = self._next_transaction()
        results = self._write(transaction, lambda copy: copy.apply(operations, transaction))
        return results, transaction.changes

    def _write(self, transaction: Transaction, job: Callable[[SqliteFile], T]) -> T:
        """Do the same in each live copy. The first one decides whether it can be done at all."""
        outcome: list[T] = []
        for copy in list(self._copies):
            try:
                outcome.append(job(copy))
            except Exception as error:
                if not outcome and not _is_disk_failure(error):
                    raise
                # Whatever the error is: this copy does not hold what another one does.
                self._give_up(copy, error)
            # Also after a failure: that copy may hold the transaction, so that no other one may get its number.
            self._zxid = transaction.zxid
        if not outcome:
            raise StoreUnavailable("no copy of the metadata store is left")
        return outcome[0]

    def _next_transaction(self) -> Transaction:
        return Transaction(self._zxid + 1, self.session_id, self._clock.now_ms())

    # -- failure and end -------------------------------------------------------------------------------------------

    def leave(self, path: Path) -> None:
        """Write no more to the copy at `path`, whose directory has failed, unless it is the last one."""
        if len(self._copies) > 1:
            for copy in self._copies:
                if copy.path == path:
                    self._copies.remove(copy)
                    _close_all([copy])
                    break

    def _give_up(self, copy: SqliteFile, error: Exception) -> None:
        self._copies.remove(copy)
        _close_all([copy])
        if _is_disk_failure(error):
            self._on_disk_failed(copy.path, error)
        else:
            logger.error("the metadata store does not use %s until the next start: %s", copy.path, error)

    def close(self) -> None:
        """End the session. A copy in which that fails is an older one at the next start, which ends it there."""
        if self.session_id:
            transaction = self._next_transaction()
            for copy in self._copies:
                try:
                    copy.end_session(transaction)
                except sqlite3.Error as error:
                    logger.warning("%s: the session ends at the next start: %s", copy.path, error)
        _close_all([*self._copies, *self._others.values()])
        self._copies, self._others, self._damaged = [], {}, set()
        self._zxid = self.session_id = 0


def _close_all(copies: Collection[SqliteFile]) -> None:
    for copy in copies:
        try:
            copy.close()
        except sqlite3.Error as error:
            logger.warning("%s: %s", copy.path, error)


def _refuse_shortage(error: Exception, path: Path) -> None:
    """Raises StoreUnavailable if `error` comes of a shortage: the start can be repeated once there is enough."""
    if is_shortage(error, path):
        raise StoreUnavailable(
            f"{path}: out of descriptors or memory, which is no error of the disk: {error}"
        ) from error


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


def _refuse_mixture(cluster_ids: dict[Path, str]) -> None:
    """Raises StoreUnavailable unless all copies are of one cluster."""
    if len(set(cluster_ids.values())) > 1:
        found = ", ".join(f"{path} is that of cluster {cluster_id}" for path, cluster_id in cluster_ids.items())
        raise StoreUnavailable(f"the copies of the metadata store belong to different clusters: {found}")


def _is_same(copy: SqliteFile, newest: SqliteFile) -> bool:
    last = copy.sessions()[-1:]
    return bool(last) and last == newest.sessions()[-1:] and copy.zxid == newest.zxid


def _is_beginning(copy: SqliteFile, newest: SqliteFile) -> bool:
    """Whether the newest copy holds every transaction that this one does."""
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
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
