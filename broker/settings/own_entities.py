"""What named entities with settings have in common that only a broker with a store of its own has.

Kafka has them without ZooKeeper only: subscriptions to metrics of clients, and groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from config.definition import Property


class OwnEntities(Protocol):
    """All entities of one type."""

    entity_type: str
    """Their folder below /config."""

    def properties(self) -> Mapping[str, Property[object]]:
        """Return the settings that exist, by name."""

    def check(self, name: str, settings: Mapping[str, str]) -> None:
        """Raises KafkaError for a name or settings that an entity cannot have."""

    def apply(self, name: str, settings: Mapping[str, str]) -> None:
        """Take over what is set of an entity; nothing if it was removed. Raises KafkaError, as `check`."""
