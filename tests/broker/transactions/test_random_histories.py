"""Random histories of one transactional id: several instances of its producer with requests of both versions, appends
that are slow or fail, markers that are refused, crashes. Whatever happens, the invariants below hold, and when all is
well again everything ends.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine

import pytest

from base.topic_partition import TopicPartition
from broker.transactions.machine.states import VALID_PREVIOUS, TransactionState
from broker.transactions.machine.transaction import VERSION_1, VERSION_2, Metadata
from protocol.errors import ErrorCode, KafkaError
from storage.producers.producer_state import Producer
from tests.broker.transactions.fakes import Surroundings

SEEDS = range(60)
STEPS = 60
TIMEOUT_MS = 20_000
PARTITIONS: tuple[TopicPartition, ...] = (("a", 0), ("a", 1), ("b", 0))
RETRIABLE = (3, 6, 7, 13, 19, 20, 56)

COMMIT, ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT


class History:
    """One transactional id and the responses of its clients."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.here = Surroundings()
        self.instances: list[Producer] = []
        self.promised: list[tuple[Producer, bool]] = []
        """Acknowledged ends of transactions, with their producers."""
        self.running: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []
        self.newest = Producer(-1, -1)

    async def run(self) -> None:
        await self.here.lead()
        self.here.coordinator.start()
        steps = (
            [self.init] * 2 + [self.add] * 5 + [self.end] * 5 + [self.pass_time] * 2
            + [self.hold, self.release, self.release, self.break_log, self.mend_log, self.refuse_markers, self.crash]
        )  # fmt: skip
        for _ in range(STEPS):
            await self.random.choice(steps)()
            await self.here.idle()
            self.check_log()
        await self.heal()
        assert self.failures == []

    # What clients do

    def start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self.finished)

    def finished(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    async def init(self) -> None:
        expected = self.random.choice([None, *self.instances[-2:]])
        newest_before = self.newest

        async def ask() -> None:
            try:
                producer = await self.here.coordinator.init_producer_id("id", TIMEOUT_MS, expected)
            except KafkaError:
                return
            assert producer >= newest_before, "epochs of one id only rise"
            self.newest = max(self.newest, producer)
            self.instances.append(producer)

        self.start(ask())

    async def add(self) -> None:
        if self.instances:
            producer = self.random.choice(self.instances)
            wanted = self.random.sample(PARTITIONS, self.random.randint(1, 2))
            newest_before, version = self.newest, self.random.choice([VERSION_1, VERSION_2])

            async def ask() -> None:
                try:
                    await self.here.add_partitions("id", producer, wanted, version=version)
                except KafkaError:
                    return
                assert producer >= newest_before, "an older instance changed something"

            self.start(ask())

    async def end(self) -> None:
        if self.instances:
            producer, is_committed = self.random.choice(self.instances), self.random.random() < 0.6
            newest_before, version = self.newest, self.random.choice([VERSION_1, VERSION_2])

            async def ask() -> None:
                try:
                    holder = await self.here.end("id", producer, is_committed=is_committed, version=version)
                except KafkaError:
                    return
                assert holder >= newest_before, "an older instance changed something"
                if holder > self.newest:
                    self.newest = holder
                    self.instances.append(holder)
                self.promised.append((holder, is_committed))
                state = self.here.state()
                assert (state in (COMMIT, TransactionState.COMPLETE_COMMIT)) == is_committed

            self.start(ask())

    # What happens to the broker

    async def pass_time(self) -> None:
        await self.here.advance(self.random.choice([50, 150, 5_000, 15_000]))

    async def hold(self) -> None:
        self.here.log.holds = True

    async def release(self) -> None:
        self.here.log.holds = False
        while self.here.log.held:
            error = self.random.choice([None, None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
            self.here.log.release(error=error)

    async def break_log(self) -> None:
        self.here.log.append_error = self.random.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])

    async def mend_log(self) -> None:
        self.here.log.append_error = None

    async def refuse_markers(self) -> None:
        self.here.channel.codes[self.random.choice(PARTITIONS)] = [self.random.choice(RETRIABLE)]

    async def crash(self) -> None:
        for task in list(self.running):
            task.cancel()
        await self.here.restart()
        self.here.coordinator.start()

    # What must hold

    def records(self) -> list[Metadata]:
        return [each for each in self.here.stored() if each is not None]

    def check_log(self) -> None:
        records = self.records()
        for before, after in itertools.pairwise(records):
            assert before.state in VALID_PREVIOUS[after.state], f"{before.state.title} to {after.state.title}"
            assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)
        self.check_markers(records)

    def check_markers(self, records: list[Metadata]) -> None:
        """Every marker is the outcome that the log had decided, of a partition that the transaction had."""
        decided = {
            (each.producer_id, each.producer_epoch, each.state is COMMIT, partition)
            for each in records
            if each.state in (COMMIT, ABORT)
            for partition in each.partitions
        }
        written = {
            (marker.producer_id, marker.producer_epoch, marker.is_committed, partition)
            for marker, partition in self.here.channel.written
        }
        assert written <= decided

    async def heal(self) -> None:
        """With everything well again every transaction ends, and with the outcome that was promised."""
        self.here.log.append_error = None
        self.here.log.holds = False
        while self.here.log.held:
            self.here.log.release()
        self.here.channel.codes.clear()
        await self.here.advance(TIMEOUT_MS + 11_000)
        self.check_log()
        records = self.records()
        if records:
            assert self.here.state() not in (TransactionState.ONGOING, COMMIT, ABORT)
        written = self.here.channel.written
        for index, record in enumerate(records):
            if record.state in (COMMIT, ABORT):
                complete = records[index + 1]
                assert complete.state.title == record.state.title.replace("Prepare", "Complete")
                for partition in record.partitions:
                    assert any(
                        marker[:3] == (record.producer_id, record.producer_epoch, record.state is COMMIT)
                        and where == partition
                        for marker, where in written
                    ), "a partition has no marker"
        for producer, is_committed in self.promised:
            wanted = COMMIT if is_committed else ABORT
            assert any((each.producer_id, each.producer_epoch) == producer and each.state is wanted for each in records)


@pytest.mark.parametrize("seed", SEEDS)
async def test_invariants_hold_in_a_random_history(seed: int) -> None:
    await History(seed).run()
