"""What handlers work with: the parts of one broker, wired by `broker/assembly.py`.

Owns nothing but the references and the few questions that concern several parts at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from broker.client_quotas import ClientQuotas
from broker.clock import Clock
from broker.computing import Computing
from broker.config_changes import ConfigChanges
from broker.groups.coordinator import GroupCoordinator
from broker.internal_topics import INTERNAL_TOPICS
from broker.metadata_cache import MetadataCache
from broker.network.unsent_answers import UnsentAnswers
from broker.producer_ids import ProducerIds
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.scram_credentials import ScramCredentials
from broker.slices import SlicedWork
from broker.topic_configs import TopicConfigs
from broker.topics import TopicAdministration
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.late import LateTransactions
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.verification import TransactionVerifier
from config.broker import BrokerConfig
from controller.controller import Controller
from protocol.api import Api
from protocol.errors import ErrorCode, KafkaError
from storage.log import FlushHeldError, Log
from storage.log_manager import LogManager

T = TypeVar("T")


@dataclass(slots=True)
class Services:
    """The parts of one broker."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    metadata_cache: MetadataCache
    controller: Controller
    log_manager: LogManager
    replica_manager: ReplicaManager
    directory_moves: DirectoryMoves
    fetch_sessions: FetchSessionCache
    topics: TopicAdministration
    topic_configs: TopicConfigs
    config_changes: ConfigChanges
    client_quotas: ClientQuotas
    scram_credentials: ScramCredentials
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    marker_writer: MarkerWriter
    late_transactions: LateTransactions
    blocking: Executor
    computing: Computing
    sliced_work: SlicedWork
    unsent_answers: UnsentAnswers
    served_apis: Sequence[Api]
    """What ApiVersions lists, by key."""
    internal_topics: frozenset[str] = INTERNAL_TOPICS

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError:
        """The answer to a request for a partition of which no replica is served here."""
        if self.replica_manager.is_offline(topic, partition):
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {topic}-{partition} is offline")
        if self.metadata_cache.contains(topic, partition):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def flush(self, partition: Partition) -> None:
        """Sync a partition's log off the event loop. Raises KafkaError(KAFKA_STORAGE_ERROR).

        If the log moves to another log directory during the sync, the log that has taken its place is synced too: it
        may hold records that were copied and not synced there.
        """
        while True:
            log = partition.log
            try:
                await self.run_blocking(partial(log.flush, self.clock.now_ms()))
            except FlushHeldError:
                await _flush_released(log)
                continue
            except KafkaError:
                if partition.log is log:
                    raise
            if partition.log is log:
                return

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run something that may wait for a disk off the event loop."""
        return asyncio.get_running_loop().run_in_executor(self.blocking, work)


async def _flush_released(log: Log) -> None:
    """Return when `log` may be flushed again, or another one has taken its place."""
    released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log.when_flush_released(lambda: None if released.done() else released.set_result(None))
    await released
