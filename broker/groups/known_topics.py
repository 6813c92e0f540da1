"""The topics of the cluster as the machine of groups asks for them, over the metadata cache.

Owns: this adapter. Must not know: groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from broker.cluster.metadata_cache import MetadataCache
from broker.groups.machine.consumer.topics import Topic
from protocol.schema import ZERO_UUID


class KnownTopics:
    """The topics at one moment: see `broker.groups.machine.consumer.topics.Topics`."""

    __slots__ = ("_cache",)

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache.snapshot()

    @property
    def stamp(self) -> object:
        return self._cache.topics  # replaced by every change

    def find(self, name: str) -> Topic | None:
        state = self._cache.topics.get(name)
        if state is None or state.topic_id == ZERO_UUID:
            return None
        return Topic(state.topic_id, self._cache.partition_count(name) or 0)

    def name_of(self, topic_id: UUID) -> str | None:
        return self._cache.name_of(topic_id)

    def names(self) -> Iterable[str]:
        return self._cache.topics
