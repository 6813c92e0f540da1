"""A log in memory whose appends a test can hold and release, and the other parts that a coordinator needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple, NoReturn

from broker.groups.coordinator import GroupCoordinator
from broker.groups.settings import CoordinatorSettings
from broker.loop.slices import SLICE_MS, SlicedWork
from broker.loop.timer import Timer
from broker.share.on_demand import ShareOnDemand
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Record, batches, read_header, records, set_offset_and_epoch
from tests.broker.groups.machine.consumer.cluster import FakeTopics
from tests.support.manual_clock import ManualClock, SteppingClock

Buffer = bytes | bytearray | memoryview


class HeldAppend(NamedTuple):
    partition: int
    batch: bytearray
    done: asyncio.Future[None]


class FakeLog:
    """`OffsetsLog` in memory. Appends succeed synchronously, unless they are held or an error is set."""

    def __init__(self, partition_count: int | None = 1) -> None:
        self.count = partition_count
        self.logs: dict[int, bytearray] = {}
        self.start_offsets: dict[int, int] = {}
        self.append_error: ErrorCode | None = None
        self.has_enough_in_sync = True
        self.read_error: Exception | None = None
        self.holds = False
        self.held: list[HeldAppend] = []
        self.read_count = 0
        self.followers: dict[int, FakeLog] = {}
        """The logs of in-sync followers by broker id."""

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int, *, needs_isr: bool = True
    ) -> Awaitable[None] | None:
        if self.append_error is not None:
            raise KafkaError(self.append_error)
        if needs_isr and not self.has_enough_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        if not self.holds:
            self.write(partition, batch)
            return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held.append(HeldAppend(partition, batch, done))
        return done

    def release(self, index: int = 0, error: ErrorCode | None = None) -> None:
        """End a held append."""
        partition, batch, done = self.held.pop(index)
        if error is None:
            self.write(partition, batch)
            done.set_result(None)
        else:
            done.set_exception(KafkaError(error))

    def write(self, partition: int, batch: Buffer) -> None:
        patched = bytearray(batch)
        set_offset_and_epoch(patched, 0, self.end_offset(partition), 0)
        self.logs.setdefault(partition, bytearray()).extend(patched)

    def in_sync_followers(self, partition: int) -> list[int]:
        return list(self.followers)

    async def read_follower(self, partition: int, follower: int, offset: int, max_bytes: int) -> Buffer:
        return await self.followers[follower].read(partition, offset, max_bytes)

    def segment_path(self, partition: int, offset: int) -> str:
        return f"folder-{partition}/00000000000000000000.log"

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        await asyncio.sleep(0)
        self.read_count += 1
        if self.read_error is not None:
            raise self.read_error
        log = self.logs.get(partition, bytearray())
        found = bytearray()
        for position, header in batches(log):
            if header.next_offset > offset and (not found or len(found) + header.size <= max_bytes):
                found += log[position : position + header.size]
        return found

    def start_offset(self, partition: int) -> int:
        return self.start_offsets.get(partition, 0)

    def end_offset(self, partition: int) -> int:
        end = 0
        for _, header in batches(self.logs.get(partition, bytearray())):
            end = header.next_offset
        return end

    async def committed(self, partition: int, end_offset: int) -> None:
        """Return immediately: an append that is written is committed."""

    def partition_count(self) -> int | None:
        return self.count

    def records(self, partition: int = 0) -> list[Record]:
        log = self.logs.get(partition, bytearray())
        return [each for position, _ in batches(log) for each in records(log, position, size_max=1 << 24)]

    def batch_sequences(self, partition: int = 0) -> list[int]:
        log = self.logs.get(partition, bytearray())
        return [read_header(log, position).base_sequence for position, _ in batches(log)]


class FakeLegacyOffsets:
    """`LegacyOffsets` in memory."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.error: KafkaError | None = None

    async def read(self, group_id: str, topic: str, partition: int) -> int | None:
        if self.error is not None:
            raise self.error
        return self.offsets.get((group_id, topic, partition))

    async def write(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        if self.error is not None:
            raise self.error
        self.offsets[group_id, topic, partition] = offset


class Surroundings:
    """A coordinator with a clock, a timer and a log that the test controls."""

    def __init__(self, settings: CoordinatorSettings | None = None, *, partition_count: int | None = 1) -> None:
        self.clock = ManualClock()
        self.timer = Timer()
        self.log = FakeLog(partition_count)
        self.legacy = FakeLegacyOffsets()
        self.creation_error: KafkaError | None = None
        self.created: list[str] = []
        self.settings = settings or CoordinatorSettings()
        self.sliced_work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms, steps_min=1)
        self.topics = FakeTopics(t=4)
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        """Another coordinator over the same log, as after a restart."""
        return GroupCoordinator(
            self.settings,
            self.log,
            self.timer,
            self.clock,
            self.ensure_internal_topic,
            self.sliced_work,
            lambda: self.topics,
            ShareOnDemand(_no_share_groups),
        )

    async def ensure_internal_topic(self, name: str) -> None:
        await asyncio.sleep(0)
        self.created.append(name)
        if self.creation_error is not None:
            raise self.creation_error
        self.log.count = 1

    def advance(self, milliseconds: int) -> None:
        """Let time pass, running what is due on the way when it is due."""
        target = self.clock.monotonic_ms() + milliseconds
        while (due := self.timer.next_deadline_ms()) is not None and due <= target:
            self.clock.advance(max(0, due - self.clock.monotonic_ms()))
            self.timer.advance(self.clock.monotonic_ms())
        self.clock.advance(target - self.clock.monotonic_ms())

    async def lead(self, *partitions: int) -> None:
        """Become leader of partitions (all, unless some are named) and finish loading."""
        for partition in partitions or range(self.log.count or 0):
            self.coordinator.partitions.become_leader(partition, 0)
        await self.idle()

    async def restart(self) -> None:
        """Replace the coordinator, without stopping it, by a new one that loads everything."""
        self.coordinator = self.new_coordinator()
        await self.lead()

    async def idle(self) -> None:
        """Run everything that can run now."""
        for _ in range(200):
            await asyncio.sleep(0)


def _no_share_groups() -> NoReturn:
    raise AssertionError("no test here has a share group")
