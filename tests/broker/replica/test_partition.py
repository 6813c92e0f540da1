"""The effect of each event on a partition: its leader and epoch, its high watermark, and the start of its epochs."""

from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from broker.replica.partition import NO_EPOCH, Leadership, Partition
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker
from storage.batches.validation import AppendOrigin
from storage.disk.files import OsFiles
from storage.disk.shortages import TryLaterError
from storage.log import log_opening
from storage.log.log_state import LogOptions
from tests.storage.disk.test_directory_writer import Slow

ME, A, B = 1, 2, 3
REPLICAS = (ME, A, B)


def partition_in(folder: Path, **overrides: str) -> Partition:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    config = LogConfig.from_overrides(BrokerConfig.from_properties({}), settings)
    options = LogOptions(OsFiles(), Random(1))
    log = log_opening.create(options, str(folder / "t-0"), ("t", 0), config, topic_id=uuid4(), now_ms=0)
    return Partition("t", 0, ME, log)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return partition_in(tmp_path)


def led_by(
    leader: int, epoch: int, isr: tuple[int, ...] = REPLICAS, replicas: tuple[int, ...] = REPLICAS
) -> Leadership:
    return Leadership(1, leader, epoch, isr, epoch, replicas)


def append(partition: Partition, count: int = 1) -> None:
    batch = build_batch([RecordData(timestamp=1, key=None, value=b"v")] * count)
    partition.log.appends.append_as_leader(memoryview(bytearray(batch)), partition.leader_epoch, now_ms=0)
    partition.advance_high_watermark(0)


def test_leader_epoch_begins_without_a_record(partition: Partition) -> None:
    partition.lead(led_by(ME, 0), 0)
    append(partition)
    partition.lead(led_by(ME, 2), 0)
    assert list(partition.log.leader_epochs.entries) == [(0, 0), (2, 1)]
    partition.lead(led_by(ME, 3), 0)
    assert list(partition.log.leader_epochs.entries) == [(0, 0), (3, 1)]
    assert [tuple(partition.end_of_epoch(epoch)) for epoch in (0, 2, 3)] == [(0, 1), (0, 1), (3, 1)]


