"""Key -> newest offset, in memory of a fixed size whatever the number and length of keys.

Owns the table only: open addressing over 24-byte entries, the 16-byte MD5 of a key and its offset. Two keys with one
MD5 would count as one key; Kafka takes the same risk. Must not know logs.

Invariants: an entry never moves and is never removed; the memory is what was asked for, and of that only the pages in
use are resident.
"""

import mmap
import struct
from collections.abc import Iterable
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

    def put_all(self, keys_and_offsets: Iterable[tuple[bytes, int]]) -> bool:
        """Notes the newest offset of each key, as long as there is room; False when there was none for the rest.

        Offsets must rise, from call to call too. One loop without calls: it runs for every record of a dirty log.
        """
        table, size, slots = self._table, self._slots * ENTRY_SIZE, self._slots
        unpack, pack, unpack_hash, usable = _ENTRY.unpack_from, _ENTRY.pack_into, _HASH.unpack_from, self.usable
        count, offset = self.count, self.latest_offset
        try:
            for key, offset_of_key in keys_and_offsets:
                if count >= usable:
                    return False
                digest = md5(key, usedforsecurity=False).digest()
                position = unpack_hash(digest)[0] % slots * ENTRY_SIZE
                found, stored = unpack(table, position)
                while stored and found != digest:
                    self.probes += 1
                    position += ENTRY_SIZE
                    if position == size:
                        position = 0
                    found, stored = unpack(table, position)
                if not stored:
                    count += 1
                offset = offset_of_key
                pack(table, position, digest, offset + 1)
        finally:
            self.count, self.latest_offset = count, offset
        return True

    def newest(self, keys: Iterable[bytes]) -> list[int]:
        """The offset of each key; -1 for one that was never put."""
        table, size, slots = self._table, self._slots * ENTRY_SIZE, self._slots
        unpack, unpack_hash = _ENTRY.unpack_from, _HASH.unpack_from
        offsets = []
        for key in keys:
            digest = md5(key, usedforsecurity=False).digest()
            position = unpack_hash(digest)[0] % slots * ENTRY_SIZE
            found, stored = unpack(table, position)
            while stored and found != digest:
                self.probes += 1
                position += ENTRY_SIZE
                if position == size:
                    position = 0
                found, stored = unpack(table, position)
            offsets.append(stored - 1)
        return offsets
