"""Opens the embedded metadata store over the log directories of this broker.

Owns: where the copies of the store lie, and what a failed disk means for store and log directory alike. Must not know:
how copies are kept, or what happens to partitions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from controller.clock import Clock
from controller.sqlite_store import METADATA_FILE, SqliteStore
from storage.log_manager import LogManager


class NoMetadataError(Exception):
    """No log directory that can be used holds the metadata, and one that cannot may hold it."""


class MetadataCopyError(Exception):
    """The copy of the metadata in a log directory cannot be read or written. Names the file."""


async def open_store(log_manager: LogManager, clock: Clock, *, on_lost: Callable[[Exception], None]) -> SqliteStore:
    """Open the store with a copy in each live directory.

    `on_lost(error)` is called in any thread when no copy can be written any more. Raises NoMetadataError,
    StoreUnavailable.
    """
    places = {Path(one.path) / METADATA_FILE: one for one in log_manager.live_directories}
    store = SqliteStore(
        list(places),
        clock,
        on_disk_failed=lambda path, error: log_manager.fail_directory(places[path], _named(path, error)),
        on_lost=on_lost,
    )
    try:
        copies = await store.examine()
        if all(copy.zxid is None for copy in copies):
            _refuse_while_offline(log_manager)
        await store.open(without=[path for path, directory in places.items() if directory.is_offline])
    except BaseException:
        await store.close()
        raise
    return store


def _named(path: Path, error: Exception) -> Exception:
    """SQLite's errors name no file."""
    return MetadataCopyError(f"{path.name}: {error}") if isinstance(error, sqlite3.Error) else error


def _refuse_while_offline(log_manager: LogManager) -> None:
    """Raises NoMetadataError rather than beginning a new cluster while the old one may be out of reach."""
    offline = [one.path for one in log_manager.directories if one.is_offline]
    if offline:
        raise NoMetadataError(
            f"none of the log directories that can be used holds the metadata of a cluster ({METADATA_FILE}), and "
            f"{', '.join(offline)} cannot be used: bring back one that holds it, or take what cannot be used out of "
            "log.dirs to begin a new cluster"
        )
