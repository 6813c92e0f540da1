"""Committed reads of one partition: the aborted transactions belong to what is returned, and only to that."""

from pathlib import Path
from typing import Any

import pytest

from base.pause import never, whole
from broker.replica.fetch_sessions import FetchPartition
from broker.replica.partition import FetchIsolation, Leadership, Partition
from broker.replica.reader import CONSUMER, FetchLimits, PartitionRead, read_partitions
from protocol.errors import ErrorCode
from protocol.records.control import ControlType
from protocol.schema import ZERO_UUID
from storage.log.log import Log
from storage.log.log_reader import LogReader
from storage.log.segment_reader import Wanted
from tests.storage.builders import NOW_MS, append, append_marker, batch, create_log, delete_expired, log_config, marker

PRODUCER_ID = 7
TOOL, OTHER_FOLLOWER = -2, 3


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    log = create_log(tmp_path, log_config(retention_ms=1000, file_delete_delay_ms=0))
    led = Partition("topic", 0, 1, log)
    led.lead(Leadership(0, 1, 0, [1], 0, [1]), 0)
    return led


def abort(log: Log, sequence: int) -> None:
    append(log, batch(1, producer_id=PRODUCER_ID, sequence=sequence, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, PRODUCER_ID))


def committed_read(partition: Partition, offset: int, bytes_max: int, *, nowait: bool = True) -> PartitionRead:
    wanted = FetchPartition(("topic", 0), "topic", ZERO_UUID, 0, fetch_offset=offset, bytes_max=bytes_max)
    limits = FetchLimits(1 << 20, read_committed=True, is_first_batch_whole=True)
    response = whole(read_partitions([(wanted, partition, ErrorCode.NONE)], limits, never, nowait=nowait))
    assert response.partitions[0].error_code is ErrorCode.NONE
    return response.partitions[0]


def first_offsets(read: PartitionRead) -> list[int]:
    assert read.aborted_transactions is not None
    return [aborted.first_offset for aborted in read.aborted_transactions]


def test_short_read_returns_only_overlapping_aborted_transactions(partition: Partition) -> None:
    log = partition.log
    for number in range(300):
        abort(log, number)
    partition.advance_high_watermark(0)
    read = committed_read(partition, 100, 1)
    assert first_offsets(read) == [100]
    assert first_offsets(committed_read(partition, 100, 2 * len(read.records) + 80)) == [100, 102]


def test_retention_after_a_read_loses_no_aborted_transaction(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = partition.log
    abort(log, 0)
    log.appends.roll(NOW_MS)
    append(log, batch(1, timestamp_ms=NOW_MS + 5000))
    partition.advance_high_watermark(0)
    original = LogReader.read_or_slice

    def read_then_expire(self: LogReader, wanted: Wanted) -> Any:
        fetched = original(self, wanted)
        assert delete_expired(log, NOW_MS + 3000) == 1
        return fetched

    monkeypatch.setattr(LogReader, "read_or_slice", read_then_expire)
    read = committed_read(partition, 0, 1000, nowait=False)
    assert len(read.records)
    assert first_offsets(read) == [0]


@pytest.mark.parametrize("read_committed", [False, True])
def test_only_followers_read_what_is_not_committed(*, read_committed: bool) -> None:
    consumer = FetchIsolation.LAST_STABLE_OFFSET if read_committed else FetchIsolation.HIGH_WATERMARK
    for replica_id, expected in {-7: consumer, TOOL: consumer, -1: consumer, 0: FetchIsolation.LOG_END}.items():
        limits = FetchLimits(1, read_committed, is_first_batch_whole=True, replica_id=replica_id)
        assert limits.isolation is expected, replica_id


@pytest.mark.parametrize(
    ("replica_id", "epoch", "code"),
    [
        (TOOL, -1, ErrorCode.NONE),
        (TOOL, 5, ErrorCode.NONE),
        (TOOL, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (TOOL, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (CONSUMER, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (OTHER_FOLLOWER, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_tools_that_compare_replicas_read_followers_too(
    partition: Partition, replica_id: int, epoch: int, code: ErrorCode
) -> None:
    append(partition.log, batch(3))
    partition.log.advance_high_watermark(3)
    partition.follow(Leadership(0, 2, 5, [1, 2], 0, [1, 2, OTHER_FOLLOWER]))
    wanted = FetchPartition(
        ("topic", 0), "topic", ZERO_UUID, 0, current_leader_epoch=epoch, fetch_offset=0, bytes_max=1000
    )
    limits = FetchLimits(1 << 20, replica_id=replica_id, read_committed=False, is_first_batch_whole=True)
    (read,) = whole(read_partitions([(wanted, partition, ErrorCode.NONE)], limits, never, nowait=True)).partitions
    assert read.error_code is code
    assert bool(read.records) is (code is ErrorCode.NONE)
