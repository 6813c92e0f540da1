"""Opens the embedded metadata store over the log directories of this broker, and decides which of them are used.

Owns: where the copies of the store are, the effect of a failed disk on store and log directory, the rejection of a log
directory that has changed, and what becomes of the copies of a broker that joins a cluster. Must not know: how copies
are kept, or what happens to partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Final

from base.clock import Clock
from base.topic_partition import TopicPartition
from config.broker_properties import LOG_DIRS_ACCEPT_CHANGED
from controller.embedded.sqlite_file import SqliteError
from controller.embedded.sqlite_store import METADATA_FILE, STORE_FILES, SqliteStore
from controller.embedded.store_copies import FoundCopy
from controller.store.state_store import NoNode, StateStore
from controller.tree import log_dir_record, paths
from controller.tree.log_dir_record import FoundDirectory
from storage.directories.log_directory import LogDirectory
from storage.disk.files import Files
from storage.manager.log_manager import LogManager

logger = logging.getLogger("kafka.server.KafkaServer")

STORE_FILE_ENDINGS: Final = ("", "-wal", "-shm", "-journal")
RETIRED_FILE: Final = METADATA_FILE + ".retired"
FILES_BESIDE_LOGS: Final = STORE_FILES | {RETIRED_FILE + ending for ending in STORE_FILE_ENDINGS}
"""The files that this module may leave in a log directory."""


class NoMetadataError(Exception):
    """No usable log directory holds the metadata, and an unusable one may hold it."""


class MetadataCopyError(Exception):
    """The copy of the metadata in a log directory cannot be read or written. Names the file."""


class ChangedDirectoryError(Exception):
    """A log directory has changed since it was last used. The message says why, and what to do."""


async def open_store(
    log_manager: LogManager,
    clock: Clock,
    blocking: Executor,
    *,
    sleep: Callable[[float], None],
    accepts_changed: bool,
    on_lost: Callable[[Exception], None],
    on_response: Callable[[float], None] = lambda seconds: None,
) -> tuple[SqliteStore, list[LogDirectory]]:
    """Open the store with a copy in each live directory; take changed directories offline, or accept them.

    Returns the store and the directories that were accepted, for `record_directories`. `on_lost(error)` is called in
    any thread when no copy can be written, and `on_response(seconds)` after each operation. Raises
    NoMetadataError, StoreUnavailable, ForeignDirectoryError.
    """
    places = {Path(one.path) / METADATA_FILE: one for one in log_manager.directories.live}
    store = SqliteStore(
        list(places),
        clock,
        on_disk_failed=lambda path, error: log_manager.directories.fail(places[path], _named(path, error)),
        on_lost=on_lost,
        sleep=sleep,
        on_response=on_response,
    )
    try:
        copies = await store.examine()
        is_new_cluster = all(copy.zxid is None for copy in copies)
        if is_new_cluster:
            _refuse_while_offline(log_manager)
        in_use_since = {} if is_new_cluster else await log_dir_record.read(store)
        changed = _changed(copies, places, in_use_since)
        if changed and not accepts_changed:
            await _take_offline(store, log_manager, changed, blocking)
        await store.open(without=[path for path, directory in places.items() if directory.is_offline])
    except BaseException:
        await store.close()
        raise
    return store, list(changed) if accepts_changed else []


async def record_directories(store: StateStore, log_manager: LogManager, accepted: Iterable[LogDirectory]) -> None:
    """Record the used directories, so that the next start detects changed ones. Raises StoreError, StoreUnavailable."""
    await log_dir_record.write(
        store,
        in_use=[one.absolute_path for one in log_manager.directories.live],
        configured=[one.absolute_path for one in log_manager.directories],
        replaced=[one.absolute_path for one in accepted],
    )


def retire_copies(log_manager: LogManager, files: Files) -> None:
    """Set aside copies of the embedded store in the log directories of a broker whose metadata is in ZooKeeper now.

    They are out of date from now on. A broker that ran alone on them again would not know newer topics, and would lead
    with epochs that were used before. Called in a thread.
    """
    for directory in log_manager.directories.live:
        for ending in STORE_FILE_ENDINGS:
            path = f"{directory.path}/{METADATA_FILE}{ending}"
            if files.exists(path):
                files.rename(path, f"{directory.path}/{RETIRED_FILE}{ending}")
                if not ending:
                    logger.info(
                        "%s was renamed to %s: the metadata is in ZooKeeper now; before this broker runs alone again, "
                        "copy it back (metadata-copy)",
                        path,
                        RETIRED_FILE,
                    )


def _named(path: Path, error: Exception) -> Exception:
    """Return an error that names the file, which SQLite's errors do not."""
    return MetadataCopyError(f"{path.name}: {error}") if isinstance(error, SqliteError) else error


def _refuse_while_offline(log_manager: LogManager) -> None:
    """Raise NoMetadataError if a directory is offline: a new cluster must not replace one that cannot be read now."""
    offline = [one.path for one in log_manager.directories if one.is_offline]
    if offline:
        raise NoMetadataError(
            f"none of the log directories that can be used holds the metadata of a cluster ({METADATA_FILE}), and "
            f"{', '.join(offline)} cannot be used: bring back one that holds it, or take what cannot be used out of "
            "log.dirs to begin a new cluster"
        )


def _changed(
    copies: Iterable[FoundCopy], places: Mapping[Path, LogDirectory], in_use_since: Mapping[str, int]
) -> dict[LogDirectory, str]:
    """Return the live directories that have changed, each with the reason."""
    directories = {directory.absolute_path: directory for directory in places.values()}
    found = [
        FoundDirectory(places[copy.path].absolute_path, places[copy.path].is_claimed, copy.zxid)
        for copy in copies
        if not places[copy.path].is_offline
    ]
    reasons = log_dir_record.why_refused(found, in_use_since)
    return {directories[path]: reason for path, reason in reasons.items()}


async def _take_offline(
    store: StateStore, log_manager: LogManager, changed: Mapping[LogDirectory, str], blocking: Executor
) -> None:
    trusted = [one for one in log_manager.directories.live if one not in changed]
    present = await asyncio.get_running_loop().run_in_executor(blocking, lambda: _logs_in(trusted))
    missing = await _partitions(store) - present
    for directory, reason in changed.items():
        text = (
            f"{reason}, and {len(missing)} partitions lie in no other log directory. If its disk is not mounted, mount "
            "it and start again. To use the directory as it is, start once with "
            f"--override {LOG_DIRS_ACCEPT_CHANGED.name}=true"
        )
        log_manager.directories.fail(directory, ChangedDirectoryError(text))


async def _partitions(store: StateStore) -> set[TopicPartition]:
    """Return all partitions in the metadata, except those of topics that cannot be decoded."""
    try:
        topics = await store.children(paths.TOPICS)
    except NoNode:
        return set()
    found: set[TopicPartition] = set()
    for topic, node in zip(topics, await store.get_many([paths.topic_path(topic) for topic in topics]), strict=True):
        with suppress(paths.Undecodable):
            partitions = paths.decode_topic(topic, node.data).partitions if node is not None else {}
            found.update((topic, partition) for partition in partitions)
    return found


def _logs_in(directories: Sequence[LogDirectory]) -> set[TopicPartition]:
    """Return the partitions with a log in `directories`. Called in any thread.

    A directory that cannot be listed is skipped; loading its logs reports the error.
    """
    found: set[TopicPartition] = set()
    for directory in directories:
        with suppress(OSError):
            found.update((name.topic, name.partition) for _, name in directory.partition_directories())
    return found
