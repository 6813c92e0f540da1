"""The parts that a transaction coordinator needs in a test: a log, leaders, channels, time, producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import NamedTuple

from base.topic_partition import TopicPartition
from broker.loop.timer import Timer
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.records import read_key, read_value
from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import VERSION_1, EndOfTransaction, Metadata
from broker.transactions.markers import Codes, Marker, MarkerSender
from broker.transactions.settings import TransactionSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import TRANSACTION_STATE_TOPIC
from storage.producers.producer_state import Producer
from tests.broker.groups.fakes import FakeLog
from tests.support.manual_clock import ManualClock

BROKER = 1


class FakeLeaders:
    """`Leaders` of which every partition is led by this broker, unless a test changes it."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.deleted: set[str] = set()
        self.has_arrived = True

    def contains(self, topic: str, partition: int) -> bool:
        return self.has_arrived and topic not in self.deleted

    def leader_of(self, topic: str, partition: int) -> int:
        return self.leaders.get((topic, partition), BROKER if self.contains(topic, partition) else -1)

    def partition_count(self, topic: str) -> int | None:
        return 1 if self.has_arrived and topic == TRANSACTION_STATE_TOPIC else None


class HeldWrite(NamedTuple):
    marker: Marker
    partitions: tuple[TopicPartition, ...]
    done: asyncio.Future[Codes]

    def release(self, code: int = 0) -> None:
        self.done.set_result(dict.fromkeys(self.partitions, code))


class FakeChannel:
    """`MarkerChannel` that responds synchronously, unless it holds. `codes` are the next results of each partition."""

    def __init__(self) -> None:
        self.written: list[tuple[Marker, TopicPartition]] = []
        """Markers that are in a log."""
        self.codes: dict[TopicPartition, list[int]] = {}
        self.asked: list[tuple[TopicPartition, ...]] = []
        self.holds = False
        self.held: list[HeldWrite] = []

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes | Awaitable[Codes]:
        self.asked.append(tuple(partitions))
        if self.holds:
            done: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
            self.held.append(HeldWrite(marker, tuple(partitions), done))
            return done
        results = {}
        for partition in partitions:
            waiting = self.codes.get(partition)
            results[partition] = waiting.pop(0) if waiting else 0
            if not results[partition]:
                self.written.append((marker, partition))
        return results


class Surroundings:
    """A coordinator with a clock, a timer, a log and leaders that the test controls."""

    def __init__(self, settings: TransactionSettings | None = None, *, partition_count: int | None = 1) -> None:
        self.clock = ManualClock()
        self.timer = Timer()
        self.log = FakeLog(partition_count)
        self.leaders = FakeLeaders()
        self.channel = FakeChannel()
        self.settings = settings or TransactionSettings()
        self.next_id = 100
        self.id_error: KafkaError | None = None
        self.created: list[str] = []
        self.creation_error: KafkaError | None = None
        self.epoch = 0
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> TransactionCoordinator:
        """Another coordinator over the same log, as after a restart."""
        return TransactionCoordinator(
            self.settings,
            self.log,
            MarkerSender(TRANSACTION_STATE_TOPIC, self.leaders, {BROKER: self.channel}, self.timer, self.clock),
            self.timer,
            self.clock,
            next_producer_id=self.next_producer_id,
            ensure_internal_topic=self.ensure_internal_topic,
        )

    async def next_producer_id(self) -> int:
        await asyncio.sleep(0)
        if self.id_error is not None:
            raise self.id_error
        self.next_id += 1
        return self.next_id - 1

    async def ensure_internal_topic(self, name: str) -> None:
        await asyncio.sleep(0)
        self.created.append(name)
        if self.creation_error is not None:
            raise self.creation_error
        self.log.count = 1

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        *,
        version: int = VERSION_1,
    ) -> None:
        await self.coordinator.add_partitions(transactional_id, producer, partitions, version=version)

    async def end(
        self, transactional_id: str, producer: Producer, *, is_committed: bool, version: int = VERSION_1
    ) -> Producer:
        return await self.coordinator.end(transactional_id, EndOfTransaction(producer, is_committed, version))

    async def lead(self) -> None:
        """Become leader of all partitions in a new epoch and finish loading."""
        for partition in range(self.log.count or 0):
            self.coordinator.partitions.become_leader(partition, self.epoch)
        await self.idle()

    async def restart(self) -> None:
        """Kill the broker: what has not reached the log is lost, and a new coordinator loads the rest."""
        for partition in range(self.log.count or 0):
            self.coordinator.partitions.resign(partition)
        self.log.held.clear()
        self.log.append_error = None
        self.log.holds = False
        self.channel.holds = False
        self.channel.held.clear()
        self.timer = Timer()
        self.epoch += 1
        self.coordinator = self.new_coordinator()
        await self.lead()

    async def advance(self, milliseconds: int) -> None:
        """Let time pass, running what is due on the way when it is due."""
        await self.idle()
        target = self.clock.monotonic_ms() + milliseconds
        while (due := self.timer.next_deadline_ms()) is not None and due <= target:
            self.clock.advance(max(0, due - self.clock.monotonic_ms()))
            self.timer.advance(self.clock.monotonic_ms())
            await self.idle()
        self.clock.advance(target - self.clock.monotonic_ms())

    async def idle(self) -> None:
        """Let everything that can run do so, and check each transactional id."""
        for _ in range(50):
            await asyncio.sleep(0)
        for partition in self.coordinator.partitions:
            for transaction in partition.transactions.values():
                transaction.check()

    def stored(self, transactional_id: str = "id", partition: int = 0) -> list[Metadata | None]:
        """Return the records of an id in the log; None for a tombstone."""
        return [
            None if record.value is None else read_value(record.value)
            for record in self.log.records(partition)
            if record.key is not None and read_key(record.key) == transactional_id
        ]

    def states(self, transactional_id: str = "id", partition: int = 0) -> list[str]:
        return ["-" if each is None else each.state.title for each in self.stored(transactional_id, partition)]

    def state(self, transactional_id: str = "id") -> TransactionState:
        return self.coordinator.inspection.describe(transactional_id).state


def code_of(error: BaseException | None) -> ErrorCode:
    assert isinstance(error, KafkaError), error
    return error.code
