"""Leadership, commits and waiting requests with real logs and control requests as the controller sends them."""

import errno
import shutil
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from base.pause import never, whole
from broker.loop.timer import Timer
from broker.metrics.subjects.replicas import SUMS
from broker.replica.bound_partition import BoundPartition
from broker.replica.delayed_fetch import AwaitedPartition, DelayedFetch
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.partition import FetchIsolation, Partition
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID
from storage.disk.checkpoints import read_partition_metadata
from storage.disk.files import OsFiles
from storage.disk.names import PARTITION_METADATA
from storage.disk.shortages import ShortageError
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.storage.builders import created, done, in_thread, pause, steps_of
from tests.support.replicas import Replicas

ME, OTHER = 0, 1
TOPIC_ID = UUID(int=7)
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig.from_overrides(BrokerConfig.from_properties({}), {})
MIN_ISR_2 = LogConfig.from_overrides(BrokerConfig.from_properties({}), {"min.insync.replicas": "2"})


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def log_manager(tmp_path: Path) -> LogManager:
    opened = LogManager(
        [str(tmp_path / "data")],
        LogManagerSettings(),
        OsFiles(),
        random=Random(),
        new_threads=ThreadPoolExecutor,
        on_directory_failed=lambda *_: None,
    )
    opened.startup.open()
    return opened


@pytest.fixture
def manager(log_manager: LogManager, timer: Timer) -> Replicas:
    return Replicas(ME, log_manager, timer, lambda topic: CONFIG)


def apply_state(
    manager: Replicas,
    *,
    leader: int = ME,
    leader_epoch: int = 0,
    isr: tuple[int, ...] = (ME,),
    partition_epoch: int = 0,
    replicas: tuple[int, ...] = (ME, OTHER),
    topic_id: UUID = TOPIC_ID,
    is_new: bool = False,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    live: tuple[int, ...] = (),
) -> ErrorCode:
    """One LeaderAndIsr about t-0; the partition's error."""
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=partition_epoch,
        replicas=list(replicas),
        adding_replicas=list(adding),
        removing_replicas=list(removing),
        is_new=is_new,
    )
    request = LeaderAndIsrRequest(
        controller_id=ME,
        controller_epoch=1,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])],
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=it, host_name="127.0.0.1", port=1) for it in live],
    )
    done(manager.assigned.create_logs(request, NOW_MS, pause, in_thread))
    response = whole(manager.assigned.become_leader_or_follower(request, never))
    return ErrorCode(response.topics[0].partition_errors[0].error_code)


def stop(manager: Replicas, *, is_deleted: bool, leader_epoch: int = -1, expected: ErrorCode = ErrorCode.NONE) -> None:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=is_deleted)
    topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
    request = StopReplicaRequest(controller_id=ME, controller_epoch=1, topic_states=[topic])
    response = whole(manager.assigned.stop_replicas(request, NOW_MS, never))
    assert [one.error_code for one in response.partition_errors] == [expected]


def led(manager: Replicas) -> Partition:
    partition = manager.find("t", 0)
    assert partition is not None
    return partition


def append(manager: Replicas, *, needs_isr: bool = False) -> AwaitedAppend:
    partition = led(manager)
    batch = bytearray(build_batch([RecordData(timestamp=NOW_MS, key=None, value=b"v")]))
    result = BoundPartition(partition, manager).append(memoryview(batch), needs_isr=needs_isr, now_ms=NOW_MS)
    return AwaitedAppend(partition, partition.leading_since, result.last_offset + 1)


def reader_of(
    partition: Partition,
    offset: int = 0,
    *,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    known_high_watermark: int | None = None,
) -> AwaitedPartition:
    return AwaitedPartition(partition, partition.leader_epoch, offset, 10_000, isolation, known_high_watermark)


@pytest.mark.parametrize("min_in_sync", ["2", "3"])
def test_too_few_in_sync_replicas_reject_only_acks_all(manager: Replicas, min_in_sync: str) -> None:
    """Three of two replicas cannot be asked for; two can."""
    apply_state(manager)
    settings = {"min.insync.replicas": min_in_sync}
    led(manager).log.reconfigure(LogConfig.from_overrides(BrokerConfig.from_properties({}), settings))
    with pytest.raises(KafkaError) as refused:
        append(manager, needs_isr=True)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "insufficient to satisfy the min.isr requirement of 2 " in str(refused.value)
    append(manager)
    apply_state(manager, isr=(ME, OTHER), leader_epoch=1)
    append(manager, needs_isr=True)
    assert led(manager).log.log_end_offset == 2


