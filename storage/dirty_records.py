"""What the first walk of a pass finds out about each record of the dirty part, for the second walk to act upon.

Owns the offset map and a byte for each record: whether a newer one of its key is there, and whether it is a tombstone.
The second walk meets the same records in the same order, so it opens only those batches that lose some, and looks up
keys only where a record is older than the dirty part. Must not know batches, offsets or files.

A record's number is its place among all records of the dirty part's data batches, counted from 0.

Invariants: memory is that of the map and a sixth of it, of which only the pages in use are resident; a record that was
not mapped counts as live.
"""

import mmap
from collections.abc import Sequence
from typing import Final

from storage.offset_map import ENTRY_SIZE, MEMORY_MAX, OffsetMap

LIVE: Final = 0
DEAD: Final = 1  # a newer record of its key is mapped, or it has no key
TOMBSTONE: Final = 2  # live, without a value

_RECORDS_PER_SLOT: Final = 4


class DirtyRecords:
    """`mapped` is the number of the first record that is not mapped."""

    __slots__ = ("_capacity", "_states", "mapped", "offsets", "without_key")

    def __init__(self, memory: int, load_factor: float, count_max: int = MEMORY_MAX) -> None:
        """There are at most `count_max` records: no more memory is taken than they need."""
        self.offsets = OffsetMap(memory, load_factor, count_max)
        self._capacity = max(min(min(memory, MEMORY_MAX) // ENTRY_SIZE * _RECORDS_PER_SLOT, count_max), 1)
        self._states = mmap.mmap(-1, self._capacity)
        self.mapped = 0
        self.without_key = 0

    def skip(self, count: int) -> None:
        """The next records are of no use to anybody."""
        self.mapped += count

    def take_in(self, keys: Sequence[bytes | None], tombstones: Sequence[int]) -> int:
        """Maps the next records; returns for how many there was room. `tombstones` are places in `keys`."""
        first, states = self.mapped, self._states
        keys = keys[: max(self._capacity - first, 0)]
        for place in tombstones:
            if place < len(keys):
                states[first + place] = TOMBSTONE
        named: Sequence[bytes] = keys  # type: ignore[assignment]
        numbers: Sequence[int] = range(first, first + len(keys))
        if None in keys:
            numbers = [number for number, key in zip(numbers, keys, strict=True) if key is not None]
            named = [key for key in keys if key is not None]
        superseded: list[int] = []
        mapped = self.offsets.put_all(named, numbers, superseded)
        for number in superseded:
            states[number] = DEAD
        taken = len(keys) if mapped == len(named) else numbers[mapped] - first
        states[first + taken : first + len(keys)] = bytes(len(keys) - taken)
        if len(named) != len(keys):
            self._drop_without_key(keys[:taken])
        self.mapped = first + taken
        return taken

    def states_of(self, first: int, count: int) -> bytes:
        """Of records that were taken in, by their numbers."""
        return self._states[first : first + count].ljust(count, b"\0")

    def looked_up(self, keys: Sequence[bytes | None], tombstones: Sequence[int], first: int | None = None) -> bytes:
        """The states of records that are older than the dirty part, or, with the number `first` on, reach into it."""
        newest = self.offsets.newest([key or b"" for key in keys])
        if first is None:
            states = bytearray([number >= 0 for number in newest])
            mapped = len(keys)
        else:
            states = bytearray([number >= 0 and number > own for own, number in enumerate(newest, first)])
            mapped = max(self.mapped - first, 0)
        for place in tombstones:
            if place < mapped and states[place] == LIVE:
                states[place] = TOMBSTONE
        for place, key in enumerate(keys[:mapped] if None in keys else ()):
            if key is None:
                states[place] = DEAD
                self.without_key += 1
        return bytes(states)

    def _drop_without_key(self, keys: Sequence[bytes | None]) -> None:
        for number, key in enumerate(keys, self.mapped):
            if key is None:
                self._states[number] = DEAD
                self.without_key += 1
