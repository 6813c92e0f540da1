"""The coordinator of a group or a transactional id: the partition of its topic, and the broker that leads it.

Owns: the hash, which is Kafka's. Must not know: what a coordinator is asked, or how it is reached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from protocol.errors import ErrorCode, KafkaError
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


class Leaders(Protocol):
    """What is known of the partitions of topics: the part of the metadata cache that coordinators use."""

    def contains(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """Return the partition count of a topic; None if the topic is not known."""

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker id of the leader; -1 if there is none at the moment."""
        ...


def other_coordinator(key: str, topic: str, leaders: Leaders, broker_id: int) -> int:
    """Return which broker coordinates a key that broker `broker_id` does not; `topic` is the coordinators' topic.

    Raises:
        KafkaError: COORDINATOR_NOT_AVAILABLE if there is none; NOT_COORDINATOR if the metadata names this broker, which
            has not become the leader yet.
    """
    count = leaders.partition_count(topic)
    if not count:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The topic {topic} is missing.")
    leader = leaders.leader_of(topic, partition_for(key, count))
    if leader == broker_id:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    if leader < 0:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return leader
