"""Logs that move between log directories of a running broker, beside producers and consumers and over restarts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from broker.replica.directory_moves import PACE_CHECK_MS_MAX, Pacer
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.records.batch import batches, records
from protocol.schema import ZERO_UUID
from storage.disk.files import Files, OpenFile, OsFiles
from storage.log.log_durability import LogDurability
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.broker.handlers.test_produce_and_fetch import SIZE_MAX, batch_of, fetch, produce
from tests.storage.builders import NOW_MS, log_config, read_all
from tests.support.faulty_files import FaultyFiles
from tests.support.in_process import InProcessBroker, running_broker

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
TIMEOUT_S = 20
NOWHERE_NEAR_DONE = {THROTTLE: "1"}


class Place(NamedTuple):
    directory: str
    is_future: bool
    lag: int


class Disks:
    """Two log directories and the brokers that use them, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.paths = [str(folder / "a"), str(folder / "b")]

    def running(
        self, overrides: dict[str, str] | None = None, *, files: Files | None = None
    ) -> AbstractAsyncContextManager[InProcessBroker]:
        return running_broker(self._folder, {"log.dirs": ",".join(self.paths), **(overrides or {})}, files=files)

    def other(self, path: str) -> str:
        return next(it for it in self.paths if it != path)

    def names_in(self, path: str) -> list[str]:
        """Of everything there that has to do with partition 0 of the topic "t"."""
        return [entry.name for entry in Path(path).glob("t-0*")]


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


async def move(broker: InProcessBroker, topic: str, path: str, partition: int = 0) -> ErrorCode:
    asked = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
    response = await broker.ask(AlterReplicaLogDirsRequest(dirs=[asked]))
    return ErrorCode(response.results[0].partitions[0].error_code)


async def places(broker: InProcessBroker, topic: str, partition: int = 0) -> list[Place]:
    """Where the log lies, then its copy."""
    found = [
        Place(result.log_dir, one.is_future_key, one.offset_lag)
        for result in (await broker.ask(DescribeLogDirsRequest(topics=None))).results
        for described in result.topics
        for one in described.partitions
        if (described.name, one.partition_index) == (topic, partition)
    ]
    return sorted(found, key=lambda place: place.is_future)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.01)


async def until_it_lies_in(broker: InProcessBroker, topic: str, path: str) -> None:
    async def is_there() -> bool:
        return await places(broker, topic) == [Place(path, False, 0)]

    await until(is_there)


async def values(broker: InProcessBroker, topic: str, offset: int = 0) -> AsyncIterator[bytes]:
    """Of all records from `offset` on, as a consumer reads them."""
    while True:
        responded = (await fetch(broker, topic, {0: offset})).responses[0].partitions[0]
        assert responded.error_code == ErrorCode.NONE, ErrorCode(responded.error_code)
        if not responded.records:
            return
        for position, header in batches(responded.records):
            for record in records(responded.records, position, size_max=SIZE_MAX):
                if record.offset >= offset:
                    yield bytes(record.value)
            offset = header.next_offset


async def fill(broker: InProcessBroker, topic: str, count: int = 20, size: int = 1) -> list[bytes]:
    written = [str(number).encode() * size for number in range(count)]
    for value in written:
        assert not (await produce(broker, topic, {0: batch_of(value)}, acks=-1))[0].error_code
    return written


async def test_log_moves_to_another_directory_and_back(disks: Disks) -> None:
    async with disks.running({"log.segment.delete.delay.ms": "0"}) as broker:
        await broker.create_topic("t", segment_bytes="1000")
        written = await fill(broker, "t")
        ((here, _, _),) = await places(broker, "t")
        for path in (disks.other(here), here):
            assert await move(broker, "t", path) is ErrorCode.NONE
            await until_it_lies_in(broker, "t", path)
            assert [value async for value in values(broker, "t")] == written
            written += await fill(broker, "t", 3)

        async def is_gone() -> bool:
            return not disks.names_in(disks.other(here))

        await until(is_gone)
    async with disks.running() as broker:
        assert await places(broker, "t") == [Place(here, False, 0)]
        assert [value async for value in values(broker, "t")] == written


async def test_producers_and_consumers_are_not_disturbed_by_a_move(disks: Disks) -> None:
    async with disks.running() as broker:
        await broker.create_topic("t", segment_bytes="20000", flush_messages="1")
        written = await fill(broker, "t", 50, size=200)
        ((here, _, _),) = await places(broker, "t")
        is_over = False
        consumed: list[bytes] = []

        async def keep_producing(producer: int) -> None:
            number = 0
            while not is_over:
                value = f"{producer}-{number}".encode()
                responded = (await produce(broker, "t", {0: batch_of(value)}, acks=-1))[0]
                assert responded.error_code == ErrorCode.NONE, ErrorCode(responded.error_code)
                written.append(value)
                number += 1
                await asyncio.sleep(0)

        async def keep_consuming() -> None:
            while not is_over:
                consumed.extend([value async for value in values(broker, "t", len(consumed))])
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(keep_producing(number)) for number in range(3)]
        tasks.append(asyncio.create_task(keep_consuming()))
        for path in (disks.other(here), here):
            assert await move(broker, "t", path) is ErrorCode.NONE
            await until_it_lies_in(broker, "t", path)
        is_over = True
        await asyncio.gather(*tasks)
        consumed.extend([value async for value in values(broker, "t", len(consumed))])
        assert sorted(consumed) == sorted(written)
        assert [value async for value in values(broker, "t")] == consumed


