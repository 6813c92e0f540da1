"""One log directory: its lock, the broker it belongs to, the marker of a clean stop, and the checkpoints of its logs.

Owns the files in the root of the directory. Must not know what is in a partition directory, nor the other directories.

Invariants:
- Nothing is written before the lock is held.
- The marker of a clean stop is removed before the first log is opened, and written only after the last one was closed
  without an error.
- After an unclean stop the marker of this writer exists if each segment above the recovery points begins where the last
  batch of the one before ended. Segments of Apache Kafka's followers begin at their first batch.
"""

import threading
from collections.abc import Callable, Mapping
from posixpath import abspath, dirname
from typing import Final

from base.topic_partition import TopicPartition
from storage.disk import checkpoints, meta_properties, names
from storage.disk.checkpoints import MalformedCheckpointError
from storage.disk.files import Files, OpenFile
from storage.disk.meta_properties import MetaProperties
from storage.disk.names import PartitionDirectoryName
from storage.log.log import Log

_CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'


class DirectoryLockedError(Exception):
    """Another process, or another broker in this process, uses the directory. The message contains its path."""


class ForeignDirectoryError(Exception):
    """A subdirectory is not that of a partition. The message contains its path."""


class _LogCheckpoint:
    """A file with one offset for each log of a directory, which a start after a crash reads. Any thread.

    The file identifies a log only by its name. If it still has an entry of a deleted log, a new log of the same name
    would get that log's offset after a crash: a recovery point above what was synced, or a log start below which all
    segments are deleted. So a name is free for a new log only once the file has no entry for it.
    """

    def __init__(self, files: Files, path: str, offset_of: Callable[[Log], int | None]) -> None:
        self._files = files
        self._path = path
        self._offset_of = offset_of
        self._writing = threading.Lock()
        # Names whose entry on disk may be stale: not yet rewritten, or absent from the checkpoint being written now.
        self._outdated: set[TopicPartition] = set()
        self._being_removed: set[TopicPartition] = set()

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets in the file. Raises OSError, MalformedCheckpointError."""
        offsets = checkpoints.read_offsets(self._files, self._path)
        self._outdated.update(offsets)  # the next write removes the entries of logs that no longer exist
        return offsets

    def read_whole(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int]:
        """As `read`, but lines that cannot be read are reported to `on_damage` and left out."""
        offsets = checkpoints.read_whole_offsets(self._files, self._path, on_damage)
        self._outdated.update(offsets)
        return offsets

    def write(self, logs: dict[TopicPartition, Log]) -> None:
        """Write the offsets of `logs`, to which another thread may add some. Waits for the disk. Raises OSError."""
        with self._writing:
            # The sets are exchanged before the logs are read, so that a log that is deleted afterwards is in the new
            # set. The order of the two assignments keeps every name in at least one of the sets.
            self._being_removed = self._outdated
            self._outdated = set()
            # Not `list(logs.items())`: each of its tuples may start a garbage collection, which calls Python callbacks
            # (the metrics have one). During a callback another thread may add a log.
            present = logs.copy()
            offsets = {name: offset for name, log in present.items() if (offset := self._offset_of(log)) is not None}
            try:
                checkpoints.write_offsets(self._files, self._path, offsets)
            except OSError:
                self._outdated.update(self._being_removed)  # the file may be unchanged
                raise
            finally:
                self._being_removed = set()

    def forget(self, name: TopicPartition) -> None:
        """Note that the log was removed from the directory. Call after the removal."""
        self._outdated.add(name)

    def free_all(self, logs: dict[TopicPartition, Log]) -> None:
        """Write the file if it may have an entry of a log that was removed."""
        if self._outdated:
            self.write(logs)

    def free(self, name: TopicPartition, logs: dict[TopicPartition, Log]) -> None:
        """Write the file if it may have an entry of a removed log of this name."""
        if name in self._outdated or name in self._being_removed:
            self.write(logs)


def _start_beyond_file_name(log: Log) -> int | None:
    """Return the start offset of a log, or None if it equals the offset in the name of the first file."""
    return log.log_start_offset if log.log_start_offset > log.disposal.first_file_offset else None


class LogDirectory:
    """One log directory and its own files. Only the log manager changes `logs`."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._lock: OpenFile | None = None
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.is_offline = False
        self.is_claimed = False
        """Whether the directory has a meta.properties, which names its broker; known after `read_meta`."""
        self._recovery_points = self._checkpoint(
            names.RECOVERY_POINT_CHECKPOINT, lambda log: log.durability.recovery_point
        )
        self._log_starts = self._checkpoint(names.LOG_START_CHECKPOINT, _start_beyond_file_name)
        self._high_watermarks = self._checkpoint(names.HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark)
        self._checkpoints = (self._recovery_points, self._log_starts, self._high_watermarks)
        self._cleaner_offsets: Mapping[TopicPartition, int] = {}
        self._writing_cleaner_offsets = threading.Lock()

    def _checkpoint(self, name: str, offset_of: Callable[[Log], int | None]) -> _LogCheckpoint:
        return _LogCheckpoint(self._files, self._path(name), offset_of)

    def open(self) -> None:
        """Lock the directory, which is made durably if it is missing. Raises OSError, DirectoryLockedError."""
        if not self._files.exists(self.path):
            self._make()
        lock = self._files.lock(self._path(names.LOCK))
        if lock is None:
            raise DirectoryLockedError(
                f"{self._path(names.LOCK)} is held by another broker. Stop that broker, or give this one "
                f"a log directory other than {self.path}"
            )
        self._lock = lock

    @property
    def absolute_path(self) -> str:
        return abspath(self.path)

    def unlock(self) -> None:
        self._lock = None

    def _make(self) -> None:
        """Make the directory and sync each parent with a new entry, so that a power cut does not remove the logs."""
        made = [self.absolute_path]
        while not self._files.exists(parent := dirname(made[-1])):
            made.append(parent)
        self._files.make_directory(self.path)
        for path in made:
            self._files.sync_directory(dirname(path))

    def read_meta(self) -> MetaProperties | None:
        """Return the meta.properties, None in a new directory. Raises OSError, WrongDirectoryError."""
        meta = meta_properties.read(self._files, self.meta_path)
        self.is_claimed = meta is not None
        return meta

    def write_meta(self, meta: MetaProperties) -> None:
        meta_properties.write(self._files, self.meta_path, meta)
        self.is_claimed = True

    @property
    def meta_path(self) -> str:
        return self._path(names.META_PROPERTIES)

    def remove_clean_marker(self) -> bool:
        """Remove the marker of a clean stop; return whether it existed.

        The removal is durable. Otherwise the marker could reappear after a power cut and spare batches that were
        appended since from recovery.
        """
        is_clean = self._files.unlink_if_exists(self._path(names.CLEAN_SHUTDOWN))
        if is_clean:
            self._files.replace(self._path(names.WRITTEN), b"", durable=False)
            self._files.sync_directory(self.path)
        return is_clean

    def has_writer_marker(self) -> bool:
        """Return whether no other program has written since the last clean stop, see the invariants."""
        return self._files.exists(self._path(names.WRITTEN))

    def write_writer_marker(self) -> None:
        """Note that all gaps between segments are below the recovery points on the disk. Waits for the disk."""
        self._files.replace(self._path(names.WRITTEN), b"", durable=True)

    def write_clean_marker(self) -> None:
        """Write the marker of a clean stop, after which any program may write."""
        self._files.unlink_if_exists(self._path(names.WRITTEN))
        self._files.replace(self._path(names.CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT, durable=True)

    def unknown_files(self) -> list[str]:
        """Return the paths of the files that no broker uses. Raises OSError."""
        return [
            self._path(entry.name)
            for entry in self._files.list_directory(self.path)
            if not entry.is_directory and entry.name.removesuffix(names.TEMPORARY) not in names.ROOT_FILES
        ]

    def partition_directories(self) -> list[tuple[str, PartitionDirectoryName]]:
        """Return (path, parsed name) of each partition directory. Raises OSError, ForeignDirectoryError."""
        found = []
        for entry in self._files.list_directory(self.path):
            if not entry.is_directory or entry.name == names.KRAFT_METADATA:
                continue
            name = names.parse_partition_directory(entry.name)
            if name is None:
                raise ForeignDirectoryError(
                    f'Found directory {self._path(entry.name)}, expected only partitions of the form "<topic>-<number>"'
                )
            found.append((self._path(entry.name), name))
        return found

    def path_of(self, name: TopicPartition) -> str:
        return self._path(names.partition_directory(*name))

    # Checkpoints

    def forget(self, name: TopicPartition) -> None:
        """Remove a log from `logs` and, with their next write, from the checkpoints."""
        del self.logs[name]
        for checkpoint in self._checkpoints:
            checkpoint.forget(name)

    def free_name(self, name: TopicPartition) -> None:
        """Ensure that no checkpoint, but for the cleaner's, has an entry of a removed log of this name.

        Call before creating a new one.

        Waits for the disk if such a log was removed since the last write of the checkpoints. Raises OSError.
        """
        for checkpoint in self._checkpoints:
            checkpoint.free(name, self.logs)

    def free_names(self) -> None:
        """Free the names of all removed logs, so that `free_name` does not wait for the disk.

        Waits for the disk. Any thread. Raises OSError.
        """
        for checkpoint in self._checkpoints:
            checkpoint.free_all(self.logs)

    def read_recovery_points(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int] | None:
        """Return the recovery points, None without a usable file.

        In that case logs are scanned from their first segment, and gaps between segments are accepted.
        """
        if not self._files.exists(self._path(names.RECOVERY_POINT_CHECKPOINT)):
            return None
        return _read_or_none(self._recovery_points.read, on_damage)

    def read_log_starts(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int]:
        """Return the log starts that no file name contains, of the lines that can be read.

        The other logs start at their first segment, and deleted records may become readable again.
        """
        return _read_or_none(lambda: self._log_starts.read_whole(on_damage), on_damage) or {}

    def read_high_watermarks(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int]:
        """Return the high watermarks of the lines that can be read. Others rise from 0 with the in-sync replicas."""
        return _read_or_none(lambda: self._high_watermarks.read_whole(on_damage), on_damage) or {}

    def read_cleaner_offsets(self, on_damage: Callable[[str], None]) -> dict[TopicPartition, int] | None:
        """Return the first dirty offset of each compacted log, None without a usable file. Raises OSError.

        In that case cleaning begins at the log start.
        """
        path = self._path(names.CLEANER_CHECKPOINT)
        offsets = _read_or_none(lambda: checkpoints.read_offsets(self._files, path), on_damage)
        self._cleaner_offsets = offsets or {}
        return offsets

    @property
    def cleaner_offsets(self) -> Mapping[TopicPartition, int]:
        """What the cleaner's checkpoint holds, once it was read."""
        return self._cleaner_offsets

    def write_cleaner_offsets(self, offsets_of: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Write the first dirty offsets that `offsets_of` returns. Waits for the disk. Any thread. Raises OSError."""
        with self._writing_cleaner_offsets:
            self._write_cleaner_offsets(offsets_of())

    def free_cleaner_offset(self, name: TopicPartition) -> None:
        """Ensure that the cleaner's checkpoint has no entry of a removed log of this name, as `free_name` does.

        Records of a new one would count as cleaned, and tombstones among them be removed before what they delete.
        """
        with self._writing_cleaner_offsets:
            if name in self._cleaner_offsets:
                self._write_cleaner_offsets({it: at for it, at in self._cleaner_offsets.items() if it != name})

    def _write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._files, self._path(names.CLEANER_CHECKPOINT), offsets)
        self._cleaner_offsets = offsets

    def write_recovery_points(self) -> None:
        self._recovery_points.write(self.logs)

    def write_log_starts(self) -> None:
        """Write the start offsets that differ from the offset in the name of the log's first file."""
        self._log_starts.write(self.logs)

    def write_high_watermarks(self) -> None:
        self._high_watermarks.write(self.logs)

    def rename_partition_directory(self, path: str, name: str) -> str:
        """Rename a partition directory; return its new path."""
        renamed = self._path(name)
        self._files.rename(path, renamed)
        return renamed

    def sync(self) -> None:
        """Make the names of the partition directories durable."""
        self._files.sync_directory(self.path)

    def remove_partition_directory(self, path: str) -> None:
        """Remove a partition directory with all its content, also unknown files. It may be gone, in part or whole."""
        try:
            entries = self._files.list_directory(path)
        except FileNotFoundError:
            return
        for entry in entries:
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
