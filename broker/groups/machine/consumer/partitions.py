"""Sets of partitions by topic id, as the consumer protocol names them.

Owns: their form in memory and in records. Must not know: who has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from broker.groups.machine.consumer.stored_partitions import StoredPartitions

Partitions = Mapping[UUID, frozenset[int]]
"""No topic is listed without a partition."""

NOTHING: Final[Partitions] = MappingProxyType({})


def partitions(of_topics: Iterable[tuple[UUID, Iterable[int]]]) -> Partitions:
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in of_topics:
        if each := frozenset(numbers):
            found[topic_id] = found.get(topic_id, frozenset()) | each
    return found or NOTHING


def common(left: Partitions, right: Partitions) -> Partitions:
    """Return what is in both."""
    return partitions((topic_id, numbers & right.get(topic_id, frozenset())) for topic_id, numbers in left.items())


def without(left: Partitions, right: Partitions) -> Partitions:
    """Return what is in `left` alone."""
    return partitions((topic_id, numbers - right.get(topic_id, frozenset())) for topic_id, numbers in left.items())


def joined(left: Partitions, right: Partitions) -> Partitions:
    """Return what is in either."""
    return partitions((*left.items(), *right.items())) if left and right else left or right


def contains(outer: Partitions, inner: Partitions) -> bool:
    """Return whether `inner` has nothing that `outer` lacks."""
    return all(numbers <= outer.get(topic_id, frozenset()) for topic_id, numbers in inner.items())


def each(of_topics: Partitions) -> Iterator[tuple[UUID, int]]:
    for topic_id, numbers in of_topics.items():
        for number in numbers:
            yield topic_id, number


def to_stored(of_topics: Partitions) -> list[StoredPartitions]:
    return [
        StoredPartitions(topic_id=topic_id, partitions=sorted(of_topics[topic_id])) for topic_id in sorted(of_topics)
    ]


def from_stored(stored: Iterable[StoredPartitions]) -> Partitions:
    return partitions((each.topic_id, each.partitions) for each in stored)
