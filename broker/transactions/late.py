"""Hanging transactions (KIP-664): partitions hold them open longer than any producer's timeout.

The coordinator does not know a hanging transaction, or it would have aborted it; the last stable offset stays at its
start. Owns: finding hanging transactions in the partitions that this broker leads, reporting each once in the log, and
their number. Must not know: how they are ended (by an administrator, see docs/transactions.md).
"""

from __future__ import annotations

import logging
from typing import Final

from base.pause import Pause
from broker.replica.manager import ReplicaManager
from storage.producers.producer_state import ProducerEntry

logger = logging.getLogger("kafka.server.ReplicaManager")

GRACE_MS: Final = 300_000
"""Added to the longest timeout: timeouts are checked at intervals, and writing the markers takes time."""


class LateTransactions:
    """Finds hanging transactions.

    `partition_count` is the number of partitions that had one at the last check (Kafka's metric
    PartitionsWithLateTransactionsCount).
    """

    def __init__(self, replica_manager: ReplicaManager, timeout_max_ms: int) -> None:
        """`timeout_max_ms` is transaction.max.timeout.ms."""
        self.partition_count = 0
        self._replica_manager = replica_manager
        self._limit_ms = timeout_max_ms + GRACE_MS
        self._reported: set[tuple[str, int, int]] = set()
        """Topic, partition and first offset of the transactions that were reported already."""

    async def check(self, now_ms: int, pause: Pause) -> None:
        """Check the oldest open transaction of every partition led here, one partition a step.

        `now_ms` is wall time in milliseconds.
        """
        count = 0
        still_late: set[tuple[str, int, int]] = set()
        for partition in self._replica_manager.hosted():
            await pause()
            oldest = partition.log.producer_state.oldest_open if partition.is_leader else None
            if oldest is None or not self.is_late(oldest, now_ms):
                continue
            count += 1
            late = (partition.topic, partition.partition, oldest.current_transaction_first_offset)
            still_late.add(late)
            if late not in self._reported:
                _report(partition.topic, partition.partition, oldest)
        self._reported = still_late
        self.partition_count = count

    def is_late(self, producer: ProducerEntry, now_ms: int) -> bool:
        """Return whether the open transaction of a producer is older than any may be."""
        return now_ms - producer.last_timestamp_ms > self._limit_ms


def _report(topic: str, partition: int, producer: ProducerEntry) -> None:
    logger.warning(
        "%s-%d has a hanging transaction of producer id %d (epoch %d): it is open since offset %d and was last written "
        "at %d; read_committed consumers do not read past it; end it with kafka-transactions",
        topic, partition, producer.producer_id, producer.epoch, producer.current_transaction_first_offset,
        producer.last_timestamp_ms,
    )  # fmt: skip
