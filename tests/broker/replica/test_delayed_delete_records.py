"""A DeleteRecords request waits for live replicas, a lost leader or its deadline."""

from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from broker.loop.purgatory import Purgatory
from broker.loop.timer import Timer
from broker.replica.delayed_delete_records import AwaitedDeletion, DelayedDeleteRecords
from broker.replica.machine.isr import UNKNOWN_OFFSET, low_watermark
from broker.replica.partition import Leadership, Partition
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import ErrorCode
from protocol.records.builder import RecordData, build_batch
from storage.disk.files import OsFiles
from storage.log import log_opening
from storage.log.log_state import LogOptions

BROKER_ID, OTHER_ID = 1, 2
DEADLINE_MS = 100


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Led here with ten records; the other replica was not heard of."""
    config = LogConfig.from_overrides(BrokerConfig.from_properties({}), {})
    options = LogOptions(OsFiles(), Random(1))
    log = log_opening.create(options, str(tmp_path / "t-0"), ("t", 0), config, topic_id=uuid4(), now_ms=0)
    partition = Partition("t", 0, BROKER_ID, log)
    partition.lead(Leadership(1, BROKER_ID, 0, (BROKER_ID,), 0, (BROKER_ID, OTHER_ID)), 0)
    batch = build_batch([RecordData(timestamp=1, key=None, value=b"v") for _ in range(10)])
    log.appends.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0, now_ms=0)
    partition.advance_high_watermark(0)
    return partition


class Waiting:
    def __init__(self, partition: Partition, offset: int) -> None:
        self.timer = Timer()
        self.purgatory = Purgatory("DeleteRecords", self.timer)
        self.live = {BROKER_ID, OTHER_ID}
        self.is_decided = False
        self.deletion = AwaitedDeletion(partition, partition.delete_records_before(offset))
        operation = DelayedDeleteRecords([self.deletion], self.live.__contains__, self._decided)
        self.purgatory.try_complete_else_watch(operation, ["t"], DEADLINE_MS)

    def _decided(self) -> None:
        assert not self.is_decided
        self.is_decided = True

    @property
    def outcome(self) -> tuple[bool, ErrorCode | None, int]:
        return self.is_decided, self.deletion.error, self.deletion.low_watermark


def test_deletion_waits_for_live_replicas_only(partition: Partition) -> None:
    waiting = Waiting(partition, 4)
    assert waiting.outcome == (False, None, -1)
    waiting.live.discard(OTHER_ID)
    waiting.purgatory.check_and_complete("t")
    assert waiting.outcome == (True, ErrorCode.NONE, 4)


def test_deletion_times_out_at_its_deadline(partition: Partition) -> None:
    waiting = Waiting(partition, 4)
    waiting.timer.advance(DEADLINE_MS)
    assert waiting.outcome == (True, ErrorCode.REQUEST_TIMED_OUT, -1)


def test_deletion_fails_when_leadership_is_lost(partition: Partition) -> None:
    waiting = Waiting(partition, 4)
    partition.follow(Leadership(1, OTHER_ID, 1, (OTHER_ID,), 1, (BROKER_ID, OTHER_ID)))
    waiting.purgatory.check_and_complete("t")
    assert waiting.outcome == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(
    ("replicas", "starts", "expected"),
    [((1, 2), {1: 5, 2: 3}, 3), ((1,), {1: 5, 2: 3}, 5), ((1, 2), {1: 5}, UNKNOWN_OFFSET), ((), {}, UNKNOWN_OFFSET)],
)
def test_low_watermark_is_the_lowest_start_of_the_live_replicas(
    replicas: tuple[int, ...], starts: dict[int, int], expected: int
) -> None:
    assert low_watermark(replicas, starts) == expected
