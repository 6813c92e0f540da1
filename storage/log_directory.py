"""One log directory: its lock, whose it is, whether the last stop was clean, and the checkpoints of all its logs.

Owns the files in the root of the directory. Must not know what is in a partition directory, nor the other directories.

Invariants: nothing is written before the lock is held; the marker of a clean stop is gone before the first log is
opened and comes back only after the last one was closed without an error.
"""

import os.path
import threading
from collections.abc import Callable, Mapping
from typing import Final

from storage import checkpoints, meta_properties, names
from storage.checkpoints import MalformedCheckpointError, TopicPartition
from storage.files import Files, OpenFile
from storage.log import Log
from storage.meta_properties import MetaProperties
from storage.names import PartitionDirectoryName

_CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'


class DirectoryLockedError(Exception):
    """Another process, or another broker in this one, uses the directory. Names it."""


class ForeignDirectoryError(Exception):
    """There is a directory that is no partition's. Names it."""


class _LogCheckpoint:
    """A file that tells one offset of every log of a directory; a start after a crash goes by it. Any thread.

    The file knows a log by its name alone, and what it says of a deleted one would be believed of the next that has the
    name: a recovery point above what was ever synced, a start that deletes all that is below it. So a name is free
    for a new log only once the file does not tell of it.
    """

    def __init__(self, files: Files, path: str, offset_of: Callable[[Log], int | None]) -> None:
        self._files = files
        self._path = path
        self._offset_of = offset_of
        self._writing = threading.Lock()
        # What the file may tell of without being right: not looked at since, and being written without just now.
        self._outdated: set[TopicPartition] = set()
        self._leaving: set[TopicPartition] = set()

    def read(self) -> dict[TopicPartition, int]:
        """Raises OSError, MalformedCheckpointError."""
        offsets = checkpoints.read_offsets(self._files, self._path)
        self._outdated.update(offsets)  # which of these logs are still there, the next write finds out
        return offsets

    def write(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Waits for the disk. Raises OSError."""
        with self._writing:
            # Before the look at the logs, so that one which goes after it is found in the new set; and in this order,
            # so that a name is always found in one of the two.
            self._leaving = self._outdated
            self._outdated = set()
            offsets = {name: offset for name, log in list(logs.items()) if (offset := self._offset_of(log)) is not None}
            try:
                checkpoints.write_offsets(self._files, self._path, offsets)
            except OSError:
                self._outdated.update(self._leaving)  # the file may be as it was
                raise
            finally:
                self._leaving = set()

    def forget(self, name: TopicPartition) -> None:
        """The log of that name is gone from the directory, before this call."""
        self._outdated.add(name)

    def free_all(self, logs: Mapping[TopicPartition, Log]) -> None:
        """`write`, if the file may tell of any log that is gone."""
        if self._outdated:
            self.write(logs)

    def free(self, name: TopicPartition, logs: Mapping[TopicPartition, Log]) -> None:
        """`write`, if the file may tell of a log that had this name."""
        if name in self._outdated or name in self._leaving:
            self.write(logs)


def _start_beyond_file_name(log: Log) -> int | None:
    """Where a log starts, if the name of its first file does not tell."""
    return log.log_start_offset if log.log_start_offset > log.disposal.first_file_offset else None


class LogDirectory:
    """`logs` is changed by the log manager alone."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._lock: OpenFile | None = None
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.is_offline = False
        self.is_claimed = False
        """Whether the directory says whose it is; known once that was read."""
        self._recovery_points = self._checkpoint(
            names.RECOVERY_POINT_CHECKPOINT, lambda log: log.durability.recovery_point
        )
        self._log_starts = self._checkpoint(names.LOG_START_CHECKPOINT, _start_beyond_file_name)
        self._high_watermarks = self._checkpoint(names.HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark)
        self._checkpoints = (self._recovery_points, self._log_starts, self._high_watermarks)

    def _checkpoint(self, name: str, offset_of: Callable[[Log], int | None]) -> _LogCheckpoint:
        return _LogCheckpoint(self._files, self._path(name), offset_of)

    def open(self) -> None:
        """Makes the directory, durably, when missing, and locks it. Raises OSError, DirectoryLockedError."""
        if not self._files.exists(self.path):
            self._make()
        lock = self._files.lock(self._path(names.LOCK))
        if lock is None:
            raise DirectoryLockedError(
                f"{self._path(names.LOCK)} is held by another broker: two must not use the log directory {self.path}"
            )
        self._lock = lock

    def unlock(self) -> None:
        self._lock = None

    def _make(self) -> None:
        """Each parent that got a new name is synced: otherwise a power cut takes the directory with all its logs."""
        made = [os.path.abspath(self.path)]
        while not self._files.exists(parent := os.path.dirname(made[-1])):
            made.append(parent)
        self._files.make_directory(self.path)
        for path in made:
            self._files.sync_directory(os.path.dirname(path))

    def read_meta(self) -> MetaProperties | None:
        """None in a new directory. Raises OSError, WrongDirectoryError."""
        meta = meta_properties.read(self._files, self.meta_path)
        self.is_claimed = meta is not None
        return meta

    def write_meta(self, meta: MetaProperties) -> None:
        meta_properties.write(self._files, self.meta_path, meta)
        self.is_claimed = True

    @property
    def meta_path(self) -> str:
        return self._path(names.META_PROPERTIES)

    def take_clean_marker(self) -> bool:
        """Whether the last stop was clean; true once, as the marker is removed.

        Durably: a marker that came back after a power cut would vouch for batches that were appended since.
        """
        is_clean = self._files.unlink_if_exists(self._path(names.CLEAN_SHUTDOWN))
        if is_clean:
            self._files.sync_directory(self.path)
        return is_clean

    def write_clean_marker(self) -> None:
        self._files.replace(self._path(names.CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT, durable=True)

    def strangers(self) -> list[str]:
        """The paths of files that no broker has a use for. Raises OSError."""
        return [
            self._path(entry.name)
            for entry in self._files.list_directory(self.path)
            if not entry.is_directory and entry.name.removesuffix(names.TEMPORARY) not in names.ROOT_FILES
        ]

    def partition_directories(self) -> list[tuple[str, PartitionDirectoryName]]:
        """(path, parsed name) of each. Raises OSError, ForeignDirectoryError."""
        found = []
        for entry in self._files.list_directory(self.path):
            if not entry.is_directory:
                continue
            name = names.parse_partition_directory(entry.name)
            if name is None:
                raise ForeignDirectoryError(
                    f'Found directory {self._path(entry.name)}, expected only partitions of the form "<topic>-<number>"'
                )
            found.append((self._path(entry.name), name))
        return found

    def path_of(self, name: TopicPartition) -> str:
        return self._path(names.partition_directory(name.topic, name.partition))

    # Checkpoints

    def forget(self, name: TopicPartition) -> None:
        """The log of that name is not in this directory any more."""
        del self.logs[name]
        for checkpoint in self._checkpoints:
            checkpoint.forget(name)

    def free_name(self, name: TopicPartition) -> None:
        """Before a new log gets the name: no checkpoint tells of an earlier one. Raises OSError.

        Waits for the disk if there was one that went since the checkpoints were last written.
        """
        for checkpoint in self._checkpoints:
            checkpoint.free(name, self.logs)

    def free_names(self) -> None:
        """The same for all names of logs that are gone, so that `free_name` has not to wait for the disk.

        This waits for it. Any thread. Raises OSError.
        """
        for checkpoint in self._checkpoints:
            checkpoint.free_all(self.logs)

    def read_recovery_points(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int] | None:
        """None without a usable file: then all logs are scanned whole, and gaps between segments are accepted."""
        if not self._files.exists(self._path(names.RECOVERY_POINT_CHECKPOINT)):
            return None
        return _read_or_none(self._recovery_points.read, on_damage)

    def read_log_starts(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int]:
        """Without a usable file logs start at their first segment: deleted records may show up again."""
        return _read_or_none(self._log_starts.read, on_damage) or {}

    def read_high_watermarks(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int]:
        """Without a usable file high watermarks start at 0 and rise again with the in-sync replicas."""
        return _read_or_none(self._high_watermarks.read, on_damage) or {}

    def read_cleaner_offsets(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int] | None:
        """The first dirty offset of each compacted log; None without a usable file: cleaning begins at the log start.

        Raises OSError.
        """
        path = self._path(names.CLEANER_CHECKPOINT)
        return _read_or_none(lambda: checkpoints.read_offsets(self._files, path), on_damage)

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._files, self._path(names.CLEANER_CHECKPOINT), offsets)

    def write_recovery_points(self) -> None:
        self._recovery_points.write(self.logs)

    def write_log_starts(self) -> None:
        """Only those that the name of the first file does not tell."""
        self._log_starts.write(self.logs)

    def write_high_watermarks(self) -> None:
        self._high_watermarks.write(self.logs)

    def rename_partition_directory(self, path: str, name: str) -> str:
        """Returns the path with the new name."""
        renamed = self._path(name)
        self._files.rename(path, renamed)
        return renamed

    def sync(self) -> None:
        """Makes the names of the partition directories durable."""
        self._files.sync_directory(self.path)

    def remove_partition_directory(self, path: str) -> None:
        """With all that is in it, whoever has put it there. Safe to repeat after a crash in the middle."""
        for entry in self._files.list_directory(path):
            try:
                self._files.unlink_if_exists(f"{path}/{entry.name}")
            except IsADirectoryError:
                self.remove_partition_directory(f"{path}/{entry.name}")
        self._files.remove_directory(path)

    def _path(self, name: str) -> str:
        return f"{self.path}/{name}"


def _read_or_none(
    read: Callable[[], dict[TopicPartition, int]], on_damage: Callable[[str], None]
) -> dict[TopicPartition, int] | None:
    try:
        return read()
    except MalformedCheckpointError as error:
        on_damage(f"{error}; not used")
        return None
