"""A broker that is killed, or whose disk fails, at each call with which transactions change files.

The logs, the coordinator and the markers are real. A producer commits, aborts, and leaves a transaction open. For each
call: after a restart every transaction is complete or absent, acknowledged results hold, no transaction stays open
beyond its timeout, and the transactional id continues with an unused epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar, cast

import pytest

from base.pause import never, whole
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.coordination.replicated_log import ReplicatedLog
from broker.loop.driver import start
from broker.loop.timer import Timer
from broker.replica.bound_partition import BoundPartition
from broker.replica.own_appends import OwnAppends
from broker.replica.transaction_verification import Guards
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import EndOfTransaction
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import MarkerSender
from broker.transactions.settings import TransactionSettings
from protocol.errors import KafkaError
from protocol.internal_topics import TRANSACTION_STATE_TOPIC
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from protocol.records.batch import batches, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, read_marker
from storage.disk.files import Files
from storage.disk.meta_properties import MetaProperties
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from storage.producers.producer_state import Producer
from tests.broker.transactions.fakes import BROKER, FakeLeaders
from tests.storage.builders import QuickFiles, done, in_thread, log_config, pause, read_all
from tests.support.faulty_files import Crashed, FaultyFiles
from tests.support.manual_clock import ManualClock
from tests.support.replicas import Replicas

T = TypeVar("T")

CONFIG = log_config(segment_bytes=1 << 20, index_interval_bytes=100)
T0, T1 = ("t", 0), ("t", 1)
TIMEOUT_MS = 60_000
STATE_LOG = (TRANSACTION_STATE_TOPIC, 0)


class Reported(NamedTuple):
    """The producer's view: its id and epoch in each transaction, and the acknowledged result (None: none)."""

    producer: Producer
    value: bytes
    is_committed: bool | None