async def test_throttled_move_ends_once_the_throttle_is_removed(disks: Disks) -> None:
    async with disks.running(NOWHERE_NEAR_DONE) as broker:
        await broker.create_topic("t")
        written = await fill(broker, "t")
        ((here, _, _),) = await places(broker, "t")
        there = disks.other(here)
        assert await move(broker, "t", there) is ErrorCode.NONE
        log, copy = await places(broker, "t")
        assert (log, copy.directory, copy.is_future) == (Place(here, False, 0), there, True)

        async def has_begun() -> bool:
            return (await places(broker, "t"))[1].lag < len(written)

        await until(has_begun)
        lag = (await places(broker, "t"))[1].lag
        await fill(broker, "t", 3)
        assert (await places(broker, "t"))[1].lag == lag + 3
        lifted = AlterableConfig(name=THROTTLE, config_operation=0, value="1000000")
        resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=[lifted])
        response = await broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert not response.responses[0].error_code
        await until_it_lies_in(broker, "t", there)


async def test_naming_the_current_directory_cancels_a_move(disks: Disks) -> None:
    async with disks.running(NOWHERE_NEAR_DONE) as broker:
        await broker.create_topic("t")
        await fill(broker, "t")
        ((here, _, _),) = await places(broker, "t")
        assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
        assert len(await places(broker, "t")) == 2
        assert await move(broker, "t", here) is ErrorCode.NONE
        assert await places(broker, "t") == [Place(here, False, 0)]


async def test_lag_of_moves_is_reported(disks: Disks) -> None:
    async with disks.running(NOWHERE_NEAR_DONE) as broker:
        moves = broker.services.directory_moves
        await broker.create_topic("t")
        written = await fill(broker, "t")
        assert moves.lag_max == 0
        ((here, _, _),) = await places(broker, "t")
        assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
        assert moves.lag_max == len(written)
        assert moves.failed_count == 0


async def test_failed_moves_are_counted_until_they_resume_or_are_cancelled(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("no more")

    async def is_stopped() -> bool:
        return moves.failed_count == 1

    async with disks.running() as broker:
        moves = broker.services.directory_moves
        await broker.create_topic("t")
        await fill(broker, "t")
        ((here, _, _),) = await places(broker, "t")
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr("broker.replica.directory_moves.catch_up", fail)
                assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
                assert moves.failed_count == 0
                await until(is_stopped)
        assert await move(broker, "t", here) is ErrorCode.NONE
        assert moves.failed_count == 0


async def test_move_continues_after_a_restart(disks: Disks) -> None:
    async with disks.running(NOWHERE_NEAR_DONE) as broker:
        await broker.create_topic("t")
        written = await fill(broker, "t")
        ((here, _, _),) = await places(broker, "t")
        assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
    async with disks.running() as broker:
        await until_it_lies_in(broker, "t", disks.other(here))
        assert [value async for value in values(broker, "t")] == written


async def test_deletion_of_a_topic_deletes_its_copies(disks: Disks) -> None:
    async with disks.running(NOWHERE_NEAR_DONE) as broker:
        await broker.create_topic("t")
        await fill(broker, "t")
        ((here, _, _),) = await places(broker, "t")
        assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
        response = await broker.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=5000)
        )
        assert not response.responses[0].error_code
        assert await places(broker, "t") == []
        await broker.create_topic("t")
        assert [place.is_future for place in await places(broker, "t")] == [False]


async def test_new_replica_is_created_in_the_requested_directory(disks: Disks) -> None:
    async with disks.running() as broker:
        for number, path in enumerate(reversed(disks.paths)):
            assert await move(broker, f"t{number}", path) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await broker.create_topic(f"t{number}")
            assert await places(broker, f"t{number}") == [Place(path, False, 0)]


# Syncs


class Gate:
    """Holds up each call of one kind to one file, from the `number`-th on, until it is opened."""

    def __init__(self, ending: str, number: int = 0) -> None:
        self._ending = ending
        self._left = number
        self._open = threading.Event()
        self.has_held = threading.Event()

    def open(self) -> None:
        self._open.set()

    def pass_by(self, path: str) -> None:
        if path.endswith(self._ending):
            self._left -= 1
            if self._left < 0:
                self.has_held.set()
                assert self._open.wait(TIMEOUT_S)


