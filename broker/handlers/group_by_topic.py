"""Groups results of partitions as responses do: every topic once, with all of its partitions.

Owns that shape alone. A request may name a topic in several entries, which the response merges into one. A topic
without partitions is left out of the response. Kafka does both for most requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from base.pause import Pause

A = TypeVar("A")
T = TypeVar("T")


async def group_by_topic(
    results: Iterable[tuple[tuple[str, int], A]], make: Callable[[str, list[A]], T], pause: Pause
) -> list[T]:
    """Return `make(topic, results)` for each topic, in the order of their first partitions.

    `results` yields (topic, partition) with the result of that partition; it may be lazy.
    """
    topics: dict[str, list[A]] = {}
    for (topic, _), result in results:
        topics.setdefault(topic, []).append(result)
        await pause()
    made = []
    for topic, of_topic in topics.items():
        made.append(make(topic, of_topic))
        await pause()
    return made