class World:
    """One life of a broker over a folder."""

    def __init__(self, directory: Path, files: Files, clock: ManualClock, epoch: int) -> None:
        self.clock = clock
        self.timer = Timer()
        self.epoch = epoch
        self.log_manager = LogManager(
            [str(directory)],
            LogManagerSettings(),
            files,
            random=Random(),
            new_threads=ThreadPoolExecutor,
            on_directory_failed=lambda *_: None,
        )
        self.log_manager.startup.open()
        self.log_manager.startup.claim(MetaProperties(BROKER, "cluster"))
        self.log_manager.startup.load(lambda topic: CONFIG, now_ms=clock.now_ms())
        self.replica_manager = Replicas(BROKER, self.log_manager, self.timer, lambda _: CONFIG)
        leaders = FakeLeaders()
        own_appends = OwnAppends(self.replica_manager, clock, _at_once)
        writer = MarkerWriter(
            self.replica_manager,
            own_appends,
            Guards(lambda: TIMEOUT_MS, lambda partition: 0),
            clock,
            TIMEOUT_MS,
            lambda *_: None,
        )
        self.coordinator = TransactionCoordinator(
            TransactionSettings(),
            ReplicatedLog(
                TRANSACTION_STATE_TOPIC,
                self.replica_manager,
                own_appends,
                cast(MetadataCache, leaders),
                clock,
                _at_once,
                connect=cast(Any, None),
            ),
            MarkerSender(TRANSACTION_STATE_TOPIC, leaders, {BROKER: writer}, self.timer, clock),
            self.timer,
            clock,
            next_producer_id=self._next_producer_id,
            ensure_internal_topic=lambda _: _at_once(lambda: None),
        )

    async def _next_producer_id(self) -> int:
        return 1000 * self.epoch

    async def lead(self) -> None:
        for topic, count in ((TRANSACTION_STATE_TOPIC, 1), ("t", 2)):
            states = [
                LeaderAndIsrPartitionState(
                    partition_index=index, controller_epoch=1, leader=BROKER, leader_epoch=self.epoch, isr=[BROKER],
                    partition_epoch=self.epoch, replicas=[BROKER],
                )
                for index in range(count)
            ]  # fmt: skip
            topics = [LeaderAndIsrTopicState(topic_name=topic, partition_states=states)]
            request = LeaderAndIsrRequest(
                controller_id=BROKER, controller_epoch=1, topic_states=topics, live_leaders=[]
            )
            done(self.replica_manager.assigned.create_logs(request, self.clock.now_ms(), pause, in_thread))
            whole(self.replica_manager.assigned.become_leader_or_follower(request, never))
        self.coordinator.partitions.become_leader(0, self.epoch)
        await self.idle()

    async def idle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    def produce(self, producer: Producer, sequence: int, value: bytes) -> None:
        for name in (T0, T1):
            partition = self.replica_manager.find(*name)
            assert partition is not None
            batch = build_batch(
                [RecordData(self.clock.now_ms(), b"k", value)], producer_id=producer.producer_id,
                producer_epoch=producer.epoch, base_sequence=sequence, is_transactional=True,
            )  # fmt: skip
            BoundPartition(partition, self.replica_manager).append(
                memoryview(bytearray(batch)), needs_isr=True, now_ms=self.clock.now_ms()
            )

    async def pass_time(self, milliseconds: int) -> None:
        """Let it pass in steps of the pause between two tries."""
        for _ in range(milliseconds // 100):
            self.clock.advance(100)
            self.timer.advance(self.clock.monotonic_ms())
            await self.idle()

    async def live(self, reported: list[Reported]) -> None:
        """Run the script; `reported` gets the results that the producer receives."""
        await self.lead()
        producer = await self.coordinator.init_producer_id("id", TIMEOUT_MS, None)
        for number, is_committed in enumerate((True, False, True, None)):
            value = b"%d" % number
            reported.append(Reported(producer, value, None))
            await _settled(start(self.coordinator.add_partitions("id", producer, [T0])))
            await _settled(start(self.coordinator.add_partitions("id", producer, [T1])))
            self.produce(producer, number, value)
            if is_committed is None:
                return
            await _settled(start(self.coordinator.end("id", EndOfTransaction(producer, is_committed))))
            reported[-1] = Reported(producer, value, is_committed)
            await self.idle()

    def close(self) -> None:
        self.log_manager.directories.unlock()


async def _settled(storing: object) -> None:
    if isinstance(storing, Awaitable):
        await storing


async def _at_once(work: Callable[[], T]) -> T:
    return work()


def read_back(world: World, name: TopicPartition) -> tuple[dict[bytes, str], dict[Producer, int]]:
    """The values of a partition with what became of each, and how many markers ended something of each producer."""
    partition = world.replica_manager.find(*name)
    assert partition is not None
    fates: dict[bytes, str] = {}
    open_values: defaultdict[int, list[bytes]] = defaultdict(list)
    effective: defaultdict[Producer, int] = defaultdict(int)
    for _, content in read_all(partition.log):
        for position, header in batches(content):
            for record in records(content, position, size_max=1 << 16):
                if not header.is_control:
                    assert record.value is not None
                    assert record.value not in fates
                    fates[record.value] = "open"
                    open_values[header.producer_id].append(record.value)
                    continue
                marker = read_marker(record)
                assert marker is not None
                ended = open_values.pop(header.producer_id, [])
                effective[Producer(header.producer_id, header.producer_epoch)] += bool(ended)
                for value in ended:
                    fates[value] = "committed" if marker.control_type is ControlType.COMMIT else "aborted"
    assert partition.log.last_stable_offset == partition.log.high_watermark == partition.log.log_end_offset
    aborted = partition.log.reader.aborted_transactions(0, partition.log.log_end_offset)
    assert len(aborted) == sum(fate == "aborted" for fate in fates.values())
    return fates, effective


async def check(directory: Path, clock: ManualClock, reported: list[Reported]) -> None:
    world = World(directory, QuickFiles(), clock, 2)
    await world.lead()
    await world.pass_time(200)
    clock.advance(TIMEOUT_MS)
    await world.coordinator.expiry.abort_timed_out()
    await world.pass_time(200)
    for name in (T0, T1):
        fates, _ = read_back(world, name)
        other, _ = read_back(world, T1 if name == T0 else T0)
        for each in reported:
            fate = fates.get(each.value, "absent")
            if each.is_committed is not None:
                assert fate == ("committed" if each.is_committed else "aborted")
            # All or nothing: who was cut off before it wrote to both partitions has not committed.
            assert fate != "open"
            assert (fate == "committed") == (other.get(each.value) == "committed")
    newest = max((each.producer for each in reported), default=Producer(-1, -1))
    assert await world.coordinator.init_producer_id("id", TIMEOUT_MS, None) > newest
    described = world.coordinator.inspection.describe("id")
    assert described.state is TransactionState.EMPTY
    await world.coordinator.stop()
    world.close()


async def run(directory: Path, files: FaultyFiles) -> tuple[ManualClock, list[Reported]]:
    """One life, to its bitter end."""
    clock, reported = ManualClock(), list[Reported]()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # a dead process reports nothing
    world: World | None = None
    with contextlib.suppress(Crashed, KafkaError, OSError):
        world = World(directory, files, clock, 1)
        await world.live(reported)
    if world is not None:
        with contextlib.suppress(Crashed):
            await world.idle()
            await world.coordinator.stop()
    files.bury()
    asyncio.get_running_loop().set_exception_handler(None)
    return clock, reported


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    files = FaultyFiles()
    asyncio.run(run(tmp_path_factory.mktemp("whole") / "logs", files))
    return files.calls


def each_step(calls: list[str]) -> Iterator[int]:
    """The calls by which transactions change something: those after the logs were made."""
    first = max(number for number, call in enumerate(calls) if call.startswith("create"))
    assert len(calls) - first > 25
    yield from range(first, len(calls))


@pytest.mark.parametrize("torn_bytes", [0, 40, 70])
async def test_kill_at_any_call_loses_no_acknowledged_result(tmp_path: Path, calls: list[str], torn_bytes: int) -> None:
    for number in each_step(calls):
        files, directory = FaultyFiles(), tmp_path / str(number)
        files.crash_at(number, torn_bytes=torn_bytes)
        clock, reported = await run(directory, files)
        await check(directory, clock, reported)


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_failure_of_any_call_loses_no_acknowledged_result(
    tmp_path: Path, calls: list[str], error: int, is_lasting: bool
) -> None:
    for number in each_step(calls):
        files, directory = FaultyFiles(), tmp_path / str(number)
        if is_lasting:
            files.fail_from(number, error)
        else:
            files.fail_call(number, error)
        clock, reported = await run(directory, files)
        await check(directory, clock, reported)
