"""A produce request that waits for many partitions: an event makes it check only the partition concerned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from broker.loop.purgatory import Purgatory
from broker.loop.timer import Timer
from broker.replica.delayed_produce import AwaitedAppend, DelayedProduce
from broker.replica.partition import Partition
from protocol.errors import ErrorCode

DEADLINE_MS = 100


@dataclass
class CommittingLog:
    is_offline: bool = False
    high_watermark: int = 0
    log_end_offset: int = 0


@dataclass
class CommittingPartition:
    """The part of a partition that a waiting append reads."""

    partition: int
    topic: str = "t"
    leading_since: int = 0
    has_enough_in_sync: bool = True
    log: CommittingLog = field(default_factory=CommittingLog)
    look_count: int = 0

    @property
    def is_leader(self) -> bool:
        self.look_count += 1
        return True


class Waiting:
    def __init__(self, numbers: list[int]) -> None:
        self.timer = Timer()
        self.purgatory = Purgatory("Produce", self.timer)
        self.partitions = {number: CommittingPartition(number) for number in numbers}
        self.appends = [
            AwaitedAppend(cast(Partition, self.partitions[number]), 0, end_offset)
            for end_offset, number in enumerate(numbers, 1)
        ]
        self.decided_count = 0
        operation = DelayedProduce(self.appends, self._decided)
        self.purgatory.try_complete_else_watch(operation, operation.keys, DEADLINE_MS)

    def _decided(self) -> None:
        self.decided_count += 1

    def commit(self, number: int, end_offset: int) -> None:
        self.partitions[number].log.high_watermark = end_offset
        self.purgatory.check_and_complete(("t", number))


def test_commit_makes_a_produce_check_only_its_partition() -> None:
    waiting = Waiting(list(range(1_000)))
    looks_before = sum(partition.look_count for partition in waiting.partitions.values())
    for number in range(1_000):
        assert waiting.decided_count == 0
        waiting.commit(number, 1_000)
    looks = sum(partition.look_count for partition in waiting.partitions.values()) - looks_before
    assert (looks, waiting.decided_count) == (1_000, 1)


def test_produce_waits_for_both_appends_to_one_partition() -> None:
    waiting = Waiting([5, 6, 5])
    waiting.commit(6, 9)
    waiting.commit(5, 1)
    assert [append.error for append in waiting.appends] == [ErrorCode.NONE, ErrorCode.NONE, None]
    waiting.commit(5, 3)
    assert (waiting.decided_count, waiting.appends[2].error) == (1, ErrorCode.NONE)


@pytest.mark.parametrize("number", [5, 6])
def test_pending_partitions_time_out_at_the_deadline(number: int) -> None:
    waiting = Waiting([5, 6])
    waiting.commit(number, 9)
    waiting.timer.advance(DEADLINE_MS)
    assert waiting.decided_count == 1
    expected = {number: ErrorCode.NONE, 11 - number: ErrorCode.REQUEST_TIMED_OUT}
    assert {append.partition.partition: append.error for append in waiting.appends} == expected


@pytest.mark.parametrize(
    ("has_enough_in_sync", "needs_isr", "expected"),
    [
        (True, True, ErrorCode.NONE),
        (False, True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (False, False, ErrorCode.NONE),
    ],
)
def test_committed_append_fails_if_the_isr_has_shrunk_below_its_minimum(
    has_enough_in_sync: bool, needs_isr: bool, expected: ErrorCode
) -> None:
    partition = CommittingPartition(0, has_enough_in_sync=has_enough_in_sync)
    partition.log.high_watermark = partition.log.log_end_offset = 1
    assert AwaitedAppend(cast(Partition, partition), 0, 1, needs_isr).outcome() is expected
