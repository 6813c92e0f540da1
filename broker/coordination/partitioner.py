"""The partition of a coordinator's topic that a group or a transactional id belongs to.

Owns: the hash, which is Kafka's. Must not know: topics or their partition counts.
"""

from __future__ import annotations

from functools import lru_cache

from protocol.java_hash import absolute, string_hash

# Longer keys are not cached: a key may have 32 kB, and the cache would keep ten thousand of them.
CACHED_LENGTH_MAX = 256


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of `key`: abs(hash) modulo the count, with Java's string hash over UTF-16.

    The broker that leads this partition is the coordinator of `key`.
    """
    return _cached_hash(key, partition_count) if len(key) <= CACHED_LENGTH_MAX else _hashed(key, partition_count)


def _hashed(key: str, partition_count: int) -> int:
    return absolute(string_hash(key)) % partition_count


_cached_hash = lru_cache(maxsize=10_000)(_hashed)  # requests of members and producers repeat a few keys
