"""Key -> its newest record, in memory of a fixed size whatever the number and length of keys.

Owns the table only: open addressing over 24-byte entries, the 16-byte MD5 of a key and the number of its newest record,
counted from the first one that was put. Two keys with one MD5 would count as one key; Kafka takes the same risk. Must
not know logs.

Invariants: an entry never moves and is never removed; the memory is what was asked for, and of that only the pages in
use are resident.
"""

import hashlib
import mmap
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

try:  # twice as fast for short keys: OpenSSL's takes longer to set up than to compute
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    md5 = partial(hashlib.md5, usedforsecurity=False)

ENTRY_SIZE: Final = 24
MEMORY_MAX: Final = 2**31 - 1

_ENTRY: Final = struct.Struct(">16sQ")  # the number plus one: 0 marks a free slot


class OffsetMap:
    """`usable` keys fit in before it is full; more than the load factor's share would make probing slow."""

    __slots__ = ("_slots", "_table", "count", "probes", "usable")

    def __init__(self, memory: int, load_factor: float, keys_max: int = MEMORY_MAX) -> None:
        """`keys_max`: more will not be put; then twice as many slots are enough, and quicker to search than all."""
        self._slots = max(min(min(memory, MEMORY_MAX) // ENTRY_SIZE, 2 * keys_max), 2)
        self._table = mmap.mmap(-1, self._slots * ENTRY_SIZE)
        # One slot at least stays free, where the search for a key that is not there ends.
        self.usable = min(max(int(self._slots * load_factor), 1), self._slots - 1)
        self.count = 0
        self.probes = 0

    def put_all(self, keys: Sequence[bytes], numbers: Iterable[int], superseded: list[int]) -> int:
        """Notes the newest record of each key, as long as there is room; returns how many keys there was room for.

        Numbers must rise, from call to call too. `superseded` gets the numbers of those records that the keys had
        until now. One loop without calls: it runs for every record of a dirty log.
        """
        table, size, slots = self._table, self._slots * ENTRY_SIZE, self._slots
        unpack, pack, usable, supersede = _ENTRY.unpack_from, _ENTRY.pack_into, self.usable, superseded.append
        count, taken = self.count, 0
        digests = _digests(keys)
        try:
            for digest, first_slot, number in zip(digests, _first_slots(digests), numbers, strict=False):
                position = first_slot % slots * ENTRY_SIZE
                found, stored = unpack(table, position)
                while stored and found != digest:
                    self.probes += 1
                    position += ENTRY_SIZE
                    if position == size:
                        position = 0
                    found, stored = unpack(table, position)
                if stored:
                    supersede(stored - 1)
                elif count < usable:
                    count += 1
                else:
                    break
                taken += 1
                pack(table, position, digest, number + 1)
        finally:
            self.count = count
        return taken

    def newest(self, keys: Iterable[bytes]) -> list[int]:
        """The number of each key's newest record; -1 for one that was never put."""
        table, size, slots = self._table, self._slots * ENTRY_SIZE, self._slots
        unpack = _ENTRY.unpack_from
        numbers = []
        digests = _digests(keys)
        for digest, first_slot in zip(digests, _first_slots(digests), strict=True):
            position = first_slot % slots * ENTRY_SIZE
            found, stored = unpack(table, position)
            while stored and found != digest:
                self.probes += 1
                position += ENTRY_SIZE
                if position == size:
                    position = 0
                found, stored = unpack(table, position)
            numbers.append(stored - 1)
        return numbers


def _digests(keys: Iterable[bytes]) -> list[bytes]:
    return [md5(key).digest() for key in keys]


def _first_slots(digests: list[bytes]) -> list[int]:
    """The first half of each digest as a number."""
    return memoryview(b"".join(digests)).cast("Q")[::2].tolist()
