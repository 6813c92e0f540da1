"""Leadership, commits and waiters over real logs, told by control requests as the controller sends them."""

import weakref
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from broker.replica.delayed_fetch import AwaitedPartition
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.isr import next_high_watermark
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.timer import Timer
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.records.builder import RecordData, build_batch
from storage.checkpoints import read_partition_metadata
from storage.files import OsFiles
from storage.log_manager import LogManager, LogManagerSettings
from storage.names import PARTITION_METADATA

ME, OTHER = 0, 1
TOPIC_ID = UUID(int=7)
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig.from_overrides(BrokerConfig.from_properties({}), {})


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def log_manager(tmp_path: Path) -> LogManager:
    opened = LogManager([str(tmp_path / "data")], LogManagerSettings(), OsFiles(), random=Random(1))
    opened.open()
    return opened


@pytest.fixture
def manager(log_manager: LogManager, timer: Timer) -> ReplicaManager:
    return ReplicaManager(
        ME,
        log_manager,
        timer,
        topic_config=lambda topic: CONFIG,
        produce_purge_interval=1000,
        fetch_purge_interval=1000,
    )


def tell(
    manager: ReplicaManager,
    *,
    leader: int = ME,
    leader_epoch: int = 0,
    isr: tuple[int, ...] = (ME,),
    controller_epoch: int = 1,
    topic_id: UUID = TOPIC_ID,
) -> ErrorCode:
    """One LeaderAndIsr about t-0; the partition's error, or the whole request's."""
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=0,
        replicas=[ME, OTHER],
    )
    response = manager.become_leader_or_follower(
        LeaderAndIsrRequest(
            controller_id=ME,
            controller_epoch=controller_epoch,
            topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])],
            live_leaders=[],
        ),
        NOW_MS,
    )
    if response.error_code:
        return ErrorCode(response.error_code)
    return ErrorCode(response.topics[0].partition_errors[0].error_code)


def stop(manager: ReplicaManager, *, is_deleted: bool) -> None:
    state = StopReplicaPartitionState(partition_index=0, delete_partition=is_deleted)
    topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
    response = manager.stop_replicas(
        StopReplicaRequest(controller_id=ME, controller_epoch=1, topic_states=[topic]), NOW_MS
    )
    assert [one.error_code for one in response.partition_errors] == [ErrorCode.NONE]


def led(manager: ReplicaManager) -> Partition:
    partition = manager.find("t", 0)
    assert partition is not None
    return partition


def append(manager: ReplicaManager, *, needs_isr: bool = False) -> AwaitedAppend:
    partition = led(manager)
    batch = bytearray(build_batch([RecordData(timestamp=NOW_MS, key=None, value=b"v")]))
    result = manager.append(partition, memoryview(batch), needs_isr=needs_isr, now_ms=NOW_MS)
    return AwaitedAppend(partition, partition.leader_epoch, result.last_offset + 1)


@pytest.mark.parametrize("min_in_sync", ["2", "3"])
def test_too_few_in_sync_replicas_refuse_acks_all_only(manager: ReplicaManager, min_in_sync: str) -> None:
    """Three of two replicas cannot be asked for; two can."""
    tell(manager)
    settings = {"min.insync.replicas": min_in_sync}
    led(manager).log.reconfigure(LogConfig.from_overrides(BrokerConfig.from_properties({}), settings))
    with pytest.raises(KafkaError) as refused:
        append(manager, needs_isr=True)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "insufficient to satisfy the min.isr requirement of 2 " in str(refused.value)
    append(manager)
    tell(manager, isr=(ME, OTHER), leader_epoch=1)
    append(manager, needs_isr=True)
    assert led(manager).log.log_end_offset == 2


@pytest.mark.parametrize(
    ("isr", "ends", "current", "expected"),
    [
        ((0,), {0: 5}, 0, 5),
        ((0, 1), {0: 5, 1: 3}, 0, 3),
        ((0, 1), {0: 5}, 2, 2),
        ((0, 1), {0: 5, 1: 1}, 3, 3),
        ((), {}, 4, 4),
    ],
    ids=["alone", "slowest counts", "unheard of holds it", "never back", "nobody in sync"],
)
def test_the_high_watermark_is_what_all_in_sync_replicas_have(
    isr: tuple[int, ...], ends: dict[int, int], current: int, expected: int
) -> None:
    assert next_high_watermark(isr, ends, current) == expected


def test_a_leader_alone_in_sync_commits_at_once(manager: ReplicaManager) -> None:
    assert tell(manager) == ErrorCode.NONE
    done: list[str] = []
    written = append(manager)
    manager.await_commit([written], 1000, lambda: done.append("committed"))
    assert (done, written.error) == (["committed"], ErrorCode.NONE)


@pytest.mark.parametrize(
    ("isr", "min_in_sync", "under_replicated", "under_min_isr", "at_min_isr"),
    [
        ((ME, OTHER), 1, False, False, False),
        ((ME, OTHER), 2, False, False, True),
        ((ME,), 1, True, False, True),
        ((ME,), 2, True, True, False),
        ((ME,), 3, True, True, False),
        ((ME, OTHER), 3, False, False, True),
    ],
    ids=["all well", "none to lose", "alone", "too few", "asks for more than there are", "all there are"],
)
def test_how_well_a_led_partition_is_replicated(
    manager: ReplicaManager,
    isr: tuple[int, ...],
    min_in_sync: int,
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
) -> None:
    tell(manager, isr=isr)
    partition = led(manager)
    overrides = {"min.insync.replicas": str(min_in_sync)}
    partition.log.reconfigure(LogConfig.from_overrides(BrokerConfig.from_properties({}), overrides))
    found = (partition.is_under_replicated, partition.is_under_min_isr, partition.is_at_min_isr)
    assert found == (under_replicated, under_min_isr, at_min_isr)
    tell(manager, leader=OTHER, leader_epoch=1, isr=isr)
    is_told = (partition.is_under_replicated, partition.is_under_min_isr, partition.is_at_min_isr)
    assert is_told == (False, False, False), "a follower does not say"


