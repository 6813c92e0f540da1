"""The sync of a partition's log that `flush.messages` demands, while the log may move to another log directory.

Owns which log is synced. Must not know who waits for the sync, or when one is demanded.
"""

from __future__ import annotations

import asyncio
from functools import partial

from base.clock import Clock
from base.pause import InThread
from broker.replica.partition import Partition
from protocol.errors import KafkaError
from storage.log.log import Log
from storage.log.log_durability import FlushHeldError


async def sync_log(partition: Partition, in_thread: InThread, clock: Clock) -> None:
    """Sync a partition's log. Raises KafkaError(KAFKA_STORAGE_ERROR).

    If the log moves to another log directory during the sync, the log that replaces it is synced too: it may hold
    records that were copied but not synced there.
    """
    while True:
        log = partition.log
        try:
            await in_thread(partial(log.durability.flush, clock.now_ms()))
        except FlushHeldError:
            await _flush_released(log)
            continue
        except KafkaError:
            if partition.log is log:
                raise
        if partition.log is log:
            return


async def _flush_released(log: Log) -> None:
    """Wait until `log` may be flushed again, or another log has replaced it."""
    released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log.durability.when_flush_released(lambda: None if released.done() else released.set_result(None))
    await released
