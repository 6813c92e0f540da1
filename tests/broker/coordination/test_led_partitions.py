"""Loading, unloading and lookup of the partitions of an internal topic, and the tasks of a coordinator."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.coordination.background import BackgroundTasks, PeriodicTask
from broker.coordination.led_partitions import LedPartition, LedPartitions, PartitionState
from broker.loop.timer import Timer
from protocol.errors import ErrorCode, KafkaError
from storage.disk.shortages import TryLaterError
from tests.broker.groups.fakes import FakeLog
from tests.support.manual_clock import ManualClock

logger = logging.getLogger("test")


class Contents:
    """`PartitionContents` that reads when it is released, or raises."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.error: Exception | None = None
        self.active: list[int] = []

    def new_partition(self, number: int, leader_epoch: int) -> LedPartition:
        return LedPartition(number, leader_epoch, BackgroundTasks(logger))

    async def read(self, partition: LedPartition) -> int:
        await self.released.wait()
        if self.error is not None:
            raise self.error
        return 1

    async def activated(self, partition: LedPartition) -> None:
        self.active.append(partition.number)

    def unloaded(self, partition: LedPartition) -> None:
        if partition.number in self.active:
            self.active.remove(partition.number)


def led_partitions(
    contents: Contents, *, reloads_in_new_epoch: bool = False, clock: ManualClock | None = None
) -> LedPartitions[LedPartition]:
    async def ensure_internal_topic(name: str) -> None:
        raise AssertionError(name)

    return LedPartitions(
        "topic", FakeLog(1), clock or ManualClock(), ensure_internal_topic, contents, logger,
        reloads_in_new_epoch=reloads_in_new_epoch,
    )  # fmt: skip


async def idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def error_of(partitions: LedPartitions[LedPartition]) -> ErrorCode:
    try:
        partitions.require("key")
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_a_partition_is_served_from_the_end_of_loading_to_resignation() -> None:
    contents = Contents()
    partitions = led_partitions(contents)
    assert error_of(partitions) is ErrorCode.NOT_COORDINATOR
    partitions.become_leader(0, 5)
    await idle()
    assert (error_of(partitions), partitions.are_loading()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True)
    contents.released.set()
    await idle()
    assert (error_of(partitions), partitions.are_loading(), contents.active) == (ErrorCode.NONE, False, [0])
    partition = partitions.require("key")
    assert partition.is_led
    partitions.resign(0)
    assert (partition.is_led, error_of(partitions), contents.active) == (False, ErrorCode.NOT_COORDINATOR, [])


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ZeroDivisionError()])
async def test_a_partition_that_cannot_be_read_is_not_served(error: Exception) -> None:
    contents = Contents()
    contents.error = error
    contents.released.set()
    partitions = led_partitions(contents)
    partitions.become_leader(0, 0)
    await idle()
    assert error_of(partitions) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.state for each in partitions] == [PartitionState.FAILED]
    assert list(partitions.active()) == []


async def test_a_load_is_repeated_after_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordination.led_partitions.RELOAD_S", 0)
    contents = Contents()
    contents.error = TryLaterError("no descriptor is free")
    contents.released.set()
    partitions = led_partitions(contents)
    partitions.become_leader(0, 0)
    await idle()
    assert error_of(partitions) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    contents.error = None
    await idle()
    assert error_of(partitions) is ErrorCode.NONE


async def test_repeated_loads_are_logged_once_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("broker.coordination.led_partitions.RELOAD_S", 0)
    contents = Contents()
    contents.error = TryLaterError("no descriptor is free")
    contents.released.set()
    clock = ManualClock()
    partitions = led_partitions(contents, clock=clock)
    for number in range(2):
        partitions.become_leader(number, 0)
    await idle()
    (record,) = caplog.records
    assert record.getMessage().startswith("Partition 0 of topic is loaded again")
    clock.advance(10_000)
    await idle()
    assert len(caplog.records) == 2
    await partitions.stop()


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_newer_epoch_reloads_only_where_that_is_set(reloads: bool) -> None:
    contents = Contents()
    contents.released.set()
    partitions = led_partitions(contents, reloads_in_new_epoch=reloads)
    partitions.become_leader(0, 1)
    await idle()
    first = partitions.require("key")
    partitions.become_leader(0, 1)
    assert partitions.require("key") is first
    partitions.become_leader(0, 2)
    await idle()
    assert (partitions.require("key") is not first, first.is_led) == (reloads, not reloads)
    assert partitions.require("key").leader_epoch == 2


async def test_stopping_cancels_loading_and_serves_nothing() -> None:
    contents = Contents()
    partitions = led_partitions(contents)
    partitions.become_leader(0, 0)
    await idle()
    await partitions.stop()
    assert (error_of(partitions), contents.active) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        partitions.are_loading()


async def test_a_periodic_task_does_not_overlap_with_itself() -> None:
    timer, clock, tasks = Timer(), ManualClock(), BackgroundTasks(logger)
    released = asyncio.Event()
    runs: list[int] = []

    async def work() -> None:
        runs.append(clock.monotonic_ms())
        await released.wait()

    start_ms = clock.monotonic_ms()
    periodic = PeriodicTask(timer, clock, tasks, 10, work)
    periodic.start()

    async def advance() -> None:
        clock.advance(10)
        timer.advance(clock.monotonic_ms())
        await idle()

    await advance()
    await advance()
    assert runs == [start_ms + 10]
    released.set()
    await idle()
    await advance()
    assert runs == [start_ms + 10, start_ms + 30]
    periodic.stop()
    await advance()
    assert len(runs) == 2


async def test_the_failure_of_a_background_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    tasks = BackgroundTasks(logger)
    tasks.start(fail())
    await idle()
    assert "A background task of the coordinator failed" in caplog.text
    assert tasks.cancel() == []