def test_leader_without_in_sync_followers_commits_at_once(manager: Replicas) -> None:
    assert apply_state(manager) == ErrorCode.NONE
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
def test_replication_state_of_a_led_partition_is_reported(
    manager: Replicas,
    isr: tuple[int, ...],
    min_in_sync: int,
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
) -> None:
    apply_state(manager, isr=isr)
    partition = led(manager)
    overrides = {"min.insync.replicas": str(min_in_sync)}
    partition.log.reconfigure(LogConfig.from_overrides(BrokerConfig.from_properties({}), overrides))
    found = (partition.is_under_replicated, partition.is_under_min_isr, partition.is_at_min_isr)
    assert found == (under_replicated, under_min_isr, at_min_isr)
    apply_state(manager, leader=OTHER, leader_epoch=1, isr=isr)
    is_told = (partition.is_under_replicated, partition.is_under_min_isr, partition.is_at_min_isr)
    assert is_told == (False, False, False), "a follower does not say"


@pytest.mark.parametrize(("isr", "is_under_replicated"), [((ME,), True), ((ME, OTHER), False)])
def test_replica_that_is_being_added_does_not_count_as_missing(
    manager: Replicas, isr: tuple[int, ...], is_under_replicated: bool
) -> None:
    apply_state(manager, isr=isr, replicas=(2, OTHER, ME), adding=(2,), removing=(ME,))
    assert led(manager).is_under_replicated is is_under_replicated


def test_commit_waits_for_an_in_sync_follower_and_times_out(manager: Replicas, timer: Timer) -> None:
    apply_state(manager, isr=(ME, OTHER))
    done: list[str] = []
    written = append(manager, needs_isr=True)
    manager.await_commit([written], 1000, lambda: done.append("decided"))
    assert not done
    timer.advance(1000)
    assert (done, written.error) == (["decided"], ErrorCode.REQUEST_TIMED_OUT)
    assert led(manager).log.log_end_offset == 1, "the data stays"


def test_shrunk_isr_commits_pending_appends(manager: Replicas) -> None:
    apply_state(manager, isr=(ME, OTHER))
    done: list[str] = []
    written = append(manager)
    manager.await_commit([written], 1000, lambda: done.append("decided"))
    apply_state(manager, isr=(ME,), leader_epoch=1)
    assert (done, written.error) == (["decided"], ErrorCode.NONE)


def test_new_epoch_of_the_same_leader_keeps_pending_produce_requests(manager: Replicas) -> None:
    """A follower's death must not fail what the others are about to have: the producer would send it again."""
    apply_state(manager, isr=(ME, 1, 2), replicas=(ME, 1, 2))
    done: list[str] = []
    written = append(manager)
    manager.await_commit([written], 1000, lambda: done.append("decided"))
    apply_state(manager, isr=(ME, 1), replicas=(ME, 1, 2), leader_epoch=1)
    assert not done
    led(manager).follower_fetched(1, 1, 0, 0)
    manager.produce_purgatory.check_and_complete(("t", 0))
    assert (done, written.error) == (["decided"], ErrorCode.NONE)


def test_append_before_lost_leadership_is_not_acknowledged_by_leading_again(
    manager: Replicas,
) -> None:
    apply_state(manager, isr=(ME, OTHER))
    written = append(manager)
    apply_state(manager, leader=OTHER, leader_epoch=1)
    apply_state(manager, leader_epoch=2)
    done: list[str] = []
    manager.await_commit([written], 1000, lambda: done.append("decided"))
    assert (done, written.error) == (["decided"], ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "follows now"])
