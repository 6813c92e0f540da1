"""A map from each key to its newest record, whose memory does not depend on the number and length of the keys.

Owns the table only, a hash table with open addressing. Must not know logs. An entry has 24 bytes:

    | MD5 of the key, 2 words | number of its newest record + 1, 1 word; 0 marks a free slot |

A word has 8 bytes. Numbers count from the first record that was put. Two keys with the same MD5 would count as one key;
Kafka accepts the same risk. `offset_map.pxd` beside this file declares the C types with which the loops are compiled.

Invariants:
- An entry never moves and is never removed.
- At least one slot is free: there the search for a missing key ends.
- Of the memory, only the pages in use are resident.
"""

import hashlib
import mmap
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from storage.cleaning.cleaning_job import MAP_MEMORY_MAX

try:  # twice as fast for short keys: OpenSSL's MD5 takes longer to set up than to compute
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    md5 = partial(hashlib.md5, usedforsecurity=False)

ENTRY_SIZE: Final = 24


class OffsetMap:
    """A hash table of keys. It is full at `usable` keys, because probing gets slow above the load factor."""

    __slots__ = ("_table", "count", "probes", "usable")

    def __init__(self, memory: int, load_factor: float, keys_max: int = MAP_MEMORY_MAX) -> None:
        """`memory` is in bytes. At most `keys_max` keys will be put; twice as many slots suffice and are faster."""
        slots = max(min(min(memory, MAP_MEMORY_MAX) // ENTRY_SIZE, 2 * keys_max), 2)
        self._table = memoryview(mmap.mmap(-1, slots * ENTRY_SIZE)).cast("Q")
        self.usable = min(max(int(slots * load_factor), 1), slots - 1)
        self.count = 0
        self.probes = 0

    def put_all(self, keys: Sequence[bytes], numbers: Iterable[int], superseded: list[int]) -> int:
        """Store the newest record of each key until the map is full; return the number of keys stored.

        Numbers must be increasing, also from call to call. The numbers that are replaced are appended to `superseded`.
        """
        stored, added, probes = _put(self._table, _digests(keys), numbers, self.usable - self.count, superseded)
        self.count += added
        self.probes += probes
        return stored

    def newest(self, keys: Iterable[bytes]) -> list[int]:
        """Return the number of each key's newest record, -1 for a missing key."""
        numbers, probes = _newest(self._table, _digests(keys))
        self.probes += probes
        return numbers


def _digests(keys: Iterable[bytes]) -> memoryview:
    """Return two words for each key."""
    return memoryview(b"".join([md5(key).digest() for key in keys])).cast("Q")


def _put(
    table: memoryview, digests: memoryview, numbers: Iterable[int], room: int, superseded: list[int]
) -> tuple[int, int, int]:
    """Put the keys with these digests until there is no room; return how many, how many were new, and the probes."""
    stored = added = probes = 0
    end = len(digests)
    for number in numbers:
        if 2 * stored >= end:
            break
        low, high = digests[2 * stored], digests[2 * stored + 1]
        position, passed = _find(table, low, high)
        probes += passed
        if table[position + 2]:
            superseded.append(table[position + 2] - 1)
        elif added < room:
            added += 1
            table[position] = low
            table[position + 1] = high
        else:
            break
        table[position + 2] = number + 1
        stored += 1
    return stored, added, probes


def _newest(table: memoryview, digests: memoryview) -> tuple[list[int], int]:
    """Return the number of the newest record for each of these digests, -1 for a missing one, and the probes."""
    numbers: list[int] = []
    probes = 0
    for at in range(0, len(digests), 2):
        position, passed = _find(table, digests[at], digests[at + 1])
        probes += passed
        number = table[position + 2]
        numbers.append(number - 1 if number else -1)
    return numbers, probes


def _find(table: memoryview, low: int, high: int) -> tuple[int, int]:
    """Return the position of the entry with this digest, or of the free one where it belongs, and the probes."""
    size = len(table)
    position = low % (size // 3) * 3
    probes = 0
    while table[position + 2] and (table[position] != low or table[position + 1] != high):
        probes += 1
        position += 3
        if position == size:
            position = 0
    return position, probes
