"""The part that the offset index and the time index share: fixed-size entries, sorted, in a memory-mapped file.

Owns one file's life: sparse and preallocated while its segment is active, cut to its entries once the segment is
sealed. Must not know what an entry means. An index is derived data: it has no checksum, and any doubt about it is
answered by rebuilding it from the log.

Invariants:
- Entry `n` is complete in the map before `count` grows past it, and entries below `count` never change until
  `truncate` or `reset` lowers it. Lookups take the map and the count once, so a reader in another thread sees a
  consistent index.
- A file is never made shorter than its entries while a map of it may be read: touching a page behind the end of a file
  kills the process. For the same reason disk blocks are allocated before a page is written: on a full disk the
  allocation fails, a write into a hole would kill.
- No file and no map exist before the first entry is written: most partitions are idle, and 50 of them start at once.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import ClassVar, Final

from storage.files import Files, OpenFile

_ALLOCATION_STEP: Final = 4096


class CorruptIndexError(Exception):
    """The content of an index cannot be right. Carries the path and the reason; the cure is a rebuild."""


class MappedIndex:
    """Entries of one segment's index, oldest first."""

    ENTRY: ClassVar[struct.Struct]

    __slots__ = ("_allocated", "_files", "_map", "_size_max", "base_offset", "count", "path")

    def __init__(self, files: Files, path: str, base_offset: int, *, count: int, size_max: int) -> None:
        """`count` is what the file at `path` holds now (0 for none); nothing is opened before it is needed."""
        self._files = files
        self._map: mmap.mmap | None = None
        self._size_max = size_max - size_max % self.ENTRY.size
        self._allocated = 0
        self.path = path
        self.base_offset = base_offset
        self.count = count

    @property
    def is_full(self) -> bool:
        return self.count >= self._size_max // self.ENTRY.size

    @property
    def size(self) -> int:
        """Bytes that the entries take."""
        return self.count * self.ENTRY.size

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries; the file keeps its length, see the invariants."""
        self.count = min(self.count, count)

    def reset(self) -> None:
        """Forgets every entry and the file, before a rebuild."""
        self.count = 0
        self._map = None
        self._allocated = 0
        self._files.unlink_if_there(self.path)

    def resize(self, size_max: int) -> None:
        """A new limit for an active index. Entries beyond it stay."""
        self._size_max = max(size_max - size_max % self.ENTRY.size, self.size)
        self._map = None

    def seal(self) -> None:
        """Cuts the file to its entries: the segment is no longer active, or the log closes. Creates it when missing."""
        self._map = None
        self._allocated = 0
        file = self._files.open(self.path, create=True)
        try:
            self._files.truncate(file, self.size)
        finally:
            file.close()

    def release(self) -> None:
        """Gives the map back; the next use maps again."""
        self._map = None

    def sync(self) -> None:
        self._files.sync_path(self.path)

    def _write(self, *entry: int) -> None:
        position = self.size
        if self._map is None or position + self.ENTRY.size > self._allocated:
            self._make_room(position)
        assert self._map is not None
        self.ENTRY.pack_into(self._map, position, *entry)
        self.count += 1

    def _make_room(self, position: int) -> None:
        file = self._files.open(self.path, create=True)
        try:
            size_wanted = max(self._size_max, position + self.ENTRY.size)
            if self._files.size(file) < size_wanted:
                self._files.truncate(file, size_wanted)
                self._map = None
            start = position - position % _ALLOCATION_STEP
            end = min(start + 2 * _ALLOCATION_STEP, size_wanted)
            self._files.allocate(file, start, end - start)
            if self._map is None or len(self._map) < size_wanted:
                self._map = self._files.map(file, size_wanted)
            self._allocated = end
        finally:
            file.close()

    def _entries(self) -> tuple[mmap.mmap | bytes, int]:
        """The bytes of the entries and how many there are, as one snapshot."""
        count = self.count
        mapped = self._map
        if mapped is None:
            if count == 0:
                return b"", 0
            mapped = self._map = self._open_map(count)
        return mapped, count

    def _open_map(self, count: int) -> mmap.mmap:
        file = self._files.open(self.path)
        try:
            return self._map_entries(file, count)
        finally:
            file.close()

    def _map_entries(self, file: OpenFile, count: int) -> mmap.mmap:
        size = self._files.size(file)
        if size < count * self.ENTRY.size:
            raise CorruptIndexError(f"{self.path} has {size} bytes, expected at least {count * self.ENTRY.size}")
        return self._files.map(file, size)

    def _iterate(self) -> Iterator[tuple[int, ...]]:
        entries, count = self._entries()
        for number in range(count):
            yield self.ENTRY.unpack_from(entries, number * self.ENTRY.size)
