"""Removes the files of logs that are no longer in service, after a delay in which readers can finish.

Owns what is still to be removed, and which names it still uses. Must not know why a log is removed.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from base.topic_partition import TopicPartition
from protocol.errors import KafkaError
from storage.directories.log_directories import LogDirectories
from storage.directories.log_directory import LogDirectory
from storage.disk.files import ShortageError
from storage.disk.names import DirectoryState
from storage.log.log import Log
from storage.manager.log_table import LogTable

_logger = logging.getLogger(__name__)


class _ToRemove(NamedTuple):
    """A partition directory to be removed when it is due. Until then readers may still use `log`."""

    due_ms: int
    directory: LogDirectory
    path: str
    log: Log | None


class Removals:
    """Logs to be removed. Belongs to the thread that owns the logs, except for `remove_due`."""

    def __init__(
        self,
        table: LogTable,
        directories: LogDirectories,
        marked_name: Callable[[TopicPartition, DirectoryState], str],
    ) -> None:
        """`marked_name` returns a unique name for the directory of a log in a state."""
        self._table = table
        self._directories = directories
        self._marked_name = marked_name
        self._to_remove: list[_ToRemove] = []
        self._leaving: set[TopicPartition] = set()  # logs whose directory still has its name

    def is_leaving(self, name: TopicPartition) -> bool:
        """Return whether the directory of a removed log still uses the name."""
        return name in self._leaving

    def remove(self, log: Log, directory: LogDirectory, now_ms: int, state: DirectoryState) -> None:
        """Remove the files of a log that the table no longer has, or keep them as `-stray`.

        While a write of the log is pending, its files stay, and so does its name. Raises KafkaError:
        KAFKA_STORAGE_ERROR.
        """
        if log.planned.is_being_stored:
            log.is_offline = True  # stops further writes
            self._leaving.add(log.name)
            log.planned.between_writes(lambda: self._remove_files_later(log, directory, now_ms, state))
        else:
            self._remove_files(log, directory, now_ms, state)

    def _remove_files_later(self, log: Log, directory: LogDirectory, now_ms: int, state: DirectoryState) -> None:
        with contextlib.suppress(KafkaError):  # reported, and no request waits for it
            self._remove_files(log, directory, now_ms, state)

    def _remove_files(self, log: Log, directory: LogDirectory, now_ms: int, state: DirectoryState) -> None:
        self._leaving.discard(log.name)
        try:
            log.retire()
            path = directory.rename_partition_directory(str(log.directory), self._marked_name(log.name, state))
        except OSError as error:
            if isinstance(error, ShortageError):
                # The directory still has its name, which new logs need.
                if state is DirectoryState.STRAY:
                    self._table.add(log, directory)  # offline until the next start
                else:
                    self.later(directory, str(log.directory), due_ms=now_ms)
            raise self._directories.storage_error(directory, error) from error
        if state is DirectoryState.STRAY:
            _logger.warning(
                "%s, topic id %s, is kept as %s: a new topic has this name", log.directory, log.topic_id, path
            )
        else:
            self.later(directory, path, due_ms=now_ms + log.config.file_delete_delay_ms)

    def later(self, directory: LogDirectory, path: str, *, due_ms: int, log: Log | None = None) -> None:
        """Remove a partition directory with the first `remove_due` from `due_ms` on. Readers may still use `log`."""
        self._to_remove.append(_ToRemove(due_ms, directory, path, log))

    def remove_due(self, now_ms: int) -> int:
        """Remove the directories whose delay is over; return how many. Waits for the disk."""
        count = 0
        due = [item for item in self._to_remove if item.due_ms <= now_ms]
        for item in due:
            if item.log is not None:
                item.log.take_offline()
            try:
                if not item.directory.is_offline:
                    item.directory.remove_partition_directory(item.path)
                    count += 1
            except OSError as error:
                self._directories.fail(item.directory, error)
                if isinstance(error, ShortageError):
                    continue  # still due
            self._to_remove.remove(item)
        return count
