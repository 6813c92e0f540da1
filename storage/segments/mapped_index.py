"""The base of the offset index and the time index: sorted entries of fixed size in a memory-mapped file.

Owns the file: sparse and preallocated while its segment is active, truncated to its entries once the segment is sealed.
Must not know what an entry means. An index is derived data without a checksum; if it may be wrong, it is rebuilt from
the log.

Entries are read through a map, but written with a system call. The first write into a page of a new map waits for the
file system's journal: milliseconds on a busy disk, where a system call takes two microseconds. On a full disk such a
write kills the process with SIGBUS, where a system call fails. Both see the same page cache.

Invariants:
- Entry `n` is in the file before `count` grows past it, and entries below `count` never change until `truncate` or
  `reset` lowers it. A lookup reads the map and the count once, so a reader in another thread sees a consistent index.
- A file is never shorter than its entries while a map of it may be read: access to a page behind the end of a file
  also kills the process.
- No file and no map exist before the first entry is written or the log is synced: most partitions are idle, and 50 of
  them may be created at a time.
"""

import contextlib
import mmap
import struct
from collections.abc import Iterator
from typing import ClassVar

from storage.disk.files import Files, OpenFile


class CorruptIndexError(Exception):
    """The content of an index is wrong. The message contains its path and the reason; rebuild the index."""


class MappedIndex:
    """The entries of one segment's index, oldest first."""

    ENTRY: ClassVar[struct.Struct]

    __slots__ = ("_file", "_files", "_is_shortened", "_map", "_size_max", "base_offset", "count", "path")

    def __init__(self, files: Files, path: str, base_offset: int, *, count: int, size_max: int) -> None:
        """`count` is the number of entries in the file at `path`, 0 without a file. Opens nothing."""
        self._files = files
        self._file: OpenFile | None = None  # while entries are written
        self._map: mmap.mmap | None = None
        self._is_shortened = False  # `truncate` removed entries that are still in the file and in readers' maps
        self._size_max = size_max - size_max % self.ENTRY.size
        self.path = path
        self.base_offset = base_offset
        self.count = count

    @property
    def is_full(self) -> bool:
        return self.count >= self._size_max // self.ENTRY.size

    @property
    def size(self) -> int:
        """The size of the entries in bytes."""
        return self.count * self.ENTRY.size

    def relocate(self, path: str) -> None:
        """Note that the file was renamed to `path`. An open file stays open."""
        self.path = path

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries. The file keeps its length, see the invariants."""
        if count < self.count:
            self._is_shortened = True
            self.count = count

    def reset(self) -> None:
        """Remove all entries and the file, before a rebuild."""
        self.count = 0
        self._is_shortened = False
        self.release()
        self._files.unlink_if_exists(self.path)

    def seal(self) -> None:
        """Truncate the file to its entries, because the segment is sealed or the log closes. Creates a missing file."""
        if self._is_shortened:
            entries, _ = self._entries()
            self._files.replace(self.path, entries[: self.size], durable=False)  # existing maps keep the old file
            self._is_shortened = False
        else:
            file = self._file or self._files.open(self.path, create=True)
            self._files.truncate(file, self.size)
        self.release()

    def release(self) -> None:
        """Release the descriptor and the map; the next use opens the file again."""
        self._file = None
        self._map = None

    def sync(self) -> None:
        self._files.sync_path(self.path)

    def create(self) -> None:
        """Create an empty file if none exists. Any thread."""
        self._files.open(self.path, create=True).close()

    def _write(self, *entry: int) -> None:
        self._write_packed(self.ENTRY.pack(*entry))

    def _write_packed(self, entries: bytes) -> None:
        """Append one or more entries, each packed as `ENTRY`."""
        file = self._file or self._open_to_write()
        self._files.write_all(file, entries, self.size)
        self.count += len(entries) // self.ENTRY.size

    def _open_to_write(self) -> OpenFile:
        file = self._files.open(self.path, create=True)
        if self._files.size(file) < self._size_max:
            self._files.truncate(file, self._size_max)
            self._map = None
        self._file = file
        return file

    def _entries(self) -> tuple[mmap.mmap | bytes, int]:
        """Return the bytes and the number of the entries, as one snapshot."""
        count = self.count
        mapped = self._map
        if mapped is None or len(mapped) < count * self.ENTRY.size:
            if count == 0:
                return b"", 0
            try:
                mapped = self._map = self._open_map(count)
            except FileNotFoundError:
                # The file was deleted by hand, or with its segment during a read. Without entries every lookup begins
                # at the start of the segment, which is slow but correct; the next start rebuilds the file.
                self.count = 0
                return b"", 0
        return mapped, count

    def _open_map(self, count: int) -> mmap.mmap:
        file = self._file or self._files.open(self.path)
        while True:
            size = self._files.size(file)
            if size < count * self.ENTRY.size:
                raise CorruptIndexError(f"{self.path} has {size} bytes, expected at least {count * self.ENTRY.size}")
            # The map fails if the appending thread has just truncated the file.
            with contextlib.suppress(ValueError):
                return self._files.map(file, size)

    def _iterate(self) -> Iterator[tuple[int, ...]]:
        entries, count = self._entries()
        for number in range(count):
            yield self.ENTRY.unpack_from(entries, number * self.ENTRY.size)