def test_an_offline_log_is_not_led(partition: Partition) -> None:
    partition.log.take_offline()
    with pytest.raises(KafkaError) as refused:
        partition.lead(led_by(ME, 4), 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (partition.is_leader, partition.leader_epoch, partition.leading_since) == (False, NO_EPOCH, NO_EPOCH)


def test_new_epoch_of_the_same_leader_keeps_the_offsets_of_followers(partition: Partition) -> None:
    assert partition.lead(led_by(ME, 0), 0)
    append(partition, 5)
    partition.follower_fetched(A, 4, 0, 0)
    assert partition.log.high_watermark == 0
    assert not partition.lead(led_by(ME, 1, (ME, A)), 0)
    assert (partition.leading_since, partition.leader_epoch) == (0, 1)
    assert partition.log.high_watermark == 4, "the dead follower was all that it waited for"


def test_offsets_of_followers_are_forgotten_if_another_leader_may_have_been_between(partition: Partition) -> None:
    """The followers may have truncated their logs to that of a leader of epoch 1, of which this broker never heard."""
    partition.lead(led_by(ME, 0), 0)
    append(partition, 5)
    partition.follower_fetched(A, 4, 0, 0)
    assert partition.lead(led_by(ME, 2, (ME, A)), 0), "another broker may have led"
    assert (partition.leading_since, partition.log.high_watermark) == (0, 0)
    partition.follower_fetched(A, 3, 0, 0)
    assert partition.log.high_watermark == 3


@pytest.mark.parametrize("between", ["follower", "stopped"])
def test_new_leader_has_no_offsets_of_its_followers(partition: Partition, between: str) -> None:
    partition.lead(led_by(ME, 0), 0)
    append(partition, 5)
    for follower in (A, B):
        partition.follower_fetched(follower, 2, 0, 0)
    if between == "follower":
        partition.follow(led_by(A, 1))
    else:
        partition.stop()
    assert partition.leading_since == NO_EPOCH
    assert partition.lead(led_by(ME, 2, (ME, A)), 0)
    assert partition.leading_since == 2
    partition.follower_fetched(B, 5, 0, 0)
    assert partition.log.high_watermark == 2, "never back, and not without the follower that is in sync"
    partition.follower_fetched(A, 3, 0, 0)
    assert partition.log.high_watermark == 3


def test_removed_replica_has_no_offset_when_it_returns(partition: Partition) -> None:
    partition.lead(led_by(ME, 0), 0)
    append(partition, 5)
    for follower in (A, B):
        partition.follower_fetched(follower, 3, 0, 0)
    partition.lead(led_by(ME, 1, (ME, A), (ME, A)), 0)
    partition.lead(led_by(ME, 2), 0)
    partition.follower_fetched(A, 5, 0, 0)
    assert partition.log.high_watermark == 3
    assert partition.low_watermark(lambda broker_id: True) == -1


@pytest.mark.parametrize(
    ("min_in_sync", "isr", "expected"),
    [
        ("1", (ME,), 3),
        ("2", (ME,), 0),
        ("2", (ME, A), 2),
        ("3", (ME, A), 0),
        ("3", (ME, A, B), 1),
        ("4", (ME, A, B), 1),
    ],
)
def test_nothing_is_committed_while_too_few_replicas_are_in_sync(
    tmp_path: Path, min_in_sync: str, isr: tuple[int, ...], expected: int
) -> None:
    """No more can be asked for than there are replicas."""
    partition = partition_in(tmp_path, min_insync_replicas=min_in_sync)
    partition.lead(led_by(ME, 0, isr), 0)
    append(partition, 3)
    partition.follower_fetched(A, 2, 0, 0)
    partition.follower_fetched(B, 1, 0, 0)
    assert partition.log.high_watermark == expected


def test_committed_records_stay_committed_when_the_isr_shrinks(tmp_path: Path) -> None:
    partition = partition_in(tmp_path, min_insync_replicas="2")
    partition.lead(led_by(ME, 0, (ME, A)), 0)
    append(partition, 3)
    partition.follower_fetched(A, 2, 0, 0)
    partition.lead(led_by(ME, 1, (ME,)), 0)
    append(partition)
    assert partition.log.high_watermark == 2
    partition.lead(led_by(ME, 2, (ME, B)), 0)
    partition.follower_fetched(B, 4, 0, 0)
    assert partition.log.high_watermark == 4


def test_a_partition_without_other_replicas_commits_with_the_append(tmp_path: Path) -> None:
    partition = partition_in(tmp_path, min_insync_replicas="3")
    partition.lead(led_by(ME, 0, (ME,), (ME,)), 0)
    append(partition)
    assert partition.log.high_watermark == 1


def test_a_partition_without_other_replicas_advances_its_last_stable_offset_with_the_append(tmp_path: Path) -> None:
    partition = partition_in(tmp_path)
    partition.lead(led_by(ME, 0, (ME,), (ME,)), 0)
    log = partition.log

    def append_built(batch: bytes, origin: AppendOrigin) -> tuple[int, int, int]:
        log.appends.append_as_leader(
            memoryview(bytearray(batch)), partition.leader_epoch, 0, origin, may_take_long=False
        )
        assert partition.advance_high_watermark(0)
        return log.log_end_offset, log.high_watermark, log.last_stable_offset

    row = RecordData(timestamp=1, key=None, value=b"v")
    assert append_built(build_batch([row] * 3), AppendOrigin.CLIENT) == (3, 3, 3)
    in_transaction = build_batch([row] * 2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert append_built(in_transaction, AppendOrigin.CLIENT) == (5, 5, 3)
    end = build_marker(TransactionMarker(ControlType.COMMIT, 0), producer_id=7, producer_epoch=0, now_ms=0)
    assert append_built(end, AppendOrigin.COORDINATOR) == (6, 6, 6)


def test_a_planned_append_is_kept_when_the_log_start_of_the_leader_rises(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "t-0")
    partition = Partition("t", 0, ME, slow.log)
    partition.follow(led_by(A, 1))
    records = bytearray(build_batch([RecordData(timestamp=1, key=None, value=b"v")] * 3))

    def fetched(part: bytearray) -> None:
        partition.append_fetched(
            memoryview(part), leader_epoch=1, leader_high_watermark=3, leader_log_start_offset=2, now_ms=0
        )

    fetched(records)
    assert (slow.log.log_end_offset, slow.log.log_start_offset) == (0, 0)
    slow.thread.run()
    fetched(bytearray())  # what the fetcher does once the records are stored
    assert (slow.log.log_end_offset, slow.log.high_watermark, slow.log.log_start_offset) == (3, 3, 2)


def test_nothing_is_appended_during_a_truncation_in_another_thread(partition: Partition) -> None:
    """Another fetcher may serve the partition by now, because num.replica.fetchers was changed."""
    partition.follow(led_by(A, 1))
    records = memoryview(bytearray(build_batch([RecordData(timestamp=1, key=None, value=b"v")])))

    def append_fetched() -> None:
        partition.append_fetched(records, leader_epoch=1, leader_high_watermark=1, leader_log_start_offset=0, now_ms=0)

    partition.log.planned.reserve()
    with pytest.raises(TryLaterError):
        append_fetched()
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (0, 0)
    partition.log.planned.release()
    append_fetched()
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 1)


@pytest.mark.parametrize(
    ("replica", "leader_epoch", "expected"),
    [
        (A, 3, None),
        (A, -1, None),
        (9, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ME, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (ME, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_replica_that_is_not_assigned_may_not_follow(
    partition: Partition, replica: int, leader_epoch: int, expected: ErrorCode | None
) -> None:
    """With an epoch it retries: it may have been assigned a moment ago, and know a newer one."""
    partition.lead(led_by(ME, 3), 0)
    refused = None
    try:
        partition.require_follower(replica, leader_epoch)
    except KafkaError as error:
        refused = error.code
    assert refused is expected
