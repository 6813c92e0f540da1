"""A map from each key to its newest record, whose memory does not depend on the number and length of the keys.

Owns the table only, a hash table with open addressing. Must not know logs. An entry has 24 bytes:

    | MD5 of the key, 16 bytes | number of its newest record + 1, 8 bytes; 0 marks a free slot |

Numbers count from the first record that was put. Two keys with the same MD5 would count as one key; Kafka accepts the
same risk.

Invariants:
- An entry never moves and is never removed.
- Of the memory, only the pages in use are resident.
"""

import hashlib
import mmap
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from storage.cleaning.cleaning_job import MAP_MEMORY_MAX

try:  # twice as fast for short keys: OpenSSL's MD5 takes longer to set up than to compute
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    md5 = partial(hashlib.md5, usedforsecurity=False)

ENTRY_SIZE: Final = 24

_ENTRY: Final = struct.Struct(">16sQ")


class OffsetMap:
    """A hash table of keys. It is full at `usable` keys, because probing gets slow above the load factor."""

    __slots__ = ("_slots", "_table", "count", "probes", "usable")

    def __init__(self, memory: int, load_factor: float, keys_max: int = MAP_MEMORY_MAX) -> None:
        """`memory` is in bytes. At most `keys_max` keys will be put; twice as many slots suffice and are faster."""
        self._slots = max(min(min(memory, MAP_MEMORY_MAX) // ENTRY_SIZE, 2 * keys_max), 2)
        self._table = mmap.mmap(-1, self._slots * ENTRY_SIZE)
        # At least one slot stays free, where the search for a missing key ends.
        self.usable = min(max(int(self._slots * load_factor), 1), self._slots - 1)
        self.count = 0
        self.probes = 0

    def put_all(self, keys: Sequence[bytes], numbers: Iterable[int], superseded: list[int]) -> int:
        """Store the newest record of each key until the map is full; return the number of keys stored.

        Numbers must be increasing, also from call to call. The numbers that are replaced are appended to `superseded`.
        The loop calls no function of its own, because it runs for every record of a dirty log.

        Invariant at the top of the loop: `stored_count` keys are stored, and `count` entries are in use.
        """
        table, size, slots = self._table, self._slots * ENTRY_SIZE, self._slots
        unpack, pack, usable, supersede = _ENTRY.unpack_from, _ENTRY.pack_into, self.usable, superseded.append
        count, stored_count = self.count, 0
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
                stored_count += 1
                pack(table, position, digest, number + 1)
        finally:
            self.count = count
        return stored_count

    def newest(self, keys: Iterable[bytes]) -> list[int]:
        """Return the number of each key's newest record, -1 for a missing key."""
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
    """Return the first half of each digest as a number."""
    return memoryview(b"".join(digests)).cast("Q")[::2].tolist()
