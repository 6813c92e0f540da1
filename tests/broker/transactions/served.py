"""The handlers of transactions as a client uses them, with both coordinators behind them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from base.clock import Clock
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.not_hosted import why_not_hosted
from broker.coordination.background import sleep
from broker.groups.coordinator import GroupCoordinator
from broker.loop.cpu_pool import CpuPool
from broker.loop.slices import SlicedWork
from broker.replica.appends import Appends
from broker.replica.manager import ReplicaManager
from broker.replica.transaction_verification import CoordinatorLink, Guards, TransactionVerifier
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.links import CoordinatorLinks
from broker.transactions.marker_writer import MarkerWriter
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from storage.producers.producer_state import Producer
from tests.broker.groups.served import Served
from tests.broker.transactions.fakes import BROKER, Surroundings
from tests.broker.transactions.leading import Leading
from tests.support.manual_clock import ManualClock

MINUTE_MS = 60_000


class ProducerIdsFrom:
    def __init__(self, here: Surroundings) -> None:
        self._here = here

    async def next_id(self) -> int:
        return await self._here.next_producer_id()


@dataclass
class ServicesOfTransactions:
    """The parts of a broker that these handlers touch."""

    transactions: TransactionCoordinator
    groups: GroupCoordinator
    verifier: TransactionVerifier
    marker_writer: MarkerWriter
    replica_manager: ReplicaManager
    producer_ids: ProducerIdsFrom
    metadata_cache: MetadataCache
    clock: ManualClock
    sliced_work: SlicedWork
    appends: Appends
    internal_topics: frozenset[str] = INTERNAL_TOPICS

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError:
        is_known = self.metadata_cache.contains(topic, partition)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class ServedTransactions(Served):
    """As `Served`, and leads all of `__transaction_state` (1 partition)."""

    def __init__(self, folder: Path, *, has_offsets_topic: bool = True, has_transactions_topic: bool = True) -> None:
        super().__init__(has_offsets_topic=has_offsets_topic)
        self.there = Surroundings(partition_count=1 if has_transactions_topic else None)
        self.leading = Leading(folder)
        self.guards = Guards(lambda: MINUTE_MS, lambda partition: 0)
        self.marker_writer = MarkerWriter(
            self.leading.replica_manager,
            self.leading.own_appends,
            self.guards,
            self.here.clock,
            MINUTE_MS,
            lambda *_: None,
        )
        if has_transactions_topic:
            self.add_topic("__transaction_state", 1)

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.there.coordinator

    async def lead_all(self) -> ServedTransactions:
        await self.here.lead()
        await self.there.lead()
        return self

    def services(self) -> ServicesOfTransactions:
        transactions, clock = self.transactions, self.there.clock
        verifier = TransactionVerifier(self.link(), self.guards, lambda: True, clock)
        return ServicesOfTransactions(
            transactions,
            self.coordinator,
            verifier,
            self.marker_writer,
            self.leading.replica_manager,
            ProducerIdsFrom(self.there),
            self.metadata,
            clock,
            SlicedWork(clock.monotonic_ms),
            Appends(
                self.leading.replica_manager,
                verifier,
                cast(CpuPool, None),
                cast(Clock, clock),
                why_not_hosted=partial(why_not_hosted, self.leading.replica_manager, self.metadata),
                in_thread=cast(Any, None),
                internal_topics=INTERNAL_TOPICS,
            ),
        )

    def link(self) -> CoordinatorLink:
        """The way to the coordinators of transactions."""
        return CoordinatorLinks(
            BROKER,
            self.transactions,
            TRANSACTION_STATE_TOPIC,
            self.metadata,
            cast(Any, None),
            MINUTE_MS,
            partial(sleep, self.there.timer, self.there.clock),
        )

    async def new_producer(self, name: str = "id") -> Producer:
        return await self.transactions.init_producer_id(name, MINUTE_MS, None)

    async def idle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
