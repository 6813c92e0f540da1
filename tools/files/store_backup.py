"""A backup of the embedded metadata store, also while its broker runs and has the files locked.

Owns how the files are copied consistently. Must not know settings or what the nodes mean.

The broker writes to the write-ahead log, and checkpoints move pages from there to the database. A log is overwritten
from its beginning only after all of it was moved; its header then gets other salts. So a copy of the database and,
after it, of the log is complete as long as the header of the log has stayed the same: whatever a checkpoint has written
at the same time is in the copied log as well, and opening the copy applies that log. A frame that was being appended
has a wrong checksum, and SQLite drops it.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from broker.loop.clock import SystemClock
from controller.embedded.sqlite_file import DamagedFileError, SqliteFile
from controller.embedded.store_copies import StoreCopies
from controller.store.state_store import StoreUnavailable
from storage.disk.files import OsFiles

LOG_ENDING: Final = "-wal"
LOG_HEADER_SIZE: Final = 32
COPY_TRIES: Final = 20
COPY_RETRY_S: Final = 0.1


class BackupError(Exception):
    """The store cannot be copied; the text names the file and the reason."""


class Backup(NamedTuple):
    """What was copied."""

    source: Path
    zxid: int
    """The last transaction of the backup."""
    left_out: Sequence[Path]
    """Copies of the store that could not be used."""


def back_up(sources: Sequence[Path], target: Path) -> Backup:
    """Write the newest of the copies of a store to `target`, durably and readable by the user alone.

    Raises:
        BackupError: No copy can be read, or they belong to different clusters.
        OSError: Reading or writing failed.
    """
    with TemporaryDirectory(prefix=".backup-", dir=target.parent) as name:
        copies = {Path(name, str(number)): source for number, source in enumerate(sources)}
        for copy, source in copies.items():
            copy_consistently(source, copy)
        zxids = _zxids(copies)
        if not zxids:
            raise BackupError(f"{', '.join(map(str, sources))}: no copy belongs to a cluster; was this broker started?")
        newest = max(zxids, key=zxids.__getitem__)
        _check(newest, copies[newest])
        newest.chmod(0o600)
        files = OsFiles()
        files.sync_path(str(newest))
        newest.rename(target)
        files.sync_directory(str(target.parent))
        left_out = [source for copy, source in copies.items() if copy not in zxids]
        return Backup(copies[newest], zxids[newest], left_out)


def copy_consistently(source: Path, target: Path) -> None:
    """Copy a database and its write-ahead log, while another process may be writing them.

    Raises:
        BackupError: The log was restarted during every attempt.
        OSError: Reading or writing failed.
    """
    for _ in range(COPY_TRIES):
        before = _generation(source)
        shutil.copyfile(source, target)
        _copy_log(_log_of(source), _log_of(target))
        if _generation(source) == before:
            return
        time.sleep(COPY_RETRY_S)
    raise BackupError(f"{source} changes too fast to be copied; try again")


def _generation(path: Path) -> bytes | tuple[int, int]:
    """Return what changes when the write-ahead log is restarted, or without a log what changes with the database."""
    try:
        with _log_of(path).open("rb") as file:
            header = file.read(LOG_HEADER_SIZE)
    except FileNotFoundError:
        header = b""
    if header:
        return header
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _copy_log(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)  # of an earlier attempt


def _log_of(path: Path) -> Path:
    return Path(f"{path}{LOG_ENDING}")


def _zxids(copies: Mapping[Path, Path]) -> dict[Path, int]:
    """Return the last transaction of each copy that can be used, of which the sources are given.

    Raises:
        BackupError: None can be read, or they belong to different clusters.
    """
    store = StoreCopies(list(copies), SystemClock(), lambda path, error: None, sleep=time.sleep)
    try:
        found = store.examine()
    except (StoreUnavailable, sqlite3.Error) as error:
        text = str(error)
        for copy, source in copies.items():
            text = text.replace(str(copy), str(source))
        raise BackupError(text) from error
    finally:
        store.close()
    return {copy.path: copy.zxid for copy in found if copy.zxid is not None}


def _check(copy: Path, source: Path) -> None:
    """Read all of a copy, and merge its log into it. Raises BackupError."""
    try:
        SqliteFile(copy, is_checked=True).close()
    except (DamagedFileError, sqlite3.Error) as error:
        raise BackupError(f"{source} is damaged: {error}") from error