def test_pending_requests_fail_when_leadership_is_lost(manager: Replicas, is_stopped: bool) -> None:
    apply_state(manager, isr=(ME, OTHER))
    done: list[str] = []
    written = append(manager)
    manager.await_commit([written], 1000, lambda: done.append("produce"))
    manager.await_bytes(DelayedFetch([reader_of(led(manager))], 1, lambda: done.append("fetch")), 1000)
    assert not done, "nothing is committed, so nothing is readable"
    if is_stopped:
        stop(manager, is_deleted=False)
    else:
        apply_state(manager, leader=OTHER, leader_epoch=1)
    assert sorted(done) == ["fetch", "produce"]
    assert written.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_follower_rejects_produce_requests(manager: Replicas) -> None:
    apply_state(manager, leader=OTHER)
    with pytest.raises(KafkaError) as caught:
        append(manager)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_older_leader_epochs_are_rejected(manager: Replicas) -> None:
    apply_state(manager, leader_epoch=5, partition_epoch=3)
    assert apply_state(manager, leader_epoch=4, partition_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert led(manager).leader_epoch == 5
    assert apply_state(manager, leader=OTHER, leader_epoch=6, partition_epoch=2) == ErrorCode.NONE
    assert (led(manager).leader_epoch, led(manager).is_leader) == (5, True), "skipped"


@pytest.mark.parametrize("partition_epoch", [3, 4, 5], ids=["older", "same", "newer"])
def test_a_repeated_leader_epoch_changes_nothing(manager: Replicas, partition_epoch: int) -> None:
    """The ISR may have grown within the epoch since the request was sent."""
    apply_state(manager, leader_epoch=1, isr=(ME, OTHER), partition_epoch=4)
    append(manager)
    before = led(manager).leadership
    response = apply_state(manager, leader_epoch=1, isr=(ME,), partition_epoch=partition_epoch)
    assert response == ErrorCode.STALE_CONTROLLER_EPOCH
    assert led(manager).leadership == before
    assert led(manager).log.high_watermark == 0


def test_a_repeated_leader_epoch_may_add_the_topic_id(manager: Replicas) -> None:
    apply_state(manager, topic_id=ZERO_UUID)
    assert led(manager).topic_id is None
    assert apply_state(manager) == ErrorCode.NONE
    assert led(manager).topic_id == TOPIC_ID
    assert apply_state(manager) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert apply_state(manager, topic_id=ZERO_UUID, leader_epoch=1) == ErrorCode.NONE


def test_broker_without_a_replica_opens_no_log(manager: Replicas, log_manager: LogManager) -> None:
    assert apply_state(manager, replicas=(OTHER, 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert manager.find("t", 0) is None
    assert log_manager.get("t", 0) is None


@pytest.mark.parametrize("leader", [ME, OTHER])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_late_stop_of_an_older_leader_epoch_is_fenced(manager: Replicas, leader: int, is_deleted: bool) -> None:
    apply_state(manager, leader=leader, leader_epoch=5)
    stop(manager, is_deleted=is_deleted, leader_epoch=4, expected=ErrorCode.FENCED_LEADER_EPOCH)
    assert led(manager).is_leader == (leader == ME)


@pytest.mark.parametrize("leader_epoch", [-2, -1, 5, 6], ids=["deletion", "unknown", "same", "newer"])
def test_stop_with_the_current_leader_epoch_is_applied(
    manager: Replicas, log_manager: LogManager, leader_epoch: int
) -> None:
    apply_state(manager, leader_epoch=5)
    stop(manager, is_deleted=True, leader_epoch=leader_epoch)
    assert manager.find("t", 0) is None
    assert log_manager.get("t", 0) is None


def test_stopped_replica_is_not_started_by_an_earlier_request(manager: Replicas) -> None:
    apply_state(manager, leader_epoch=5)
    stop(manager, is_deleted=False, leader_epoch=5)
    for leader_epoch in (4, 5):
        assert apply_state(manager, leader_epoch=leader_epoch) == ErrorCode.STALE_CONTROLLER_EPOCH
    with pytest.raises(KafkaError) as refused:
        append(manager)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led(manager).leadership.leader_id == -1, "clients are not directed to this broker"
    assert apply_state(manager, leader_epoch=6) == ErrorCode.NONE
    append(manager)


def test_another_topic_of_the_same_name_is_rejected(manager: Replicas) -> None:
    apply_state(manager)
    assert apply_state(manager, leader_epoch=1, topic_id=UUID(int=8)) == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("found_id", "expected"),
    [(None, ErrorCode.NONE), (TOPIC_ID, ErrorCode.NONE), (UUID(int=8), ErrorCode.INCONSISTENT_TOPIC_ID)],
    ids=["from before there were ids", "the same", "another topic's"],
)
def test_existing_log_is_used_if_its_topic_id_matches(
    manager: Replicas, log_manager: LogManager, found_id: UUID | None, expected: ErrorCode
) -> None:
    log = created(log_manager, "t", 0, topic_id=found_id, config=CONFIG, now_ms=NOW_MS)
    assert apply_state(manager) == expected
    if expected == ErrorCode.NONE:
        assert led(manager).log is log
        assert log.topic_id == read_partition_metadata(OsFiles(), str(log.directory / PARTITION_METADATA)) == TOPIC_ID
    else:
        assert manager.find("t", 0) is None
        assert log.topic_id == found_id


@pytest.mark.parametrize(
    ("isr", "is_new"), [((ME, OTHER), True), ((OTHER,), False)], ids=["new topic", "was away at its creation"]
)
@pytest.mark.parametrize("is_hosted", [True, False])
def test_log_of_an_earlier_topic_is_set_aside_whole(
    manager: Replicas, log_manager: LogManager, isr: tuple[int, ...], is_new: bool, is_hosted: bool
) -> None:
    log = created(log_manager, "t", 0, topic_id=UUID(int=8), config=CONFIG, now_ms=NOW_MS)
    if is_hosted:
        assert apply_state(manager, topic_id=UUID(int=8), leader_epoch=9) == ErrorCode.NONE
        append(manager)
        assert apply_state(manager, leader=OTHER, isr=isr, is_new=is_new) == ErrorCode.INCONSISTENT_TOPIC_ID, "late"
        stop(manager, is_deleted=False)  # as UpdateMetadata does, which precedes the state of a new topic
    before = {path.name: path.read_bytes() for path in log.directory.iterdir() if path.suffix == ".log"}
    folder = log.directory.parent
    assert apply_state(manager, leader=OTHER, isr=isr, is_new=is_new) == ErrorCode.NONE
    assert led(manager).topic_id == TOPIC_ID
    assert (led(manager).leader_epoch, led(manager).log.log_end_offset) == (0, 0)
    log_manager.remove_deleted(NOW_MS + 10**9)
    (stray,) = folder.glob("t-0.*-stray")
    assert {path.name: path.read_bytes() for path in stray.iterdir() if path.suffix == ".log"} == before
    assert read_partition_metadata(OsFiles(), str(stray / PARTITION_METADATA)) == UUID(int=8)


def test_new_replica_adopts_a_log_without_a_topic_id(manager: Replicas, log_manager: LogManager) -> None:
    log = created(log_manager, "t", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    assert apply_state(manager, is_new=True) == ErrorCode.NONE
    assert led(manager).log is log
    assert log.topic_id == TOPIC_ID


def test_a_new_leader_epoch_may_add_the_topic_id(manager: Replicas) -> None:
    apply_state(manager, topic_id=ZERO_UUID)
    assert apply_state(manager, leader_epoch=1) == ErrorCode.NONE
    assert led(manager).topic_id == TOPIC_ID
    assert manager.topic_of(TOPIC_ID) == "t"


def test_replica_in_service_keeps_its_log_without_a_topic_id(manager: Replicas) -> None:
    apply_state(manager, topic_id=ZERO_UUID, is_new=True)
    log = led(manager).log
    assert apply_state(manager, is_new=True) == ErrorCode.NONE
    assert led(manager).log is log
    assert log.topic_id == TOPIC_ID


def test_log_that_cannot_be_set_aside_keeps_its_folder(
    manager: Replicas, log_manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = created(log_manager, "t", 0, topic_id=UUID(int=8), config=CONFIG, now_ms=NOW_MS)

    def fail(self: OsFiles, source: str, target: str) -> None:
        raise ShortageError(errno.ENFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(OsFiles, "rename", fail)
        assert apply_state(manager, is_new=True) == ErrorCode.KAFKA_STORAGE_ERROR
    assert apply_state(manager, is_new=True) == ErrorCode.KAFKA_STORAGE_ERROR, "until the next start"
    log_manager.remove_deleted(NOW_MS + 10**9)
    assert read_partition_metadata(OsFiles(), str(log.directory / PARTITION_METADATA)) == UUID(int=8)


def request_for(*states: LeaderAndIsrPartitionState) -> LeaderAndIsrRequest:
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=list(states))
    return LeaderAndIsrRequest(controller_id=ME, controller_epoch=1, topic_states=[topic], live_leaders=[])


def state_of(partition_index: int = 0) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=partition_index,
        controller_epoch=1,
        leader=ME,
        leader_epoch=0,
        isr=[ME],
        partition_epoch=0,
        replicas=[ME, OTHER],
        is_new=True,
    )


def test_new_log_gets_the_configuration_that_changed_while_it_was_created(
    log_manager: LogManager, timer: Timer
) -> None:
    configs = {"t": CONFIG}
    manager = Replicas(ME, log_manager, timer, lambda topic: configs[topic])
    done(manager.assigned.create_logs(request_for(state_of()), NOW_MS, pause, in_thread))
    configs["t"] = MIN_ISR_2
    whole(manager.reconfigure(never, "t"))
    whole(manager.assigned.become_leader_or_follower(request_for(state_of()), never))
    assert led(manager).log.config is MIN_ISR_2
    with pytest.raises(KafkaError) as refused:
        append(manager, needs_isr=True)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_partition_named_twice_whose_creation_failed_gets_its_error_twice(
    manager: Replicas, log_manager: LogManager
) -> None:
    log_manager.directories.fail(log_manager.directories[0], OSError(errno.EIO, "Input/output error"))
    request = request_for(state_of(), state_of())
    done(manager.assigned.create_logs(request, NOW_MS, pause, in_thread))
    response = whole(manager.assigned.become_leader_or_follower(request, never))
    codes = [one.error_code for one in response.topics[0].partition_errors]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_missing_directory_of_a_new_partition_is_not_logged(
    manager: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    assert apply_state(manager, is_new=True) == ErrorCode.NONE
    assert not caplog.records


def test_logs_that_the_controller_does_not_assign_are_reported_and_kept(
    manager: Replicas, log_manager: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = created(log_manager, "unknown", 0, topic_id=UUID(int=8), config=CONFIG, now_ms=NOW_MS)
    apply_state(manager, is_new=True)
    manager.assigned.report_unclaimed_logs(lambda topic, _: topic != "unknown")
    (line,) = caplog.messages
    assert line.startswith(f"{unknown.directory}, topic id {UUID(int=8)}, is kept but not served")
    assert unknown.directory.exists()
    assert manager.find("unknown", 0) is None


def test_log_without_a_partition_is_deleted_on_request_of_the_controller(
    manager: Replicas, log_manager: LogManager
) -> None:
    log = created(log_manager, "t", 0, topic_id=UUID(int=8), config=CONFIG, now_ms=NOW_MS)
    assert apply_state(manager) == ErrorCode.INCONSISTENT_TOPIC_ID
    stop(manager, is_deleted=True)
    assert log_manager.get("t", 0) is None
    assert not log.directory.exists()
    assert apply_state(manager) == ErrorCode.NONE


def test_coordinators_are_notified_of_their_partitions(manager: Replicas) -> None:
    heard: list[tuple[str, int]] = []
    manager.assigned.on_leadership(
        "t",
        gained=lambda partition: heard.append(("gained", partition.leader_epoch)),
        lost=lambda partition: heard.append(("lost", partition.leader_epoch)),
    )
    apply_state(manager)
    apply_state(manager)
    apply_state(manager, leader_epoch=1)
    apply_state(manager, leader=OTHER, leader_epoch=2)
    apply_state(manager, leader_epoch=3)
    stop(manager, is_deleted=True)
    assert heard == [("gained", 0), ("lost", 2), ("gained", 3), ("lost", 3)]
    assert manager.find("t", 0) is None


def test_fetch_completes_when_enough_is_readable(manager: Replicas) -> None:
    apply_state(manager)
    size = len(build_batch([RecordData(timestamp=NOW_MS, key=None, value=b"v")]))
    woken: list[str] = []
    manager.await_bytes(DelayedFetch([reader_of(led(manager))], 2 * size, lambda: woken.append("woken")), 1000)
    append(manager)
    assert not woken
    append(manager)
    assert woken == ["woken"]


def test_followers_read_to_the_log_end_and_consumers_to_the_high_watermark(manager: Replicas) -> None:
    apply_state(manager, isr=(ME, OTHER))
    woken: list[str] = []
    for who, isolation in (("follower", FetchIsolation.LOG_END), ("consumer", FetchIsolation.HIGH_WATERMARK)):
        awaited = reader_of(led(manager), isolation=isolation)
        operation = DelayedFetch([awaited], 1, lambda who=who: woken.append(who))  # type: ignore[misc]
        manager.await_bytes(operation, 1000)
    append(manager)
    assert woken == ["follower"]
    led(manager).follower_fetched(OTHER, 1, 0, 0)
    manager.wake_readers(led(manager))
    assert woken == ["follower", "consumer"]


def test_new_high_watermark_completes_the_fetch_of_a_follower_that_lacks_it(
    manager: Replicas,
) -> None:
    apply_state(manager, isr=(ME, OTHER))
    append(manager)
    woken: list[int] = []
    for offset in (0, 1):
        led(manager).follower_fetched(OTHER, offset, 0, 0)
        awaited = reader_of(led(manager), 1, isolation=FetchIsolation.LOG_END, known_high_watermark=0)
        operation = DelayedFetch([awaited], 1, lambda offset=offset: woken.append(offset))  # type: ignore[misc]
        manager.await_bytes(operation, 1000)
        assert woken == [1] * offset
    manager.wake_readers(led(manager))
    assert woken == [1, 0]


@pytest.mark.parametrize("topic", ["t", None])
def test_lowered_min_insync_replicas_commits_pending_appends(manager: Replicas, topic: str | None) -> None:
    apply_state(manager)
    led(manager).log.reconfigure(MIN_ISR_2)
    written = append(manager)
    done: list[str] = []
    manager.await_commit([written], 1000, lambda: done.append("produce"))
    manager.await_bytes(DelayedFetch([reader_of(led(manager))], 1, lambda: done.append("fetch")), 1000)
    whole(manager.reconfigure(never, "other"))
    assert not done
    whole(manager.reconfigure(never, topic))
    assert sorted(done) == ["fetch", "produce"]
    assert written.error == ErrorCode.NONE


@pytest.mark.parametrize("end", ["completed", "abandoned"])
def test_completed_fetch_references_no_part_of_its_response(manager: Replicas, end: str) -> None:
    """It is still listed under partitions where nothing happens."""

    class Responder:
        def wake(self) -> None:
            pass

    apply_state(manager)
    response = Responder()
    kept = weakref.ref(response)
    operation = DelayedFetch([reader_of(led(manager))], 1, response.wake)
    manager.await_bytes(operation, 1000)
    if end == "completed":
        assert operation.force_complete()
    else:
        manager.fetch_purgatory.abandon(operation)
    del response
    assert manager.fetch_purgatory.watched_count == 1
    assert kept() is None


def test_led_partition_counts_as_reassigning_until_no_replica_is_added_or_removed(manager: Replicas) -> None:
    count = {name: fact for name, _, fact in SUMS}["ReassigningPartitions"]
    apply_state(manager, adding=(OTHER,))
    assert count(led(manager)) == 1
    apply_state(manager, leader_epoch=1, partition_epoch=1, removing=(OTHER,))
    assert count(led(manager)) == 1
    apply_state(manager, leader_epoch=2, partition_epoch=2)
    assert count(led(manager)) == 0
    apply_state(manager, leader=OTHER, leader_epoch=3, partition_epoch=3, adding=(OTHER,))
    assert count(led(manager)) == 0, "its leader counts it"


def restarted(folder: Path, timer: Timer) -> Replicas:
    """Return the replicas of a broker that starts on `folder`, with its logs loaded."""
    logs = LogManager(
        [str(folder)],
        LogManagerSettings(),
        OsFiles(),
        random=Random(),
        new_threads=ThreadPoolExecutor,
        on_directory_failed=lambda *_: None,
    )
    logs.startup.open()
    logs.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    return Replicas(ME, logs, timer, lambda topic: CONFIG)


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelname == "ERROR"]


@pytest.fixture
def stopped(manager: Replicas, log_manager: LogManager, tmp_path: Path) -> Path:
    """The log directory of a broker that has led t-0 with three committed records, and was killed."""
    apply_state(manager, replicas=(ME,), is_new=True)
    for _ in range(3):
        append(manager)
    led(manager).advance_high_watermark(0)
    log_manager.checkpoint_high_watermarks()
    log_manager.directories.unlock()
    return tmp_path / "data"


def lose_tail(folder: Path) -> None:
    next((folder / "t-0").glob("*.log")).write_bytes(b"")


def lose_log(folder: Path) -> None:
    shutil.rmtree(folder / "t-0")


@pytest.mark.parametrize("lose", [lose_tail, lose_log])
def test_leader_that_has_lost_committed_records_logs_an_error(
    stopped: Path, timer: Timer, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lose(stopped)
    manager = restarted(stopped, timer)
    assert errors_of(caplog) == [], "an in-sync replica may have the records"
    apply_state(manager, leader=-1, leader_epoch=1, replicas=(ME,))
    assert errors_of(caplog) == []
    apply_state(manager, leader_epoch=2, replicas=(ME,))
    (error,) = errors_of(caplog)
    assert error.startswith(f"t-0 is led from offset 0 on, but its log in {stopped} was committed up to offset 3:")
    log = led(manager).log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    apply_state(manager, leader=OTHER, leader_epoch=3)
    apply_state(manager, leader_epoch=4)
    assert len(errors_of(caplog)) == 1


def test_leader_with_an_empty_log_directory_logs_an_error(
    stopped: Path, timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(stopped)
    manager = restarted(stopped, timer)
    apply_state(manager, leader_epoch=1, replicas=(ME,))
    assert errors_of(caplog) == ["t-0 is led with an empty log: all records that it had are lost"]


@pytest.mark.parametrize("lose", [lose_tail, lose_log, shutil.rmtree])
def test_replica_that_lost_records_and_follows_logs_no_error(
    stopped: Path, timer: Timer, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lose(stopped)
    manager = restarted(stopped, timer)
    apply_state(manager, leader=OTHER, leader_epoch=1, live=(OTHER,))
    apply_state(manager, leader_epoch=2)
    assert errors_of(caplog) == []


def test_new_topic_of_the_same_name_logs_no_error(
    stopped: Path, timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    lose_log(stopped)
    manager = restarted(stopped, timer)
    apply_state(manager, leader_epoch=0, replicas=(ME,), is_new=True, topic_id=UUID(int=8))
    assert errors_of(caplog) == []


def test_leader_with_all_its_records_logs_no_error(
    stopped: Path, timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    manager = restarted(stopped, timer)
    apply_state(manager, leader_epoch=1, replicas=(ME,))
    assert errors_of(caplog) == []


@pytest.mark.parametrize("is_hosted", [True, False])
def test_deletion_of_a_replica_in_a_failed_directory_is_an_error(
    manager: Replicas, log_manager: LogManager, is_hosted: bool
) -> None:
    """Its files would be back after the next start, when nobody asks for the deletion any more."""
    apply_state(manager, leader_epoch=5)
    log = log_manager.get("t", 0)
    assert log is not None
    if not is_hosted:
        manager.assigned._close("t", 0)
    log.take_offline()
    stop(manager, is_deleted=True, leader_epoch=-2, expected=ErrorCode.KAFKA_STORAGE_ERROR)
    assert log_manager.get("t", 0) is log
    whole(manager.assigned.directory_failed(never))
    assert manager.offline_count == int(is_hosted)
    stop(manager, is_deleted=True, leader_epoch=-2, expected=ErrorCode.KAFKA_STORAGE_ERROR)


def test_failed_directory_takes_all_its_partitions_offline_in_the_first_step(
    manager: Replicas, log_manager: LogManager
) -> None:
    for index in (0, 1, 2):
        state = state_of(index)
        state.is_new = True
        done(manager.assigned.create_logs(request_for(state), NOW_MS, pause, in_thread))
        whole(manager.assigned.become_leader_or_follower(request_for(state), never))
    for log in log_manager.logs():
        log.take_offline()
    closing = steps_of(manager.assigned.directory_failed(pause))
    next(closing)
    assert manager.offline_count == 3
    assert sum(1 for _ in manager.hosted()) == 2, "the rest follows in slices"
    assert whole(manager.assigned.directory_failed(never)) == []
    done(closing)
    assert list(manager.hosted()) == []
