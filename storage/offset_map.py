"""Key -> newest offset, in memory of a fixed size whatever the number and length of keys.

Owns the table only: open addressing over 24-byte entries, the 16-byte MD5 of a key and its offset. Two keys with one
MD5 would count as one key; Kafka takes the same risk. Must not know logs.

Invariants: an entry never moves and is never removed; the memory is what was asked for, and of that only the pages in
use are resident.
"""

import mmap
import struct
from hashlib import md5
from typing import Final

ENTRY_SIZE: Final = 24
MEMORY_MAX: Final = 2**31 - 1

_ENTRY: Final = struct.Struct(">16sQ")  # the offset plus one: 0 marks a free slot
_HASH: Final = struct.Struct(">Q")


class OffsetMap:
    """`usable` entries fit in before it is full; more than the load factor's share would make probing slow."""

    __slots__ = ("_slots", "_table", "count", "latest_offset", "probes", "usable")

    def __init__(self, memory: int, load_factor: float) -> None:
        self._slots = min(memory, MEMORY_MAX) // ENTRY_SIZE
        assert self._slots > 0
        self._table = mmap.mmap(-1, self._slots * ENTRY_SIZE)
        self.usable = int(self._slots * load_factor)
        self.count = 0
        self.probes = 0
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        return self.count >= self.usable

    def put(self, key: bytes, offset: int) -> None:
        """The newest offset of a key counts: offsets must be put in rising order."""
        digest = md5(key, usedforsecurity=False).digest()
        position, known = self._find(digest)
        if known == 0:
            self.count += 1
        _ENTRY.pack_into(self._table, position, digest, offset + 1)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """-1 for a key that was never put."""
        return self._find(md5(key, usedforsecurity=False).digest())[1] - 1

    def _find(self, digest: bytes) -> tuple[int, int]:
        """The slot that holds a digest or that it would go to, and what is stored there."""
        table = self._table
        position = _HASH.unpack_from(digest)[0] % self._slots * ENTRY_SIZE
        while True:
            found, stored = _ENTRY.unpack_from(table, position)
            if found == digest or stored == 0:
                return position, stored
            self.probes += 1
            position += ENTRY_SIZE
            if position == self._slots * ENTRY_SIZE:
                position = 0
