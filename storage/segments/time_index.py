"""The time index of a segment: the offset at which the search for a timestamp begins.

Owns the format of `.timeindex`: entries of 12 bytes, int64 timestamp, int32 offset relative to the segment's base. An
entry means that no record of the segment up to its offset has a later timestamp. Entries are written together with
those of the offset index, and once more when the segment is sealed or closed, but only if the greatest timestamp has
grown. Must not know records: the caller of a lookup parses them.
"""

import mmap
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, NamedTuple

from storage.segments.mapped_index import CorruptIndexError, MappedIndex

NO_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1

_TIMESTAMP = struct.Struct(">q")


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int


class TimeIndex(MappedIndex):
    """The entries of one `.timeindex`. Timestamps are strictly increasing, offsets never decrease."""

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")

    __slots__ = ()

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        last = self.last()
        if timestamp_ms > last.timestamp_ms and (offset >= last.offset or self.count == 0):
            self._write(timestamp_ms, offset - self.base_offset)

    def extend_if_later(self, entries: Iterable[TimestampOffset]) -> None:
        """Call `append_if_later` for several entries in order, with one write."""
        last_timestamp_ms, last_offset = self.last()
        if self.count == 0:
            last_offset = NO_OFFSET
        packed = []
        for timestamp_ms, offset in entries:
            if timestamp_ms > last_timestamp_ms and offset >= last_offset:
                packed.append(self.ENTRY.pack(timestamp_ms, offset - self.base_offset))
                last_timestamp_ms, last_offset = timestamp_ms, offset
        if packed:
            self._write_packed(b"".join(packed))

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the greatest entry at or below the timestamp, or (NO_TIMESTAMP, base offset)."""
        entries, count = self._entries()
        read = _TIMESTAMP.unpack_from
        slot = bisect_right(range(count), timestamp_ms, key=lambda number: read(entries, number * 12)[0])
        return self._entry(entries, slot - 1)

    def last(self) -> TimestampOffset:
        """Return the entry with the greatest timestamp, or (NO_TIMESTAMP, base offset)."""
        entries, count = self._entries()
        return self._entry(entries, count - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        entries, count = self._entries()
        self.truncate(bisect_left(range(count), offset, key=lambda number: self._entry(entries, number).offset))

    def check(self) -> None:
        """Raise CorruptIndexError if the last entry contradicts the first or the base offset."""
        if self.count == 0:
            return
        entries, _ = self._entries()
        first, last = self._entry(entries, 0), self.last()
        is_behind_first = self.count > 1 and last.timestamp_ms <= first.timestamp_ms
        if is_behind_first or last.offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: the last entry is offset {last.offset} at {last.timestamp_ms}, expected an offset "
                f"from {self.base_offset} on and a timestamp above {first.timestamp_ms}"
            )

    def _entry(self, entries: mmap.mmap | bytes, number: int) -> TimestampOffset:
        if number < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp_ms, relative_offset = self.ENTRY.unpack_from(entries, number * 12)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def __iter__(self) -> Iterator[TimestampOffset]:
        for timestamp_ms, relative_offset in self._iterate():
            yield TimestampOffset(timestamp_ms, self.base_offset + relative_offset)
