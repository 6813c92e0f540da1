"""The state of each record of the dirty part: the first walk of a pass records it, the second walk reads it.

Owns the offset map and a byte for each record: whether a newer record of its key exists, and whether it is a tombstone.
The second walk meets the same records in the same order, so it parses only batches that lose records, and looks up keys
only of records that are older than the dirty part. Must not know batches, offsets or files.

A record's number is its place among all records of the dirty part's data batches, counted from 0:

    number    0                        mapped                   capacity
    _states   | one byte for a record  | 0 = LIVE               |

Invariants:
- The states take a sixth of the memory of the map. Of both, only the pages in use are resident.
- A record that was not mapped counts as live.
"""

import mmap
from collections.abc import Sequence
from typing import Final

from storage.cleaning.cleaning_job import MAP_MEMORY_MAX
from storage.cleaning.offset_map import ENTRY_SIZE, OffsetMap

LIVE: Final = 0
DEAD: Final = 1  # a newer record of its key is mapped, or it has no key
TOMBSTONE: Final = 2  # live, without a value

_RECORDS_PER_SLOT: Final = 4


class DirtyRecords:
    """The records of the dirty part of one log. `mapped` is the number of the first record that is not mapped."""

    __slots__ = ("_capacity", "_states", "mapped", "offsets", "without_key")

    def __init__(self, memory: int, load_factor: float, count_max: int = MAP_MEMORY_MAX) -> None:
        """`memory` is in bytes; less is allocated if `count_max` records, the most there can be, need less."""
        self.offsets = OffsetMap(memory, load_factor, count_max)
        self._capacity = max(min(min(memory, MAP_MEMORY_MAX) // ENTRY_SIZE * _RECORDS_PER_SLOT, count_max), 1)
        self._states = mmap.mmap(-1, self._capacity)
        self.mapped = 0
        self.without_key = 0

    def skip(self, count: int) -> None:
        """Count the next records, which the second walk removes for another reason than their keys."""
        self.mapped += count

    def add(self, keys: Sequence[bytes | None], tombstones: Sequence[int]) -> int:
        """Map the next records; return the number that fit. `tombstones` are places in `keys`."""
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
        added = len(keys) if mapped == len(named) else numbers[mapped] - first
        states[first + added : first + len(keys)] = bytes(len(keys) - added)
        if len(named) != len(keys):
            self._drop_without_key(keys[:added])
        self.mapped = first + added
        return added

    def states_of(self, first: int, count: int) -> bytes:
        """Return the states of `count` mapped records from the number `first` on."""
        return self._states[first : first + count].ljust(count, b"\0")

    def look_up(self, keys: Sequence[bytes | None], tombstones: Sequence[int], first: int | None = None) -> bytes:
        """Return the states of records by their keys.

        `first` is the number of the first of them; None if all are older than the dirty part.
        """
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
