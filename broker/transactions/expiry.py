"""Periodic work on transactional ids: abort transactions that time out, remove ids that have expired.

Owns: when ids are checked, and in which pieces. Must not know: which transaction times out and which id expires
(`broker.transactions.machine.transaction`), or what follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from base.clock import Clock
from broker.coordination.background import BackgroundTasks, PeriodicTask, Unfinished, next_turn
from broker.coordination.coordinator_log import BATCH_SIZE_MAX, RECORD_OVERHEAD_MAX
from broker.coordination.led_partitions import LedPartitions
from broker.loop.timer import Timer
from broker.transactions.machine.records import write_key
from broker.transactions.machine.transaction import Transaction
from broker.transactions.partition import StatePartition
from broker.transactions.runner import TransactionRunner
from broker.transactions.settings import TransactionSettings
from protocol.errors import ErrorCode

logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")

SLICE_IDS: Final = 2_000
"""Ids that are checked before other requests get their turn: about a millisecond."""


class TransactionExpiry:
    """Aborts and removes what has been left unused on one broker."""

    def __init__(
        self,
        settings: TransactionSettings,
        partitions: LedPartitions[StatePartition],
        runner: TransactionRunner,
        timer: Timer,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._runner = runner
        self._clock = clock
        self._tasks = BackgroundTasks(logger)
        self._checks = [
            PeriodicTask(timer, clock, self._tasks, settings.timeout_check_interval_ms, self.abort_timed_out),
            PeriodicTask(timer, clock, self._tasks, settings.expiry_check_interval_ms, self.remove_expired),
        ]

    def start(self) -> None:
        """Start the periodic checks."""
        for check in self._checks:
            check.start()

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        for check in self._checks:
            check.stop()
        return self._tasks.cancel()

    async def abort_timed_out(self) -> None:
        """Fence the producers whose transactions have been open longer than their timeout, and abort those.

        An id that cannot be fenced, because its record is not one that this coordinator writes, is logged and skipped.
        """
        now_ms = self._clock.now_ms()
        for partition in self._partitions.active():
            async for transaction in _in_slices(partition):
                try:
                    is_timed_out = transaction.time_out(now_ms) is not None
                except Exception:  # it must not keep the others from their timeouts
                    logger.exception("%s cannot be aborted after its timeout", transaction.transactional_id)
                    continue
                if is_timed_out:
                    self._runner.store(partition, transaction, _log_abort(transaction))

    async def remove_expired(self) -> None:
        """Remove ids that have been unused for transactional.id.expiration.ms, with a tombstone for each."""
        now_ms, expiration_ms = self._clock.now_ms(), self._settings.id_expiration_ms
        for partition in self._partitions.active():
            size, expired = 0, []
            async for transaction in _in_slices(partition):
                if transaction.expire(now_ms, expiration_ms) is None:
                    continue
                expired.append(transaction)
                size += RECORD_OVERHEAD_MAX + len(write_key(transaction.transactional_id))
                if size >= BATCH_SIZE_MAX:
                    self._runner.store_tombstones(partition, expired)
                    size, expired = 0, []
            if expired and partition.is_led:
                self._runner.store_tombstones(partition, expired)


async def _in_slices(partition: StatePartition) -> AsyncIterator[Transaction]:
    """Iterate over the ids of a partition, with turns for other requests in between, while this leadership lasts."""
    for number, transaction in enumerate(list(partition.transactions.values()), 1):
        if number % SLICE_IDS == 0:
            await next_turn()
        if not partition.is_led:
            return
        yield transaction


def _log_abort(transaction: Transaction) -> Callable[[ErrorCode], None]:
    """Return what logs the result of the append. The producer is named as it is now, with the epoch raised."""
    producer_id, epoch = transaction.current.producer_id, transaction.current.producer_epoch

    def log(error: ErrorCode) -> None:
        logger.info(
            "%s (producer id %d, raised to epoch %d): aborting after its timeout, %s",
            transaction.transactional_id, producer_id, epoch, "failed: " + error.name if error else "decided",
        )  # fmt: skip

    return log
