"""When a waiting fetch completes, and that an event makes it check only the partitions concerned."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest

from broker.loop.purgatory import Purgatory
from broker.loop.timer import Timer
from broker.replica.delayed_fetch import LATER_MS_MAX, AwaitedPartition, DelayedFetch, end_of_wait_ms
from broker.replica.partition import FetchIsolation, Partition


@pytest.mark.parametrize("wait_ms", [0, 1, 100, 255, 256, 500, 512, 29_000, 60_000, 2**31 - 1])
def test_fetch_waits_at_least_and_hardly_longer_than_its_maximum(wait_ms: int) -> None:
    for now_ms in (0, 1, 77, 1_000_003, 123_456_789):
        over_ms = end_of_wait_ms(now_ms, wait_ms) - now_ms - wait_ms
        assert 0 <= over_ms <= min(wait_ms / 128, LATER_MS_MAX)


def test_long_waits_of_several_fetches_end_together() -> None:
    ends = {end_of_wait_ms(now_ms, 29_000) for now_ms in range(5_000, 6_000)}
    assert len(ends) <= 10
    assert len({end_of_wait_ms(now_ms, 500) for now_ms in range(5_000, 6_000)}) <= 1_000


@dataclass
class SizedLog:
    """A log of one-byte records."""

    log_end_offset: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    is_offline: bool = False
    look_count: int = 0

    @property
    def reader(self) -> SizedLog:
        return self

    def size_between(self, start: int, end: int) -> int:
        self.look_count += 1
        return end - start


@dataclass
class SizedPartition:
    """The part of a partition that a waiting fetch reads."""

    partition: int
    topic: str = "t"
    is_leader: bool = True
    leader_epoch: int = 0
    log: SizedLog = field(default_factory=SizedLog)

    def readable_end_offset(self, isolation: FetchIsolation) -> int:
        return self.log.log_end_offset if isolation is FetchIsolation.LOG_END else self.log.high_watermark

    def awaited(self, bytes_max: int = 1_000_000) -> AwaitedPartition:
        return AwaitedPartition(cast(Partition, self), self.leader_epoch, 0, bytes_max, FetchIsolation.LOG_END)


class Waiting:
    """Fetches that wait for the same partitions."""

    def __init__(self, partition_count: int, bytes_min: int, fetch_count: int = 1, bytes_max: int = 1_000_000) -> None:
        self.purgatory = Purgatory("Fetch", Timer())
        self.partitions = [SizedPartition(number) for number in range(partition_count)]
        self.ready_count = 0
        for _ in range(fetch_count):
            awaited = [partition.awaited(bytes_max) for partition in self.partitions]
            operation = DelayedFetch(awaited, bytes_min, self._on_ready)
            self.purgatory.try_complete_else_watch(operation, operation.keys, 1_000)

    def _on_ready(self) -> None:
        self.ready_count += 1

    def append(self, number: int, size: int) -> None:
        self.partitions[number].log.log_end_offset += size
        self.changed(number)

    def changed(self, number: int) -> None:
        self.purgatory.check_and_complete(("t", number))

    @property
    def look_count(self) -> int:
        return sum(partition.log.look_count for partition in self.partitions)


def test_append_makes_a_fetch_check_only_its_partition() -> None:
    waiting = Waiting(partition_count=1_000, bytes_min=10_000_000, fetch_count=5)
    for number in range(1_000):
        waiting.append(number, 1)
    assert waiting.look_count == 5_000
    for _ in range(100):
        waiting.append(7, 1)
    assert waiting.look_count == 5_500
    assert waiting.ready_count == 0


@pytest.mark.parametrize("seed", range(20))
def test_fetch_is_ready_when_its_partitions_together_have_enough_bytes(seed: int) -> None:
    random = Random(seed)
    bytes_min = random.randint(2, 60)
    bytes_max = random.choice((5, 1_000))
    waiting = Waiting(random.randint(1, 5), bytes_min, bytes_max=bytes_max)
    for _ in range(40):
        number = random.randrange(len(waiting.partitions))
        if random.random() < 0.2:
            log = waiting.partitions[number].log
            log.log_end_offset = random.randint(0, log.log_end_offset)  # a truncated follower
            waiting.changed(number)
        else:
            waiting.append(number, random.randint(0, 9))
        gathered = sum(min(bytes_max, partition.log.log_end_offset) for partition in waiting.partitions)
        if gathered >= bytes_min:
            assert waiting.ready_count == 1
            return
        assert waiting.ready_count == 0


@pytest.mark.parametrize("partition_count", [1, 3])
@pytest.mark.parametrize("change", ["leader lost", "new epoch", "records deleted", "log offline"])
def test_a_fetch_is_ready_when_one_of_its_partitions_has_changed(partition_count: int, change: str) -> None:
    waiting = Waiting(partition_count, bytes_min=100)
    last = waiting.partitions[-1]
    if change == "leader lost":
        last.is_leader = False
    elif change == "new epoch":
        last.leader_epoch += 1
    elif change == "log offline":
        last.log.is_offline = True
    else:
        last.log.log_start_offset = 1
    waiting.changed(last.partition)
    assert waiting.ready_count == 1
