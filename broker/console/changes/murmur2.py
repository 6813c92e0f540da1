"""Murmur2, the hash by which Java clients choose the partition of a key (public domain, Austin Appleby). Pure."""

from __future__ import annotations

from typing import Final

_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_SEED: Final = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned number of 32 bits."""
    size = len(data)
    found = (_SEED ^ size) & _MASK
    whole = size - size % 4
    for position in range(0, whole, 4):
        part = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        part = (part ^ part >> 24) * _M & _MASK
        found = (found * _M & _MASK) ^ part
    if size % 4:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15
