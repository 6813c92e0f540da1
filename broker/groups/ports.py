"""What the group coordinator needs besides its log (`broker.coordination.coordinator_log`).

Owns the promises. Must not know who keeps them.
"""

from __future__ import annotations

from typing import Protocol


class LegacyOffsets(Protocol):
    """Offsets that consumers of 0.8 keep outside the coordinator, under `/consumers`: version 0 of commit and fetch."""

    async def read(self, group_id: str, topic: str, partition: int) -> int | None:
        """The stored offset; None when there is none. Raises KafkaError."""

    async def write(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Store an offset. Raises KafkaError."""
