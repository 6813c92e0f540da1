"""Transactions that partitions hold open for longer than any producer may have them.

Such a one hangs: its coordinator would have aborted it long ago, so it knows nothing of it, and readers of committed
records stand still at its start. Owns: finding them in the partitions led here, telling each of them once in the log,
and their number. Must not know: how they are ended (by an administrator, see docs/transactions.md).
"""

from __future__ import annotations

import logging
from typing import Final

from broker.loop.slices import Slices
from broker.replica.manager import ReplicaManager
from storage.producer_state import ProducerEntry

logger = logging.getLogger("kafka.server.ReplicaManager")

GRACE_MS: Final = 300_000
"""What is allowed beyond the longest timeout: timeouts are looked for now and then, markers take their time."""


class LateTransactions:
    """`partition_count`: partitions that had one at the last check (Kafka's PartitionsWithLateTransactionsCount)."""

    def __init__(self, replica_manager: ReplicaManager, timeout_max_ms: int) -> None:
        """`timeout_max_ms` is transaction.max.timeout.ms."""
        self.partition_count = 0
        self._replica_manager = replica_manager
        self._limit_ms = timeout_max_ms + GRACE_MS
        self._told: set[tuple[str, int, int]] = set()
        """Topic, partition and first offset of what is in the log already."""

    def check(self, now_ms: int) -> Slices[None]:
        """Look at every partition led here, one a step. The oldest open transaction of each is the one that counts."""
        count = 0
        still_late: set[tuple[str, int, int]] = set()
        for partition in self._replica_manager.hosted():
            yield
            oldest = partition.log.producers().oldest_open if partition.is_leader else None
            if oldest is None or now_ms - oldest.last_timestamp_ms <= self._limit_ms:
                continue
            count += 1
            late = (partition.topic, partition.partition, oldest.current_transaction_first_offset)
            still_late.add(late)
            if late not in self._told:
                _tell(partition.topic, partition.partition, oldest)
        self._told = still_late
        self.partition_count = count


def _tell(topic: str, partition: int, producer: ProducerEntry) -> None:
    logger.warning(
        "%s-%d has a transaction of producer id %d (epoch %d) open since offset %d, last written to at %d: it hangs, "
        "and committed records are read up to there only; see kafka-transactions",
        topic, partition, producer.producer_id, producer.epoch, producer.current_transaction_first_offset,
        producer.last_timestamp_ms,
    )  # fmt: skip
