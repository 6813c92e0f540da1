"""The index of aborted transactions of a segment: what a read_committed consumer must drop.

Owns the format of `.txnindex`: entries of 34 bytes, int16 version (0), then int64 producer id, first offset, last
offset (of the abort marker) and last stable offset at that moment. An entry stands in the segment that holds the
marker. The file exists only where there is an entry. Rebuilt by replaying the log. Must not know transactions that are
still open.
"""

import struct
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.files import Files
from storage.mapped_index import CorruptIndexError

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """`last_stable_offset`: where the last stable offset stood once the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Entries of one segment in the order of their markers. They are few, so they are kept in memory once read.

    The thread that appends may meet a shortage when the marker is in the log already. The entry then waits in memory
    for the next append or sync, and no sync succeeds without it. Reading and `sync` are for any thread.
    """

    __slots__ = ("_entries", "_files", "_unwritten", "_writing", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._entries: tuple[AbortedTransaction, ...] | None = None  # those in the file
        self._unwritten: tuple[AbortedTransaction, ...] = ()
        self._writing = threading.Lock()
        self.path = path

    def entries(self) -> Sequence[AbortedTransaction]:
        """Raises CorruptIndexError when the file is not made of whole entries in order, OSError."""
        # In this order: what a sync in another thread moves into the file is found in one of the two, or in both.
        unwritten = self._unwritten
        written = self._written()
        if not unwritten:
            return written
        return (*written, *(entry for entry in unwritten if entry not in written))

    def append(self, aborted: AbortedTransaction) -> None:
        """Raises OSError; after a ShortageError the entry counts all the same. Raises CorruptIndexError."""
        with self._writing:
            self._unwritten = (*self._unwritten, aborted)
            self._write_waiting()

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose marker is at or above `offset`."""
        with self._writing:
            self._unwritten = tuple(entry for entry in self._unwritten if entry.last_offset < offset)
            written = self._written()
            kept = tuple(entry for entry in written if entry.last_offset < offset)
            if kept == written:
                return
            file = self._files.open(self.path)
            try:
                self._files.truncate(file, len(kept) * _ENTRY.size)
            finally:
                file.close()
            self._entries = kept

    def reset(self) -> None:
        """Forgets every entry and the file, before a rebuild."""
        self._files.unlink_if_there(self.path)
        self._entries = self._unwritten = ()

    def release(self) -> None:
        """Forgets what the file holds; it is read again when needed."""
        self._entries = None

    def sync(self) -> None:
        with self._writing:
            self._write_waiting()
        self._files.sync_path(self.path)

    def _write_waiting(self) -> None:
        if not self._unwritten:
            return
        written, unwritten = self._written(), self._unwritten
        if written and written[-1].last_offset >= unwritten[0].last_offset:
            self._unwritten = ()
            raise CorruptIndexError(f"{self.path}: {unwritten[0]} does not follow {written[-1]}")
        file = self._files.open(self.path, create=True)
        try:
            packed = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in unwritten)
            self._files.write_all(file, packed, len(written) * _ENTRY.size)
        finally:
            file.close()
        self._entries = (*written, *unwritten)
        self._unwritten = ()

    def _written(self) -> tuple[AbortedTransaction, ...]:
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> tuple[AbortedTransaction, ...]:
        try:
            content = self._files.read_whole(self.path)
        except FileNotFoundError:
            return ()
        return parse(content, self.path)


def parse(content: bytes, path: str) -> tuple[AbortedTransaction, ...]:
    """Raises CorruptIndexError; `path` is for its message."""
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