def test_with_a_follower_in_sync_the_commit_waits_and_times_out(manager: ReplicaManager, timer: Timer) -> None:
    tell(manager, isr=(ME, OTHER))
    done: list[str] = []
    written = append(manager, needs_isr=True)
    manager.await_commit([written], 1000, lambda: done.append("decided"))
    assert not done
    timer.advance(1000)
    assert (done, written.error) == (["decided"], ErrorCode.REQUEST_TIMED_OUT)
    assert led(manager).log.log_end_offset == 1, "the data stays"


def test_a_shrunk_isr_commits_what_waited(manager: ReplicaManager) -> None:
    tell(manager, isr=(ME, OTHER))
    done: list[str] = []
    written = append(manager)
    manager.await_commit([written], 1000, lambda: done.append("decided"))
    tell(manager, isr=(ME,))
    assert (done, written.error) == (["decided"], ErrorCode.NONE)


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "follows now"])
def test_who_waits_is_told_when_leadership_is_lost(manager: ReplicaManager, is_stopped: bool) -> None:
    tell(manager, isr=(ME, OTHER))
    done: list[str] = []
    written = append(manager)
    manager.await_commit([written], 1000, lambda: done.append("produce"))
    awaited = AwaitedPartition(led(manager), 0, 0, 1000, read_committed=False)
    manager.await_bytes([awaited], 1, 1000, lambda: done.append("fetch"))
    assert not done, "nothing is committed, so nothing is readable"
    if is_stopped:
        stop(manager, is_deleted=False)
    else:
        tell(manager, leader=OTHER, leader_epoch=1)
    assert sorted(done) == ["fetch", "produce"]
    assert written.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_takes_no_records(manager: ReplicaManager) -> None:
    tell(manager, leader=OTHER)
    with pytest.raises(KafkaError) as caught:
        append(manager)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_older_epochs_are_refused(manager: ReplicaManager) -> None:
    tell(manager, leader_epoch=5, controller_epoch=3)
    assert tell(manager, leader_epoch=4, controller_epoch=3) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert tell(manager, leader_epoch=9, controller_epoch=2) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert led(manager).leader_epoch == 5


def test_another_topic_of_the_same_name_is_refused(manager: ReplicaManager) -> None:
    tell(manager)
    assert tell(manager, leader_epoch=1, topic_id=UUID(int=8)) == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("found_id", "expected"),
    [(None, ErrorCode.NONE), (TOPIC_ID, ErrorCode.NONE), (UUID(int=8), ErrorCode.INCONSISTENT_TOPIC_ID)],
    ids=["from before there were ids", "the same", "another topic's"],
)
def test_a_log_that_was_there_before(
    manager: ReplicaManager, log_manager: LogManager, found_id: UUID | None, expected: ErrorCode
) -> None:
    log = log_manager.get_or_create("t", 0, topic_id=found_id, config=CONFIG, now_ms=NOW_MS)
    assert tell(manager) == expected
    if expected == ErrorCode.NONE:
        assert led(manager).log is log
        assert log.topic_id == read_partition_metadata(OsFiles(), str(log.directory / PARTITION_METADATA)) == TOPIC_ID
    else:
        assert manager.find("t", 0) is None
        assert log.topic_id == found_id


def test_coordinators_hear_of_their_partitions(manager: ReplicaManager) -> None:
    heard: list[tuple[str, int]] = []
    manager.on_leadership(
        "t",
        gained=lambda partition: heard.append(("gained", partition.leader_epoch)),
        lost=lambda partition: heard.append(("lost", partition.leader_epoch)),
    )
    tell(manager)
    tell(manager)
    tell(manager, leader=OTHER, leader_epoch=1)
    tell(manager, leader_epoch=2)
    stop(manager, is_deleted=True)
    assert heard == [("gained", 0), ("lost", 1), ("gained", 2), ("lost", 2)]
    assert manager.find("t", 0) is None


def test_a_fetch_wakes_when_enough_is_readable(manager: ReplicaManager) -> None:
    tell(manager)
    size = len(build_batch([RecordData(timestamp=NOW_MS, key=None, value=b"v")]))
    woken: list[str] = []
    awaited = AwaitedPartition(led(manager), 0, 0, 10_000, read_committed=False)
    manager.await_bytes([awaited], 2 * size, 1000, lambda: woken.append("woken"))
    append(manager)
    assert not woken
    append(manager)
    assert woken == ["woken"]


@pytest.mark.parametrize("end", ["completed", "abandoned"])
def test_a_fetch_that_is_over_keeps_nothing_of_its_answer(manager: ReplicaManager, end: str) -> None:
    """It is still listed under partitions where nothing happens."""

    class Answer:
        def wake(self) -> None:
            pass

    tell(manager)
    answer = Answer()
    kept = weakref.ref(answer)
    awaited = AwaitedPartition(led(manager), 0, 0, 10_000, read_committed=False)
    operation = manager.await_bytes([awaited], 1, 1000, answer.wake)
    if end == "completed":
        assert operation.force_complete()
    else:
        manager.fetch_purgatory.abandon(operation)
    del answer
    assert manager.fetch_purgatory.watched_count == 1
    assert kept() is None
