"""The topics of the cluster, as far as groups of the consumer protocol need them.

Owns: this port. Must not know: where topics are known from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


class Topic(NamedTuple):
    """A topic with an id."""

    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """The topics at one moment. `stamp` is another object as soon as any topic has changed."""

    @property
    def stamp(self) -> object: ...

    def find(self, name: str) -> Topic | None:
        """Return a topic; None if there is none with this name and an id."""

    def name_of(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]: ...
