"""The files of one segment by name: the log file with its three indexes, through renames and deletion.

Owns where the files are, and which of their names is in use. Must not know the batches in the log file, or who reads.

A name is the base offset with a suffix for each file. The additional suffix of a stage marks the files of a segment
that is not in service yet (`.cleaned`, `.swap`), or is no longer (`.deleted`).
"""

import contextlib
from collections.abc import Callable
from typing import TypeVar

from storage.disk import names
from storage.disk.files import Files, OpenFile
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.offset_index import OffsetIndex
from storage.segments.time_index import NO_TIMESTAMP, TimeIndex
from storage.segments.transaction_index import TransactionIndex

T = TypeVar("T")


class SegmentGoneError(Exception):
    """The log removed the files on purpose before a reader in another thread used them. The disk has not failed."""


class SegmentFiles:
    """The files of one segment. Nothing is opened or created here before it is used."""

    __slots__ = (
        "_base_offset",
        "_directory",
        "_files",
        "_is_removed",
        "_stage",
        "offset_index",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        stage: str,
        *,
        index_size_max: int,
        offset_index_size: int,
        time_index_size: int,
    ) -> None:
        """The sizes are the present sizes of the files in bytes."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._stage = stage
        self._is_removed = False
        self.offset_index = OffsetIndex(
            files,
            self._path(names.OFFSET_INDEX),
            base_offset,
            count=offset_index_size // OffsetIndex.ENTRY.size,
            size_max=index_size_max,
        )
        self.time_index = TimeIndex(
            files,
            self._path(names.TIME_INDEX),
            base_offset,
            count=time_index_size // TimeIndex.ENTRY.size,
            size_max=index_size_max,
        )
        self.transaction_index = TransactionIndex(files, self._path(names.TRANSACTION_INDEX))

    @property
    def log_path(self) -> str:
        return self._path(names.LOG)

    @property
    def modified_ms(self) -> int:
        """The modification time of the log file, also if it was deleted. Raises OSError, SegmentGoneError."""
        return self._of_log(self._files.modified_ms)

    def set_modified_ms(self, modified_ms: int) -> None:
        self._files.set_modified_ms(self.log_path, modified_ms)

    def create_log(self, preallocate_size: int) -> OpenFile:
        """Create the log file, empty or as a sparse file of `preallocate_size` bytes. Raises OSError."""
        try:
            file = self._files.open(self.log_path, create=True)
            if preallocate_size:
                self._files.truncate(file, preallocate_size)
        except OSError:
            # The next try may use another offset. An empty file between the log's offsets would end the log there.
            with contextlib.suppress(OSError):
                self._files.unlink_if_exists(self.log_path)
            raise
        return file

    def open_log(self) -> OpenFile:
        """Open the log file, by its `.deleted` name if it was deleted. Raises OSError, SegmentGoneError."""
        return self._of_log(self._files.open)

    def _of_log(self, use: Callable[[str], T]) -> T:
        """Return `use(path)` for the log file, by its `.deleted` name if it was deleted.

        Raises OSError, SegmentGoneError.
        """
        try:
            result = use(self.log_path)
        except FileNotFoundError:
            if not self._is_removed:
                raise
            return self._of_removed(use)
        if self._is_removed:
            # A cleaned segment may have replaced the file under this name, with batches at other positions.
            with contextlib.suppress(SegmentGoneError):
                return self._of_removed(use)
        return result

    def _of_removed(self, use: Callable[[str], T]) -> T:
        """Return `use(path)` for the `.deleted` name, for a reader that comes after `mark_deleted`."""
        try:
            return use(self.log_path + names.DELETED)
        except FileNotFoundError:
            raise SegmentGoneError(self.log_path) from None

    # The indexes

    def create_indexes(self) -> None:
        """Create the files of both indexes if they are missing. Any thread.

        Every segment below the recovery point must have them: Kafka rebuilds the indexes of segments without files.
        """
        self.offset_index.create()
        self.time_index.create()

    def sync_indexes(self) -> None:
        """Sync the indexes, but not their names. Any thread."""
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def truncate_indexes(self, offset: int) -> None:
        """Remove the entries of `offset` and all after it."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)

    def reset_indexes(self) -> None:
        """Empty all three indexes, before a rebuild."""
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()

    def preload_indexes(self) -> None:
        """Open the indexes, so that readers in other threads need not open files that are about to be renamed."""
        self.offset_index.last()
        self.time_index.last()
        self.transaction_index.entries()

    def release_indexes(self) -> None:
        """Close the files and the maps; a thread that uses one keeps it open until it is done."""
        self.offset_index.release()
        self.time_index.release()

    def last_indexed_timestamp(self) -> int:
        """Return the last timestamp of the time index; NO_TIMESTAMP if the index is damaged."""
        try:
            self.time_index.check()
            return self.time_index.last().timestamp_ms
        except CorruptIndexError:
            return NO_TIMESTAMP

    # Names

    def restage(self, stage: str) -> None:
        """Rename every file from its present suffix to `stage`. Open files stay open."""
        paths = [self._path(suffix) for suffix in names.SEGMENT_SUFFIXES]
        self._stage = stage
        for suffix, path in zip(names.SEGMENT_SUFFIXES, paths, strict=True):
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, self._path(suffix))
        self._name_indexes()

    def relocate(self, directory: str) -> None:
        """Note that the directory was renamed to `directory`. Open files stay open."""
        self._directory = directory
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.offset_index.relocate(self._path(names.OFFSET_INDEX))
        self.time_index.relocate(self._path(names.TIME_INDEX))
        self.transaction_index.relocate(self._path(names.TRANSACTION_INDEX))

    def mark_deleted(self) -> list[str]:
        """Rename every file to `*.deleted`; return the paths to unlink later. Readers can continue."""
        self._is_removed = True
        marked = []
        for suffix in names.SEGMENT_SUFFIXES:
            path = self._path(suffix)
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, path + names.DELETED)
                marked.append(path + names.DELETED)
        return marked

    def remove(self) -> None:
        """Unlink every file now. Only if there are no readers."""
        for path in self.mark_deleted():
            self._files.unlink_if_exists(path)

    def detach(self) -> None:
        """Rename the log file so that it no longer belongs to the log; unlink the indexes, which are derived."""
        for suffix in names.INDEX_SUFFIXES:
            self._files.unlink_if_exists(self._path(suffix))
        self._files.rename(self.log_path, self.log_path + names.DETACHED)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{names.segment_file(self._base_offset, suffix)}{self._stage}"
