"""Which partition of a coordinator's topic a group or a transactional id belongs to.

Owns the hash, which is Kafka's. Must not know topics or how many partitions they have.
"""

from __future__ import annotations

import struct
from functools import lru_cache


@lru_cache(maxsize=10_000)  # every request of a member or a producer asks for the same few keys
def partition_for(key: str, partition_count: int) -> int:
    """The partition whose leader coordinates `key`: abs(hash) modulo the count, with Java's string hash over UTF-16."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return value % partition_count if value < 0x80000000 else 0  # Java has no abs of -2^31, Kafka takes 0
