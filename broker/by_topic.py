"""Answers by partition in the shape that responses have: every topic once, with all of its partitions.

Owns that shape alone. A request may name a topic in several places, or a topic and none of its partitions: the first is
answered in one place, the second not at all, as Kafka does for most requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def by_topic(answers: Iterable[tuple[tuple[str, int], T]]) -> dict[str, list[T]]:
    """What was given for (topic, partition), by topic; topics in the order of their first answers."""
    topics: dict[str, list[T]] = {}
    for (topic, _), answer in answers:
        topics.setdefault(topic, []).append(answer)
    return topics
