"""The transactional ids that this broker coordinates: those of the led partitions of `__transaction_state`.

Owns: which ids exist here. Must not know: how records of the log become ids again, or what producers or administrators
may do.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from base.clock import Clock
from broker.coordination.background import BackgroundTasks
from broker.coordination.coordinator_log import CoordinatorLog
from broker.coordination.led_partitions import LedPartitions
from broker.transactions.machine.transaction import Transaction
from broker.transactions.partition import StatePartition
from broker.transactions.runner import TransactionRunner
from broker.transactions.settings import TransactionSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import TRANSACTION_STATE_TOPIC

logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")


class HostedTransactions:
    """The transactional ids of one broker.

    A leader that is elected again reads everything again: its coordinator epoch has changed.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        log: CoordinatorLog,
        runner: TransactionRunner,
        clock: Clock,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._log = log
        self._runner = runner
        self.partitions: LedPartitions[StatePartition] = LedPartitions(
            TRANSACTION_STATE_TOPIC, log, clock, ensure_internal_topic, self, logger, reloads_in_new_epoch=True
        )

    def partition_of(self, transactional_id: str) -> StatePartition:
        """Return the partition of an id.

        Raises KafkaError: INVALID_REQUEST (empty id), then the errors of `LedPartitions.require`.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self.partitions.require(transactional_id)

    def require(self, transactional_id: str) -> tuple[StatePartition, Transaction]:
        """Return an id that exists, with its partition.

        Raises KafkaError: the errors of `partition_of`, then INVALID_PRODUCER_ID_MAPPING (unknown id).
        """
        partition = self.partition_of(transactional_id)
        transaction = partition.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return partition, transaction

    # The contents of a partition (`PartitionContents`)

    def new_partition(self, number: int, leader_epoch: int) -> StatePartition:
        """Return an empty partition."""
        return StatePartition(number, leader_epoch, BackgroundTasks(logger))

    async def read(self, partition: StatePartition) -> int:
        """Replay the log into transactional ids, and return their number.

        What was read counts once all in-sync replicas have it. Otherwise the next leader may lack it, although clients
        got responses or partitions got markers that rely on it. Kafka does not wait for that.
        """
        from broker.coordination.replay import replay  # on demand: no start waits for these modules
        from broker.transactions.loading import ReplayedTransactions

        replayed, end_offset = await replay(
            self._log, partition.number, self._settings.load_buffer_size, ReplayedTransactions, TRANSACTION_STATE_TOPIC
        )
        await self._log.committed(partition.number, end_offset)
        partition.transactions = {name: Transaction(name, found) for name, found in replayed.transactions.items()}
        return len(partition.transactions)

    async def activated(self, partition: StatePartition) -> None:
        """Send the markers of the transactions whose outcome was decided before."""
        for transaction in partition.transactions.values():
            self._runner.finish_if_decided(partition, transaction)

    def unloaded(self, partition: StatePartition) -> None:
        """Nothing is left to do: the markers on their way are cancelled with the partition's tasks."""