class GatedFiles(FaultyFiles):
    """A sync waits at the gates once it has synced what there was."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[Gate] = []

    def sync(self, file: OpenFile) -> None:
        super().sync(file)
        for gate in self.gates:
            gate.pass_by(file.path)


@pytest.mark.parametrize("sync_of_copy", [0, 1])
async def test_flushed_record_survives_power_loss_after_move(disks: Disks, tmp_path: Path, sync_of_copy: int) -> None:
    """It is appended while the copy is synced, so the copy gets it behind that sync."""
    files = GatedFiles()
    async with disks.running(files=files) as broker:
        await broker.create_topic("t", flush_messages="1")
        await fill(broker, "t", 3)
        ((here, _, _),) = await places(broker, "t")
        old = Gate(f"{here}/t-0/00000000000000000000.log")
        copy = Gate("-future/00000000000000000000.log", sync_of_copy)
        files.gates += [old, copy]
        assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
        assert await asyncio.to_thread(copy.has_held.wait, TIMEOUT_S)
        producing = asyncio.create_task(produce(broker, "t", {0: batch_of(b"last")}))
        await asyncio.sleep(0)
        log = broker.services.log_manager.get("t", 0)
        assert log is not None
        assert log.log_end_offset == 4
        assert not producing.done()
        copy.open()
        await until_it_lies_in(broker, "t", disks.other(here))
        old.open()
        assert (await producing)[0].error_code == ErrorCode.NONE
        files.lose_unsynced(tmp_path, into=tmp_path / "after")
    after = LogManager(
        [str(tmp_path / "after" / Path(path).name) for path in disks.paths],
        LogManagerSettings(),
        OsFiles(),
        random=Random(),
        new_threads=ThreadPoolExecutor,
        on_directory_failed=lambda *_: None,
    )
    after.startup.open()
    after.startup.load(lambda topic: log_config(), now_ms=NOW_MS)
    survivor = after.get("t", 0)
    assert survivor is not None
    assert survivor.log_end_offset == 4
    assert b"last" in [content for _, content in read_all(survivor)][-1]


async def test_flush_that_fails_in_the_old_log_is_repeated_in_the_new_one(disks: Disks) -> None:
    files = GatedFiles()
    async with disks.running(files=files) as broker:
        await broker.create_topic("t", flush_messages="1")
        await fill(broker, "t", 3)
        ((here, _, _),) = await places(broker, "t")
        old_log = broker.services.log_manager.get("t", 0)
        assert old_log is not None
        old = Gate(f"{here}/t-0/00000000000000000000.log")
        files.gates.append(old)
        producing = asyncio.create_task(produce(broker, "t", {0: batch_of(b"last")}))
        assert await asyncio.to_thread(old.has_held.wait, TIMEOUT_S)
        assert await move(broker, "t", disks.other(here)) is ErrorCode.NONE
        await until_it_lies_in(broker, "t", disks.other(here))
        old_log.take_offline()
        old.open()
        assert (await producing)[0].error_code == ErrorCode.NONE
        new_log = broker.services.log_manager.get("t", 0)
        assert new_log is not None
        assert new_log.durability.recovery_point == 4


async def test_log_that_cannot_be_flushed_fails_only_its_partition(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with disks.running() as broker:
        await broker.create_topic("t", 2, flush_messages="1")
        log = broker.services.log_manager.get("t", 0)
        assert log is not None
        flush = LogDurability.flush

        def fail_at_first(self: LogDurability, now_ms: int) -> None:
            if self is log.durability:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no more")
            flush(self, now_ms)

        monkeypatch.setattr(LogDurability, "flush", fail_at_first)
        responses = await produce(broker, "t", {0: batch_of(b"x"), 1: batch_of(b"x")})
        assert [responses[number].error_code for number in (0, 1)] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        monkeypatch.setattr(LogDurability, "flush", flush)


# The pace


def test_rate_limit_applies_to_all_moves_together() -> None:
    pacer = Pacer()
    assert pacer.wait_ms(1000, 5_000) == 0
    pacer.passed(300)
    pacer.passed(200)
    assert pacer.wait_ms(1000, 5_000) == 500
    assert pacer.wait_ms(1000, 5_400) == 100
    assert pacer.wait_ms(1000, 5_500) == 0


def test_unused_rate_is_not_accumulated() -> None:
    pacer = Pacer()
    assert pacer.wait_ms(1000, 0) == 0
    assert pacer.wait_ms(1000, 60_000) == 0
    pacer.passed(100)
    assert pacer.wait_ms(1000, 60_000) == 100


def test_raised_limit_takes_effect_at_once() -> None:
    pacer = Pacer()
    pacer.passed(10_000)
    assert pacer.wait_ms(1, 1) == PACE_CHECK_MS_MAX
    assert pacer.wait_ms(0, 1) == PACE_CHECK_MS_MAX
    assert pacer.wait_ms(100_000, 1) == 100
    assert pacer.wait_ms(100_000, 101) == 0
