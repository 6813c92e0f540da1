"""The offset index of a segment: the position in the log file at which the scan for an offset begins.

Owns the format of `.index`: entries of 8 bytes, int32 offset relative to the segment's base, int32 file position. One
entry for about `index.interval.bytes` of log. As in Kafka, an entry contains the last offset of an append and the
position where that append starts. So the position of the greatest entry at or below an offset is never behind the batch
of that offset. Must not know the content of the log file.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from storage.segments.mapped_index import CorruptIndexError, MappedIndex

_RELATIVE_OFFSET = struct.Struct(">i")


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(MappedIndex):
    """The entries of one `.index`. Offsets and positions are both strictly increasing."""

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")

    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        self._write(offset - self.base_offset, position)

    def extend(self, entries: Sequence[OffsetPosition]) -> None:
        """Append several entries with one write."""
        base_offset, pack = self.base_offset, self.ENTRY.pack
        self._write_packed(b"".join([pack(offset - base_offset, position) for offset, position in entries]))

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the greatest entry at or below `offset`, or the beginning of the segment."""
        entries, count = self._entries()
        read = _RELATIVE_OFFSET.unpack_from
        slot = bisect_right(range(count), offset - self.base_offset, key=lambda number: read(entries, number * 8)[0])
        if slot == 0:
            return OffsetPosition(self.base_offset, 0)
        relative_offset, position = self.ENTRY.unpack_from(entries, (slot - 1) * 8)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def lookup_position(self, position: int) -> OffsetPosition:
        """Return the greatest entry at or below a position in the log file, or the beginning of the segment."""
        entries, count = self._entries()
        read = self.ENTRY.unpack_from
        slot = bisect_right(range(count), position, key=lambda number: read(entries, number * 8)[1])
        if slot == 0:
            return OffsetPosition(self.base_offset, 0)
        relative_offset, found = read(entries, (slot - 1) * 8)
        return OffsetPosition(self.base_offset + relative_offset, found)

    def last(self) -> OffsetPosition:
        """Return the last entry, or the beginning of the segment."""
        entries, count = self._entries()
        if count == 0:
            return OffsetPosition(self.base_offset, 0)
        relative_offset, position = self.ENTRY.unpack_from(entries, (count - 1) * 8)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        entries, count = self._entries()
        wanted, read = offset - self.base_offset, _RELATIVE_OFFSET.unpack_from
        self.truncate(bisect_left(range(count), wanted, key=lambda number: read(entries, number * 8)[0]))

    def check(self, log_size: int) -> None:
        """Raise CorruptIndexError if the last entry cannot belong to a log file of `log_size` bytes.

        No entry is for the base offset, because the first append of a segment gets none. This distinguishes entries
        from the zeros of a preallocated file.
        """
        if self.count == 0:
            return
        last = self.last()
        if last.offset <= self.base_offset or not 0 <= last.position < log_size:
            raise CorruptIndexError(
                f"{self.path}: the last entry is offset {last.offset} at position {last.position}, "
                f"expected an offset above {self.base_offset} and a position below {log_size}"
            )

    def __iter__(self) -> Iterator[OffsetPosition]:
        for relative_offset, position in self._iterate():
            yield OffsetPosition(self.base_offset + relative_offset, position)
