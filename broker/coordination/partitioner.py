"""Which partition of a coordinator's topic a group or a transactional id belongs to.

Owns the hash, which is Kafka's. Must not know topics or how many partitions they have.
"""

from __future__ import annotations

import struct
from functools import lru_cache

# Longer ones are hashed each time: a key may have 32 kB, and ten thousand such would be remembered for ever.
REMEMBERED_LENGTH_MAX = 256


def partition_for(key: str, partition_count: int) -> int:
    """The partition whose leader coordinates `key`: abs(hash) modulo the count, with Java's string hash over UTF-16."""
    return _remembered(key, partition_count) if len(key) <= REMEMBERED_LENGTH_MAX else _hashed(key, partition_count)


def _hashed(key: str, partition_count: int) -> int:
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return value % partition_count if value < 0x80000000 else 0  # Java has no abs of -2^31, Kafka takes 0


_remembered = lru_cache(maxsize=10_000)(_hashed)  # every request of a member or a producer asks for the same few keys
