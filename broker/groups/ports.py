"""What the group coordinator needs besides its log (`broker.coordination.coordinator_log`).

Owns: the interface. Must not know: its implementation (`broker.groups.legacy_offsets`).
"""

from __future__ import annotations

from typing import Protocol


class LegacyOffsets(Protocol):
    """Offsets that consumers of 0.8 store under `/consumers`, by version 0 of OffsetCommit and OffsetFetch."""

    async def read(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return the stored offset; None if there is none. Raises KafkaError."""

    async def write(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Store an offset. Raises KafkaError."""
