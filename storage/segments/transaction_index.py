"""The index of aborted transactions of a segment, whose records a read_committed consumer must drop.

Owns the format of `.txnindex`: entries of 34 bytes, int16 version (0), then int64 producer id, first offset, last
offset (of the abort marker) and last stable offset after the marker. An entry is in the segment of the marker. The file
exists only if it has an entry. A lost file is rebuilt by replaying the log. Must not know open transactions.
"""

import struct
import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from storage.disk.files import Files
from storage.segments.mapped_index import CorruptIndexError

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_BLOCK: Final = 32

NO_FIRST_OFFSET: Final = 2**63
"""Above every offset."""

_last_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """`last_offset` is the offset of the marker; `last_stable_offset` is that of the log after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Entries:
    """Entries in the order of their markers, with the lowest first offset of each block of them on several levels.

        minima[1]    | lowest of 32 * 32 entries               | ...
        minima[0]    | lowest of 32 | lowest of 32 | ...       | ...
        all          | 32 entries   | 32 entries   | ...       | ...

    `minima[n]` has one number for each block of `_BLOCK ** (n + 1)` entries, so a search skips the blocks in which no
    transaction begins early enough. The appending thread lowers the minima before it adds the entry, so a search in
    another thread never skips an entry that it can see.
    """

    __slots__ = ("all", "minima")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self.all: list[AbortedTransaction] = []
        self.minima: list[list[int]] = [[]]
        for entry in entries:
            self.add(entry)

    def add(self, entry: AbortedTransaction) -> None:
        number, first_offset = len(self.all), entry.first_offset
        for minima in self.minima:
            number //= _BLOCK
            if number == len(minima):
                minima.append(first_offset)
            elif first_offset < minima[number]:
                minima[number] = first_offset
        top = self.minima[-1]
        if len(top) > _BLOCK:
            self.minima.append([min(top[start : start + _BLOCK]) for start in range(0, len(top), _BLOCK)])
        self.all.append(entry)

    @property
    def lowest_first_offset(self) -> int:
        return min(self.minima[-1], default=NO_FIRST_OFFSET)

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        first = bisect_left(self.all, start_offset, key=_last_offset)
        top = len(self.minima) - 1
        self._gather(top, range(len(self.minima[top])), first, end_offset, found)
        return found

    def _gather(self, level: int, blocks: range, first: int, end_offset: int, found: list[AbortedTransaction]) -> None:
        """Append to `found` the entries of `blocks`, from number `first` on, that begin below `end_offset`."""
        minima = self.minima[level]
        size = _BLOCK ** (level + 1)
        for block in blocks:
            if (block + 1) * size <= first or minima[block] >= end_offset:
                continue
            if level:
                children = range(block * _BLOCK, min((block + 1) * _BLOCK, len(self.minima[level - 1])))
                self._gather(level - 1, children, first, end_offset, found)
            else:
                entries = self.all[max(first, block * size) : (block + 1) * size]
                found.extend(entry for entry in entries if entry.first_offset < end_offset)


class TransactionIndex:
    """The entries of one segment in the order of their markers. They are few, so they stay in memory once read.

    The entries of a segment in service are in memory from the start, so a search never reads a file.

    If the appending thread meets a shortage after the marker is in the log, the entry stays in memory until the next
    append or sync writes it; no sync succeeds without it. Any thread may read and call `sync`.
    """

    __slots__ = ("_entries", "_files", "_writing", "_written_count", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._entries: _Entries | None = None
        self._written_count = 0  # the number of entries in the file, once they were read
        self._writing = threading.Lock()
        self.path = path

    def relocate(self, path: str) -> None:
        """Note that the file was renamed to `path`."""
        self.path = path

    def begin_empty(self) -> None:
        """Start without entries: no file exists, or its content does not belong to the segment."""
        self._entries, self._written_count = _Entries(), 0

    def entries(self) -> Sequence[AbortedTransaction]:
        """Return all entries. Raises OSError, and CorruptIndexError if an entry is incomplete or out of order."""
        return tuple(self._loaded().all)

    @property
    def lowest_first_offset(self) -> int:
        """The lowest offset of an aborted transaction, NO_FIRST_OFFSET without any. Raises CorruptIndexError."""
        return self._loaded().lowest_first_offset

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions with a record or marker from `start_offset` on and below `end_offset`.

        The cost grows with their number and the logarithm of the number of entries. Any thread. Raises
        CorruptIndexError.
        """
        return self._loaded().overlapping(start_offset, end_offset)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry. Raises CorruptIndexError, and OSError; a ShortageError delays only the write of the entry."""
        with self._writing:
            entries = self._loaded()
            if entries.all and entries.all[-1].last_offset >= aborted.last_offset:
                raise CorruptIndexError(f"{self.path}: {aborted} does not follow {entries.all[-1]}")
            entries.add(aborted)
            self._write_pending(entries)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose marker is at or above `offset`."""
        with self._writing:
            entries = self._loaded().all
            kept = bisect_left(entries, offset, key=_last_offset)
            if kept < self._written_count:
                file = self._files.open(self.path)
                try:
                    self._files.truncate(file, kept * _ENTRY.size)
                finally:
                    file.close()
                self._written_count = kept
            if kept < len(entries):
                self._entries = _Entries(entries[:kept])

    def reset(self) -> None:
        """Remove all entries and the file, before a rebuild."""
        self._files.unlink_if_exists(self.path)
        self.begin_empty()

    def release(self) -> None:
        """Release the entries in memory, if all are in the file; the next use reads them again."""
        with self._writing:
            if self._entries is not None and self._written_count == len(self._entries.all):
                self._entries = None

    def sync(self) -> None:
        with self._writing:
            if self._entries is not None:
                self._write_pending(self._entries)
        self._files.sync_path(self.path)

    def _write_pending(self, entries: _Entries) -> None:
        count = self._written_count
        if count == len(entries.all):
            return
        file = self._files.open(self.path, create=True)
        try:
            if not count:
                self._files.truncate(file, 0)
            packed = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries.all[count:])
            self._files.write_all(file, packed, count * _ENTRY.size)
        finally:
            file.close()
        self._written_count = len(entries.all)

    def _loaded(self) -> _Entries:
        if self._entries is None:
            entries = self._load()
            self._entries, self._written_count = entries, len(entries.all)
        return self._entries

    def _load(self) -> _Entries:
        try:
            content = self._files.read_whole(self.path)
        except FileNotFoundError:
            return _Entries()
        return _Entries(parse(content, self.path))


def parse(content: bytes, path: str) -> tuple[AbortedTransaction, ...]:
    """Return the entries in `content`. Raises CorruptIndexError, whose message contains `path`."""
    if len(content) % _ENTRY.size:
        raise CorruptIndexError(f"{path} has {len(content)} bytes, expected a multiple of {_ENTRY.size}")
    entries = []
    last_offset = -1
    for version, *fields in _ENTRY.iter_unpack(content):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or not last_offset < entry.last_offset or entry.first_offset > entry.last_offset:
            raise CorruptIndexError(f"{path}: version {version} {entry} after offset {last_offset}")
        last_offset = entry.last_offset
        entries.append(entry)
    return tuple(entries)
