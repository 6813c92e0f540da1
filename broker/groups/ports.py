"""What the group coordinator needs of the rest of the broker."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class OffsetsLog(Protocol):
    """The partitions of `__consumer_offsets`."""

    def append(self, partition: int, batch: bytearray, timeout_ms: int) -> Awaitable[None]:
        """Resolves once all in-sync replicas have `batch`, which is patched in place.

        Batches reach the log in the order of the calls. Raises KafkaError, at once or when awaited.
        """

    def read(self, partition: int, offset: int, max_bytes: int) -> Awaitable[Buffer]:
        """Whole batches from `offset` on, at least one unless the log ends there. Raises KafkaError."""

    def start_offset(self, partition: int) -> int:
        """The first offset of the log. Raises KafkaError when this broker does not lead the partition."""

    def end_offset(self, partition: int) -> int:
        """The offset after the last record. Raises KafkaError when this broker does not lead the partition."""

    def partition_count(self) -> int | None:
        """How many partitions the topic has; None while it does not exist."""


class LegacyOffsets(Protocol):
    """Offsets that consumers of 0.8 keep outside the coordinator, under `/consumers`: version 0 of commit and fetch."""

    async def read(self, group_id: str, topic: str, partition: int) -> int | None:
        """The stored offset; None when there is none. Raises KafkaError."""

    async def write(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Store an offset. Raises KafkaError."""
