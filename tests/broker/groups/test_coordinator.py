"""The coordinator over a log in memory: parked requests, slow and failing appends, loading, leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from broker.groups.batches import CommittingProducer, StoredForm
from broker.groups.consumer_settings import OWN_ASSIGNORS
from broker.groups.group_configs import GroupConfigs
from broker.groups.machine.consumer.events import Timeouts
from broker.groups.machine.events import JoinResult, SyncResult
from broker.groups.machine.joins import NEW_MEMBER_JOIN_TIMEOUT_MS
from broker.groups.machine.offsets import Offsets
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.machine.records import OffsetAndMetadata, group_key, group_value, offset_key, read_group
from broker.groups.machine.states import GroupState
from broker.groups.offset_commits import CommitResult, Committer
from broker.groups.settings import CoordinatorSettings
from broker.loop.driver import start
from broker.loop.promise import Promise
from broker.loop.slices import GRACE_MS, SLICE_MS
from broker.metrics.subjects.coordinators import group_metrics
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from tests.broker.golden import GoldenPartition
from tests.broker.groups.fakes import Surroundings
from tests.broker.groups.golden import PARTITIONS
from tests.broker.groups.support import SESSION_MS, join_request, protocols, sync_request

NO_DELAY = CoordinatorSettings(group=GroupSettings(initial_rebalance_delay_ms=0))
NOBODY = Committer()
T0 = ("t", 0)
T1 = ("t", 1)


@pytest.fixture
async def here() -> Surroundings:
    surroundings = Surroundings(NO_DELAY)
    await surroundings.lead()
    return surroundings


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset=offset, metadata=metadata, commit_timestamp_ms=0)


def join(here: Surroundings, name: str, member_id: str = "", **details: object) -> JoinResult | Awaitable[JoinResult]:
    return start(here.coordinator.join("g", join_request(name, member_id=member_id, **details)))  # type: ignore[arg-type]


def sync(
    here: Surroundings, member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None
) -> SyncResult | Awaitable[SyncResult]:
    return start(here.coordinator.sync("g", sync_request(member_id, generation_id, assignments)))


def commit(
    here: Surroundings, offsets: Offsets, committer: Committer = NOBODY, producer: CommittingProducer | None = None
) -> CommitResult | Awaitable[CommitResult]:
    return start(here.coordinator.offsets.commit("g", committer, offsets, producer))


def committed(here: Surroundings) -> dict[tuple[str, int], int]:
    return {partition: value.value.offset for partition, value in here.coordinator.offsets.of("g").committed.items()}


async def stable(here: Surroundings, *names: str) -> None:
    """Members <name>-1 in a stable group, the first one leading."""
    first, *others = names
    results = [join(here, first)]
    results += [join(here, name) for name in others]
    if others:
        results.append(join(here, first, f"{first}-1"))
    for result in results:
        if isinstance(result, Awaitable):
            await result
    group = here.coordinator.inspection.group("g")
    assert group is not None
    syncs = [sync(here, f"{name}-1", group.generation_id) for name in others]
    syncs.append(sync(here, f"{first}-1", group.generation_id, {f"{name}-1": name.encode() for name in names}))
    for synced in syncs:
        if isinstance(synced, Awaitable):
            await synced
    assert group.state is GroupState.STABLE


def state(here: Surroundings) -> GroupState | None:
    group = here.coordinator.inspection.group("g")
    return None if group is None else group.state


def failure_of(here: Surroundings, group_id: str = "g") -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        here.coordinator.inspection.group(group_id)
    return caught.value.code


# Joining and syncing


async def test_join_completes_when_all_members_have_joined(here: Surroundings) -> None:
    first = join(here, "a")
    assert isinstance(first, JoinResult)
    assert first.generation_id == 1
    sync(here, "a-1", 1, {"a-1": b"x"})
    newcomer = join(here, "b")
    assert isinstance(newcomer, Promise)
    again = join(here, "a", "a-1")
    assert isinstance(again, JoinResult)
    assert [member.member_id for member in again.members] == ["a-1", "b-1"]
    assert (await newcomer).leader_id == "a-1"
    follower = sync(here, "b-1", 2)
    assert isinstance(follower, Promise)
    assert sync(here, "a-1", 2, {"a-1": b"x", "b-1": b"y"}) == SyncResult(ErrorCode.NONE, "consumer", "range", b"x")
    assert (await follower).assignment == b"y"


async def test_an_assignment_is_stored_before_it_is_returned(here: Surroundings) -> None:
    join(here, "a")
    here.log.holds = True
    leader = sync(here, "a-1", 1, {"a-1": b"x"})
    await here.idle()
    assert isinstance(leader, Promise)
    assert not leader.done()
    assert here.log.records() == []
    here.log.release()
    assert (await leader).assignment == b"x"
    (record,) = here.log.records()
    assert record.key == group_key("g")
    assert record.value is not None
    assert read_group(record.value).members[0].assignment == b"x"
    assert here.log.batch_sequences() == [-1]
    assert here.coordinator.runner.completed_rebalance_count == 1


@pytest.mark.parametrize(
    ("append_error", "expected_error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
async def test_an_assignment_that_cannot_be_stored_starts_a_rebalance(
    here: Surroundings, append_error: ErrorCode, expected_error: ErrorCode
) -> None:
    join(here, "a")
    here.log.append_error = append_error
    assert sync(here, "a-1", 1, {"a-1": b"x"}) == SyncResult(expected_error)
    assert state(here) is GroupState.PREPARING_REBALANCE


async def test_the_result_of_an_older_append_is_void(here: Surroundings) -> None:
    await stable(here, "a")
    join(here, "a", "a-1")
    here.log.holds = True
    leader = sync(here, "a-1", 2, {"a-1": b"old"})
    newcomer = join(here, "b")
    assert isinstance(leader, Promise)
    assert (await leader).error is ErrorCode.REBALANCE_IN_PROGRESS
    here.log.release()
    await here.idle()
    assert state(here) is GroupState.PREPARING_REBALANCE
    join(here, "a", "a-1")
    assert isinstance(newcomer, Promise)
    assert (await newcomer).generation_id == 3


async def test_a_disconnected_client_does_not_delay_the_others(here: Surroundings) -> None:
    await stable(here, "a")
    newcomer = join(here, "b")
    assert isinstance(newcomer, Promise)
    newcomer.cancel()
    again = join(here, "a", "a-1")
    assert isinstance(again, JoinResult)
    assert again.generation_id == 2
    here.advance(10_000)
    assert state(here) is GroupState.EMPTY


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.NONE),
        (1_800_000, ErrorCode.NONE),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
async def test_a_session_timeout_out_of_bounds_is_rejected(
    here: Surroundings, session_ms: int, error: ErrorCode
) -> None:
    result = join(here, "a", session_ms=session_ms)
    assert isinstance(result, JoinResult)
    assert result.error is error


async def test_requests_for_an_unknown_group_get_errors(here: Surroundings) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert join(here, "a", "a-1") == JoinResult(unknown, "a-1")
    assert sync(here, "a-1", 1) == SyncResult(unknown)
    assert here.coordinator.heartbeat("g", "a-1", None, 1) is unknown
    assert here.coordinator.leave("g", [("a-1", None), ("", "i")]) == [unknown, unknown]
    assert commit(here, {T0: at(1)}, Committer("a-1", None, 1)) == CommitResult(ErrorCode.ILLEGAL_GENERATION)
    assert here.coordinator.offsets.of("g").is_empty
    assert start(here.coordinator.removal.delete_group("g")) is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        start(here.coordinator.removal.delete_offsets("g", [T0]))
    assert here.coordinator.inspection.groups() == (ErrorCode.NONE, [])


async def test_an_empty_group_id_is_rejected(here: Surroundings) -> None:
    coordinator = here.coordinator
    for call in (
        lambda: start(coordinator.join("", join_request("a"))),
        lambda: start(coordinator.sync("", sync_request("a", 1))),
        lambda: coordinator.heartbeat("", "a", None, 1),
        lambda: coordinator.leave("", [("a", None)]),
        lambda: start(coordinator.removal.delete_offsets("", [T0])),
    ):
        with pytest.raises(KafkaError, match="INVALID_GROUP_ID"):
            call()
    assert start(coordinator.offsets.commit("", Committer(), {T0: at(1)})) == CommitResult(ErrorCode.NONE)
    assert coordinator.offsets.of("").get(T0) == at(1)
    assert coordinator.inspection.group("") is not None
    assert start(coordinator.removal.delete_group("")) is ErrorCode.NONE


# Time


async def test_sessions_expire_and_heartbeats_keep_them(here: Surroundings) -> None:
    await stable(here, "a", "b")
    for _ in range(3):
        here.advance(6_000)
        assert here.coordinator.heartbeat("g", "a-1", None, 2) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    group = here.coordinator.inspection.group("g")
    assert group is not None
    assert list(group.members) == ["a-1"]
    here.advance(10_000)
    assert state(here) is GroupState.EMPTY


async def test_many_heartbeats_arm_one_timer(here: Surroundings) -> None:
    await stable(here, "a")
    for _ in range(1000):
        here.clock.advance(1)
        here.coordinator.heartbeat("g", "a-1", None, 1)
    assert len(here.timer._ticks) <= 2


async def test_first_join_completes_after_the_initial_rebalance_delay() -> None:
    here = Surroundings()
    await here.lead()
    first = join(here, "a")
    assert isinstance(first, Promise)
    here.advance(2_999)
    assert not first.done()
    here.advance(1)
    assert (await first).generation_id == 1


# Offsets


async def test_commit_is_readable_once_it_is_in_the_log(here: Surroundings) -> None:
    here.log.holds = True
    result = commit(here, {T0: at(5, "m")})
    assert isinstance(result, Promise)
    assert committed(here) == {}
    here.log.release()
    assert await result == CommitResult(ErrorCode.NONE)
    assert here.coordinator.offsets.of("g").get(T0) == at(5, "m")
    assert here.log.batch_sequences() == [0]
    assert here.coordinator.offsets.commit_count == 1


async def test_one_commit_is_one_batch(here: Surroundings) -> None:
    assert commit(here, {("t", index): at(index) for index in range(100)}) == CommitResult(ErrorCode.NONE)
    assert len(here.log.batch_sequences()) == 1
    assert len(here.log.records()) == 100
    assert list(here.coordinator.inspection.count_offsets()) == [100]


@pytest.mark.parametrize(
    ("append_error", "expected_error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_commit_that_cannot_be_stored_gets_the_translated_error(
    here: Surroundings, append_error: ErrorCode, expected_error: ErrorCode, is_late: bool
) -> None:
    assert commit(here, {T0: at(1)}) == CommitResult(ErrorCode.NONE)
    if is_late:
        here.log.holds = True
        result = commit(here, {T0: at(2)})
        here.log.release(error=append_error)
    else:
        here.log.append_error = append_error
        result = commit(here, {T0: at(2)})
    assert (await result if isinstance(result, Awaitable) else result) == CommitResult(expected_error)
    assert committed(here) == {T0: 1}


async def test_an_unexpected_exception_of_the_log_is_returned_and_logged(
    here: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    here.log.holds = True
    result = commit(here, {T0: at(2)})
    here.log.held.pop().done.set_exception(RuntimeError("out of luck"))
    assert isinstance(result, Awaitable)
    assert await result == CommitResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "out of luck" in caplog.text


async def test_commits_apply_in_the_order_of_the_log(here: Surroundings) -> None:
    here.log.holds = True
    first, second = commit(here, {T0: at(1), T1: at(1)}), commit(here, {T0: at(2)})
    here.log.release(1)
    await here.idle()
    assert committed(here) == {T0: 2}
    here.log.release(0)
    await here.idle()
    assert committed(here) == {T0: 2, T1: 1}
    assert isinstance(first, Promise)
    assert isinstance(second, Promise)
    assert first.done()
    assert second.done()


async def test_a_commit_of_a_disconnected_client_applies(here: Surroundings) -> None:
    here.log.holds = True
    result = commit(here, {T0: at(2)})
    assert isinstance(result, Promise)
    result.cancel()
    here.log.release()
    await here.idle()
    assert committed(here) == {T0: 2}


async def test_only_the_partition_with_long_metadata_is_rejected(here: Surroundings) -> None:
    result = commit(here, {T0: at(1, "x" * 4097), T1: at(2, "x" * 4096), ("t", 2): at(3, "😀" * 2049), ("t", 3): at(4)})
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert result == CommitResult(ErrorCode.NONE, {T0: too_large, ("t", 2): too_large})
    assert committed(here) == {T1: 2, ("t", 3): 4}
    assert commit(here, {T0: at(1, "x" * 5000)}) == CommitResult(ErrorCode.NONE, {T0: too_large})
    assert len(here.log.batch_sequences()) == 1


async def test_only_members_may_commit_in_a_nonempty_group(here: Surroundings) -> None:
    await stable(here, "a")
    assert commit(here, {T0: at(1)}) == CommitResult(ErrorCode.UNKNOWN_MEMBER_ID)
    assert commit(here, {T0: at(1)}, Committer("a-1", None, 1)) == CommitResult(ErrorCode.NONE)
    assert commit(here, {T0: at(2)}, Committer("a-1", None, 7)) == CommitResult(ErrorCode.ILLEGAL_GENERATION)
    assert committed(here) == {T0: 1}


async def test_offsets_of_a_transaction_are_pending_until_it_ends(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    for producer_id in (7, 8):
        result = commit(here, {T0: at(producer_id)}, producer=CommittingProducer(producer_id, 0))
        assert result == CommitResult(ErrorCode.NONE)
    assert committed(here) == {T0: 1}
    assert here.coordinator.offsets.of("g").is_unstable(T0)
    headers = [header for _, header in batches(here.log.logs[0])]
    assert [(each.producer_id, each.is_transactional, each.base_sequence) for each in headers] == [
        (-1, False, 0), (7, True, 0), (8, True, 0),
    ]  # fmt: skip
    here.coordinator.offsets.end_transaction(0, 8, is_committed=False)
    here.coordinator.offsets.end_transaction(0, 7, is_committed=True)
    here.coordinator.offsets.end_transaction(0, 7, is_committed=True)
    here.coordinator.offsets.end_transaction(99, 7, is_committed=True)
    assert committed(here) == {T0: 7}
    here.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    failed = commit(here, {T0: at(9)}, producer=CommittingProducer(9, 0))
    assert failed == CommitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not here.coordinator.offsets.of("g").is_unstable(T0)


async def test_cost_of_reading_does_not_grow_with_the_commits(here: Surroundings) -> None:
    class CountedPartition(tuple[str, int]):
        __slots__ = ()
        hash_count = 0

        def __hash__(self) -> int:
            CountedPartition.hash_count += 1
            return super().__hash__()

    for number in range(500):
        commit(here, {T0: at(number)}, producer=CommittingProducer(7, 0))
    offsets = here.coordinator.offsets.of("g")
    looked_for = CountedPartition(("t", 1))
    assert not offsets.is_unstable(looked_for)
    assert offsets.untouched_since(1, [looked_for]) == [("t", 1)]
    assert offsets.partitions() == [T0]
    assert CountedPartition.hash_count <= 6
    here.coordinator.offsets.end_transaction(0, 7, is_committed=True)
    assert committed(here) == {T0: 499}


# Removing


async def test_expired_offsets_get_tombstones_before_the_group_is_removed(here: Surroundings) -> None:
    await stable(here, "a")
    commit(here, {T0: at(1), T1: at(2)}, Committer("a-1", None, 1))
    here.coordinator.leave("g", [("a-1", None)])
    here.coordinator.start()
    here.advance(here.settings.offsets_retention_ms - 1)
    await here.idle()
    assert committed(here) == {T0: 1, T1: 2}
    here.advance(here.settings.offsets_retention_check_interval_ms)
    await here.idle()
    assert here.coordinator.inspection.group("g") is None
    assert here.coordinator.removal.expiration_count == 2
    tombstones = [record.key for record in here.log.records() if record.value is None]
    assert tombstones == [offset_key("g", "t", 0), offset_key("g", "t", 1), group_key("g")]
    assert here.log.batch_sequences()[-1] == -1
    await here.coordinator.stop()


async def test_many_expired_offsets_are_removed_in_slices(here: Surroundings) -> None:
    for number in range(3):
        commit(here, {(f"t{number}", index): at(index) for index in range(400)})
    here.clock.advance(here.settings.offsets_retention_ms)
    expiring = asyncio.ensure_future(here.coordinator.removal.expire_offsets())
    await asyncio.sleep(0)
    assert here.coordinator.removal.expiration_count == 500
    commit(here, {("t2", 399): at(1000)})
    here.coordinator.offsets.of("g").committed["t2", 399].value.commit_timestamp_ms = here.clock.now_ms()
    await expiring
    assert committed(here) == {("t2", 399): 1000}


async def test_group_with_only_offsets_gets_no_tombstone(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    assert start(here.coordinator.removal.delete_group("g")) is ErrorCode.NONE
    assert [record.key for record in here.log.records() if record.value is None] == [offset_key("g", "t", 0)]
    assert here.coordinator.inspection.group("g") is None


async def test_an_empty_group_without_offsets_is_removed_at_the_next_check(here: Surroundings) -> None:
    join(here, "a", protocol_type="")  # refused, but it has made the group
    assert state(here) is GroupState.EMPTY
    await here.coordinator.removal.expire_offsets()
    assert state(here) is None
    assert here.log.records() == []


async def test_a_group_with_a_pending_member_is_kept(here: Surroundings) -> None:
    join(here, "a", requires_id=True)
    await here.coordinator.removal.expire_offsets()
    assert state(here) is GroupState.EMPTY


async def test_a_group_in_use_is_not_deleted(here: Surroundings) -> None:
    await stable(here, "a")
    assert start(here.coordinator.removal.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    assert state(here) is GroupState.STABLE


async def test_offsets_of_subscribed_topics_are_not_deleted(here: Surroundings) -> None:
    await stable(here, "a")
    commit(here, {T0: at(1), ("u", 0): at(2)}, Committer("a-1", None, 1))
    assert start(here.coordinator.removal.delete_offsets("g", [T0, ("u", 0), ("v", 0)])) == {
        T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("u", 0): ErrorCode.NONE,
        ("v", 0): ErrorCode.NONE,
    }
    assert committed(here) == {T0: 1}
    assert [record.key for record in here.log.records() if record.value is None] == [offset_key("g", "u", 0)]


async def test_offsets_of_an_active_group_of_another_kind_are_not_deleted(here: Surroundings) -> None:
    join(here, "a", protocol_type="connect", offers=protocols("x"))
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        start(here.coordinator.removal.delete_offsets("g", [T0]))


async def test_deleting_the_last_offset_of_an_unused_group_removes_it(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    assert start(here.coordinator.removal.delete_offsets("g", [T0])) == {T0: ErrorCode.NONE}
    assert state(here) is None


async def test_an_unfinished_commit_does_not_restore_a_deleted_offset(here: Surroundings) -> None:
    commit(here, {T1: at(1)})
    here.log.holds = True
    commit(here, {T0: at(1)})
    start(here.coordinator.removal.delete_offsets("g", [T0]))
    assert len(here.log.held) == 2
    here.log.release()
    here.log.release()
    await here.idle()
    assert committed(here) == {T1: 1}
    here.log.holds = False
    await here.restart()
    assert committed(here) == {T1: 1}


async def test_offsets_in_deleted_topics_are_removed(here: Surroundings) -> None:
    await stable(here, "a")
    commit(here, {T0: at(1), T1: at(2), ("u", 0): at(3)}, Committer("a-1", None, 1))
    start(here.coordinator.offsets.commit("other", Committer(), {T0: at(4)}))
    here.coordinator.removal.topics_deleted({"t", "v"})
    assert committed(here) == {("u", 0): 3}
    assert here.coordinator.inspection.group("other") is None


async def deleted(here: Surroundings) -> ErrorCode:
    code = start(here.coordinator.removal.delete_group("g"))
    return code if isinstance(code, ErrorCode) else await code


async def test_a_large_group_is_dead_while_its_offsets_are_removed_in_slices(here: Surroundings) -> None:
    await stable(here, "a")
    commit(here, {("t", index): at(index) for index in range(1200)}, Committer("a-1", None, 1))
    here.coordinator.leave("g", [("a-1", None)])
    deleting = asyncio.ensure_future(deleted(here))
    await asyncio.sleep(0)
    assert state(here) is GroupState.DEAD
    assert committed(here) == {}
    assert here.coordinator.inspection.groups() == (ErrorCode.NONE, [])
    assert commit(here, {T0: at(1)}) == CommitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert start(here.coordinator.removal.delete_group("g")) is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        start(here.coordinator.removal.delete_offsets("g", [T0]))
    await here.coordinator.removal.expire_offsets()
    here.coordinator.removal.topics_deleted({"t"})
    deleting.cancel()  # its client is gone: what was begun is finished
    await here.idle()
    assert state(here) is None
    tombstones = [record.key for record in here.log.records() if record.value is None]
    assert tombstones == [*(offset_key("g", "t", index) for index in range(1200)), group_key("g")]
    commit(here, {T0: at(5)})
    await here.restart()
    assert committed(here) == {T0: 5}


async def test_resigning_ends_the_removal_of_a_large_group(here: Surroundings) -> None:
    commit(here, {("t", index): at(index) for index in range(1200)})
    deleting = asyncio.ensure_future(deleted(here))
    await asyncio.sleep(0)
    here.coordinator.partitions.resign(0)
    assert await deleting is ErrorCode.NOT_COORDINATOR
    await here.lead()
    assert len(committed(here)) == 700


async def test_resigning_before_its_first_slice_ends_the_removal_of_a_group(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    for _ in range(1 + (SLICE_MS + GRACE_MS) // SLICE_MS):
        here.sliced_work.has_time()  # others have used this turn, and each look takes a slice
    deleting = start(here.coordinator.removal.delete_group("g"))
    assert isinstance(deleting, Promise)
    here.coordinator.partitions.resign(0)
    assert await deleting is ErrorCode.NOT_COORDINATOR
    await here.lead()
    assert committed(here) == {T0: 1}


async def test_many_offsets_are_deleted_in_slices(here: Surroundings) -> None:
    many = {("t", index): at(index) for index in range(1200)}
    commit(here, dict(many))
    deleting = start(here.coordinator.removal.delete_offsets("g", [*many, ("u", 0)]))
    assert not isinstance(deleting, dict)
    assert len(committed(here)) == 700
    commit(here, {("t", 1000): at(1)})  # after the request for deletion: it stays
    assert set((await deleting).values()) == {ErrorCode.NONE}
    assert committed(here) == {("t", 1000): 1}


async def test_offsets_in_deleted_topics_are_removed_in_slices_except_newer_ones(here: Surroundings) -> None:
    commit(here, {("t", index): at(index) for index in range(1200)})
    start(here.coordinator.offsets.commit("other", Committer(), {T0: at(1)}))
    here.coordinator.removal.topics_deleted({"t"})
    commit(here, {("t", 0): at(7), ("t", 1100): at(8)})
    await here.idle()
    assert committed(here) == {("t", 0): 7, ("t", 1100): 8}
    assert here.coordinator.inspection.group("other") is None


async def test_many_tombstones_are_appended_in_several_batches(
    here: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "t" * 249
    commit(here, {(topic, index): at(index) for index in range(5000)})
    assert await deleted(here) is ErrorCode.NONE
    sizes = [header.size for _, header in batches(here.log.logs[0])][1:]
    assert len(sizes) == 10
    assert max(sizes) < 1_048_588
    commit(here, {T0: at(1)})
    here.log.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    start(here.coordinator.removal.delete_group("g"))
    assert "tombstones were not stored: NOT_LEADER_OR_FOLLOWER" in caplog.text


# Loading and moving


@pytest.mark.parametrize("compression", Compression)
async def test_groups_and_offsets_survive_a_restart(compression: Compression) -> None:
    settings = CoordinatorSettings(group=NO_DELAY.group, form=StoredForm(compression))
    here = Surroundings(settings)
    await here.lead()
    await stable(here, "a", "b")
    for number in range(20):
        commit(here, {T0: at(number), T1: at(2 * number, "m")}, Committer("a-1", None, 2))
    await here.restart()
    group = here.coordinator.inspection.group("g")
    assert group is not None
    assert (group.state, group.generation_id, group.protocol_name, group.leader_id) == (
        GroupState.STABLE, 2, "range", "a-1",
    )  # fmt: skip
    assert {name: member.assignment for name, member in group.members.items()} == {"a-1": b"a", "b-1": b"b"}
    assert committed(here) == {T0: 19, T1: 38}
    assert here.coordinator.heartbeat("g", "a-1", None, 2) is ErrorCode.NONE
    assert commit(here, {T0: at(3)}, Committer("b-1", None, 2)) == CommitResult(ErrorCode.NONE)
    assert committed(here) == {T0: 3, T1: 38}
    here.advance(10_000)
    assert state(here) is GroupState.EMPTY
    assert len(here.coordinator.partitions.load_times_ms) == 1


async def test_commit_during_loading_overrides_the_loaded_offset(here: Surroundings) -> None:
    for number in range(50):
        commit(here, {T0: at(number)})
    await here.restart()
    commit(here, {T0: at(1000)})
    assert committed(here) == {T0: 1000}


async def test_open_transactions_survive_a_restart(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    commit(here, {T0: at(7)}, producer=CommittingProducer(7, 0))
    await here.restart()
    assert here.coordinator.offsets.of("g").is_unstable(T0)
    here.coordinator.offsets.end_transaction(0, 7, is_committed=True)
    assert committed(here) == {T0: 7}


async def test_transaction_that_ends_during_loading_is_applied(here: Surroundings) -> None:
    commit(here, {T0: at(7)}, producer=CommittingProducer(7, 0))
    here.coordinator = here.new_coordinator()
    here.coordinator.partitions.become_leader(0, 1)
    here.coordinator.offsets.end_transaction(0, 7, is_committed=True)
    await here.idle()
    assert committed(here) == {T0: 7}


async def test_requests_during_loading_get_the_codes_of_kafka(here: Surroundings) -> None:
    await stable(here, "a")
    here.coordinator = here.new_coordinator()
    here.coordinator.partitions.become_leader(0, 1)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert failure_of(here) is loading
    assert here.coordinator.heartbeat("g", "a-1", None, 1) is ErrorCode.NONE
    assert sync(here, "a-1", 1) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    for call in (
        lambda: join(here, "a"),
        lambda: commit(here, {T0: at(1)}),
        lambda: here.coordinator.offsets.of("g"),
        lambda: here.coordinator.leave("g", [("a-1", None)]),
        lambda: start(here.coordinator.removal.delete_group("g")),
    ):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is loading
    assert here.coordinator.inspection.groups() == (loading, [])
    await here.idle()
    assert here.coordinator.inspection.groups()[0] is ErrorCode.NONE
    assert state(here) is GroupState.STABLE


async def test_request_for_a_group_of_another_coordinator_fails_with_not_coordinator() -> None:
    here = Surroundings(NO_DELAY, partition_count=50)
    await here.lead(1)
    assert failure_of(here) is ErrorCode.NOT_COORDINATOR
    for call in (
        lambda: here.coordinator.heartbeat("g", "a-1", None, 1),
        lambda: sync(here, "a-1", 1),
    ):
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            call()
    here.log.count = None
    assert failure_of(here) is ErrorCode.NOT_COORDINATOR


async def test_resigning_fails_parked_requests_with_not_coordinator(here: Surroundings) -> None:
    await stable(here, "a")
    newcomer = join(here, "b")
    here.log.holds = True
    here.coordinator.partitions.resign(0)
    assert isinstance(newcomer, Promise)
    assert (await newcomer).error is ErrorCode.NOT_COORDINATOR
    assert failure_of(here) is ErrorCode.NOT_COORDINATOR
    here.coordinator.partitions.resign(0)
    here.advance(100_000)


async def test_an_append_that_ends_after_resigning_changes_nothing(here: Surroundings) -> None:
    join(here, "a")
    here.log.holds = True
    leader = sync(here, "a-1", 1, {"a-1": b"x"})
    offsets = commit(here, {T0: at(1)}, Committer("a-1", None, 1))
    assert offsets == CommitResult(ErrorCode.REBALANCE_IN_PROGRESS)
    here.coordinator.partitions.resign(0)
    assert isinstance(leader, Promise)
    assert (await leader).error is ErrorCode.NOT_COORDINATOR
    here.log.release()
    await here.idle()
    here.log.holds = False
    await here.lead()
    assert state(here) is GroupState.STABLE


async def test_becoming_leader_again_keeps_the_loaded_groups(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    here.coordinator.partitions.become_leader(0, 5)
    assert committed(here) == {T0: 1}


async def test_resigning_stops_loading(here: Surroundings) -> None:
    commit(here, {T0: at(1)})
    here.coordinator = here.new_coordinator()
    here.coordinator.partitions.become_leader(0, 1)
    await asyncio.sleep(0)
    here.coordinator.partitions.resign(0)
    await here.idle()
    assert failure_of(here) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), RuntimeError("a bug")], ids=["expected", "bug"]
)
async def test_a_log_that_cannot_be_read_is_not_served(
    here: Surroundings, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    commit(here, {T0: at(1)})
    here.log.read_error = error
    await here.restart()
    assert failure_of(here) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "Partition 0 of __consumer_offsets was not loaded" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [(offset_key("other", "t", 0), b"\x00\x03short"), (group_key("other"), b"\x00c"), (b"\x00\x01", b"")],
)
async def test_record_that_cannot_be_decoded_does_not_keep_other_groups_from_being_served(
    here: Surroundings, key: bytes, value: bytes
) -> None:
    commit(here, {T0: at(1)})
    here.log.write(0, build_batch([RecordData(0, key, value)]))
    commit(here, {T1: at(2)})
    await here.restart()
    assert committed(here) == {T0: 1, T1: 2}
    assert here.coordinator.inspection.group("other") is None


async def test_group_with_two_members_of_one_id_is_loaded_without_members(
    here: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    await stable(here, "a")
    value = here.log.records()[-1].value
    assert value is not None
    group = read_group(value)
    commit(here, {T0: at(1)}, Committer(group.members[0].member_id, None, 1))
    group.members.append(group.members[0])
    here.log.write(0, build_batch([RecordData(0, group_key("g"), group_value(group))]))
    await here.restart()
    assert state(here) is GroupState.EMPTY
    assert committed(here) == {T0: 1}
    assert "the members of group g are lost and join again" in caplog.text


async def test_records_of_unknown_kinds_are_skipped(here: Surroundings) -> None:
    here.log.write(0, build_batch([RecordData(0, b"\x00\x05what ever", b"\x00\x00")]))
    commit(here, {T0: at(1)})
    await here.restart()
    assert committed(here) == {T0: 1}


async def test_loading_reads_in_pieces_with_turns_for_other_requests() -> None:
    settings = CoordinatorSettings(group=NO_DELAY.group, load_buffer_size=1000)
    here = Surroundings(settings)
    await here.lead()
    for number in range(200):
        commit(here, {("t", index): at(number) for index in range(10)})
    here.coordinator = here.new_coordinator()
    here.log.read_count = 0
    here.coordinator.partitions.become_leader(0, 1)
    turns = 0
    while not here.coordinator.partitions.load_times_ms:
        turns += 1
        await asyncio.sleep(0)
    assert here.log.read_count >= 100
    assert turns > 100
    assert committed(here) == {("t", index): 199 for index in range(10)}


async def test_loading_begins_at_the_log_start_and_survives_a_cleaned_end(here: Surroundings) -> None:
    for number in range(5):
        commit(here, {("t", number): at(number)})
    here.log.start_offsets[0] = 3
    log = here.log

    class CleanedEnd:
        def __getattr__(self, name: str) -> object:
            return getattr(log, name)

        def end_offset(self, partition: int) -> int:
            return 100

    here.log = CleanedEnd()  # type: ignore[assignment]
    await here.restart()
    assert committed(here) == {("t", 3): 3, ("t", 4): 4}


async def test_a_loaded_group_serves_before_its_sessions_run(here: Surroundings) -> None:
    """Groups are woken in slices; a request of a member before its turn starts the session earlier."""
    for name in (*(f"group-{number}" for number in range(600)), "last"):
        start(here.coordinator.join(name, join_request("z")))
        start(here.coordinator.sync(name, sync_request("z-1", 1, {"z-1": b"Z"})))
    here.coordinator = here.new_coordinator()
    here.coordinator.partitions.become_leader(0, 1)
    while here.coordinator.inspection.groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # noqa: ASYNC110 - one turn at a time
        await asyncio.sleep(0)
    assert not here.coordinator.partitions.load_times_ms
    start(here.coordinator.join("last", join_request("y")))
    await here.idle()
    assert here.coordinator.partitions.load_times_ms
    last = here.coordinator.inspection.group("last")
    assert last is not None
    deadlines = {name: each.session_deadline_ms - here.clock.monotonic_ms() for name, each in last.members.items()}
    assert deadlines == {"z-1": SESSION_MS, "y-1": NEW_MEMBER_JOIN_TIMEOUT_MS}


async def test_a_loaded_group_above_the_size_limit_rebalances(here: Surroundings) -> None:
    await stable(here, "a", "b", "c")
    here.settings = CoordinatorSettings(group=GroupSettings(max_size=2, initial_rebalance_delay_ms=0))
    await here.restart()
    assert state(here) is GroupState.PREPARING_REBALANCE
    results = [join(here, name, f"{name}-1") for name in "abc"]
    assert isinstance(results[2], JoinResult)
    assert results[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert state(here) is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: str(golden.number))
async def test_groups_written_by_kafka_are_loaded(golden: GoldenPartition) -> None:
    number, log, records = golden
    here = Surroundings(partition_count=2)
    here.log.logs[number] = bytearray(log)
    await here.lead()
    code, groups = here.coordinator.inspection.groups()
    assert code is ErrorCode.NONE
    assert {group.state for group in groups} <= {GroupState.EMPTY, GroupState.STABLE}
    assert {group.group_id for group in groups} <= {
        each["decodedKey"]["data"]["group"] for each in records if not each["isControl"]
    }
    assert len(groups) > 5


async def test_stopping_fails_parked_requests(here: Surroundings) -> None:
    await stable(here, "a")
    newcomer = join(here, "b")
    here.coordinator.start()
    await here.coordinator.stop()
    assert isinstance(newcomer, Promise)
    assert (await newcomer).error is ErrorCode.NOT_COORDINATOR
    assert failure_of(here) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        here.coordinator.inspection.groups()
    here.advance(10 * here.settings.offsets_retention_check_interval_ms)
    await here.idle()


# The topic


async def test_the_topic_is_created_when_it_is_needed() -> None:
    here = Surroundings(NO_DELAY, partition_count=None)
    assert here.coordinator.partitions.count() is None
    assert await here.coordinator.partitions.ensure_topic() == 1
    assert await here.coordinator.partitions.ensure_topic() == 1
    assert here.created == ["__consumer_offsets"]


async def test_a_topic_that_cannot_be_created_is_coordinator_not_available() -> None:
    here = Surroundings(NO_DELAY, partition_count=None)
    here.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 replicas, 1 broker")
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE: 3 replicas, 1 broker"):
        await here.coordinator.partitions.ensure_topic()


# Metrics and settings


async def test_groups_and_offsets_are_counted_by_state(here: Surroundings) -> None:
    await stable(here, "a")
    start(here.coordinator.offsets.commit("other", Committer(), {T0: at(1), T1: at(2)}))
    inspection = here.coordinator.inspection
    for state, count in ((GroupState.STABLE, 1), (GroupState.EMPTY, 1), (GroupState.DEAD, 0)):
        assert list(inspection.count_in_state(state)) == [count]
    assert list(inspection.count_offsets()) == [2]
    assert list(inspection.count_members()) == [1]
    assert inspection.group_count() == 2
    assert here.coordinator.offsets.commit_count == 2


async def test_groups_are_counted_in_slices(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.groups.inspection.SLICE_SIZE", 3)
    for number in range(7):
        start(here.coordinator.offsets.commit(f"g{number}", Committer(), {T0: at(1)}))
    for metric in group_metrics(here.coordinator):
        if "GroupMetadataManager" in metric.bean and metric.bean.partition("name=")[2] != "NumGroups":
            assert [sample is None for sample in metric.read()] == [True, True, False], metric.bean


def test_settings_come_from_the_configuration() -> None:
    config = BrokerConfig.from_properties(
        {
            "group.min.session.timeout.ms": "1000",
            "group.max.session.timeout.ms": "2000",
            "group.max.size": "7",
            "group.initial.rebalance.delay.ms": "0",
            "offset.metadata.max.bytes": "100",
            "offsets.retention.minutes": "2",
            "offsets.retention.check.interval.ms": "5",
            "offsets.commit.timeout.ms": "6",
            "offsets.load.buffer.size": "8",
            "offsets.topic.compression.codec": "4",
            "group.consumer.max.size": "9",
            "group.consumer.session.timeout.ms": "50000",
            "group.consumer.migration.policy": "upgrade",
        }
    )
    changed = CoordinatorSettings.from_config(
        config, lambda: OWN_ASSIGNORS, GroupConfigs(config).timeouts, GroupConfigs(config).share_timeouts
    )
    assert changed.consumer().max_size == 9
    assert changed.consumer().timeouts("g") == Timeouts(50_000, 5_000)
    assert changed == CoordinatorSettings(
        consumer=changed.consumer,
        share=changed.share,
        serves_share_groups=True,
        serves_consumer_protocol=True,
        migration="upgrade",
        group=GroupSettings(max_size=7, initial_rebalance_delay_ms=0),
        session_timeout_min_ms=1000,
        session_timeout_max_ms=2000,
        offset_metadata_size_max=100,
        offsets_retention_ms=120_000,
        offsets_retention_check_interval_ms=5,
        commit_timeout_ms=6,
        load_buffer_size=8,
        form=StoredForm(Compression.ZSTD),
    )
