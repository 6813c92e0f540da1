"""Partitions that this broker leads, with real logs: the environment of markers and verification in a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

from broker.loop.timer import Timer
from broker.replica.bound_partition import BoundPartition
from broker.replica.own_appends import OwnAppends
from broker.replica.partition import Leadership, Partition
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import KafkaError
from protocol.records.builder import RecordData, build_batch
from storage.disk.files import OsFiles
from storage.log import log_opening
from storage.log.log_appends import AppendResult
from storage.log.log_state import LogOptions
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.support.manual_clock import ManualClock
from tests.support.replicas import Replicas

BROKER = 1


class Leading:
    """A replica manager that leads the partitions of `lead`."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.timer = Timer()
        self._folder = folder
        self._broker_config = BrokerConfig.from_properties({}, {})
        self._options = LogOptions(OsFiles(), random.Random(0))
        self.replica_manager = Replicas(
            BROKER,
            LogManager(
                [],
                LogManagerSettings(),
                OsFiles(),
                random=random.Random(),
                new_threads=ThreadPoolExecutor,
                on_directory_failed=lambda *_: None,
            ),
            self.timer,
            lambda _: LogConfig.from_overrides(self._broker_config, {}),
        )
        self.syncs: list[tuple[Callable[[], None], asyncio.Future[None]]] = []
        """Syncs that have not been performed yet, each with the future that ends it."""
        self.own_appends = OwnAppends(self.replica_manager, self.clock, self._hold)

    def _hold(self, sync: Callable[[], None]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.syncs.append((sync, done))
        return done

    async def end_sync(self) -> None:
        """Perform the sync that runs, and let what waits for it continue."""
        sync, done = self.syncs.pop(0)
        try:
            sync()
        except KafkaError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        for _ in range(20):
            await asyncio.sleep(0)

    def lead(
        self, topic: str, number: int, isr: tuple[int, ...] = (BROKER,), overrides: Mapping[str, str] | None = None
    ) -> Partition:
        log = log_opening.create(
            self._options,
            str(self._folder / f"{topic}-{number}"),
            (topic, number),
            LogConfig.from_overrides(self._broker_config, overrides or {}),
            topic_id=UUID(int=1),
            now_ms=self.clock.now_ms(),
        )
        partition = Partition(topic, number, BROKER, log)
        partition.lead(Leadership(1, BROKER, 0, isr, 0, isr), 0)
        self.replica_manager.host(partition, None)
        return partition

    def produce(self, partition: Partition, producer_id: int, epoch: int, sequence: int) -> AppendResult:
        """Append one transactional record, verified or not."""
        records = memoryview(bytearray(transactional_batch(producer_id, epoch, sequence)))
        return BoundPartition(partition, self.replica_manager).append(
            records, needs_isr=False, now_ms=self.clock.now_ms()
        )


def transactional_batch(producer_id: int = 7, epoch: int = 0, sequence: int = 0) -> bytes:
    return build_batch(
        [RecordData(0, None, b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
