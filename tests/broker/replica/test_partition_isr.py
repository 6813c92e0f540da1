"""The ISR of a partition: every event in every state of the ISR, and which set counts during a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.replica import partition as partition_module
from broker.replica.machine.isr import NEVER_MS, IsrChange
from broker.replica.partition import Effect, IsrResponse, Partition, ReplicaRules
from protocol.errors import ErrorCode, KafkaError
from tests.broker.replica.test_partition import ME, A, B, append, led_by, partition_in
from tests.support.invariants import broken, stated

LAG_MS = 30_000
LATE_MS = LAG_MS + 1


def leader_in(folder: Path, isr: tuple[int, ...], dead: tuple[int, ...] = (), **overrides: str) -> Partition:
    """A leader since 0 ms, with three records."""
    rules = ReplicaRules(LAG_MS, lambda replica: replica not in dead)
    partition = Partition("t", 0, ME, partition_in(folder, **overrides).log, rules=rules)
    partition.lead(led_by(ME, 0, isr), 0)
    append(partition, 3)
    return partition


def expanding(folder: Path) -> tuple[Partition, IsrChange]:
    partition = leader_in(folder, (ME, A))
    partition.follower_fetched(A, 3, 0, 0)
    (change,) = (it for it in partition.follower_fetched(B, 3, 0, 0) if isinstance(it, IsrChange))
    return partition, change


def shrinking(folder: Path) -> tuple[Partition, IsrChange]:
    partition = leader_in(folder, (ME, A, B))
    partition.follower_fetched(A, 3, 0, LATE_MS)
    (change,) = partition.time_passed(LATE_MS)
    assert isinstance(change, IsrChange)
    return partition, change


def applied(change: IsrChange) -> IsrResponse:
    return IsrResponse(ErrorCode.NONE, change.leader_epoch, change.proposed, change.partition_epoch + 1)


def test_follower_with_all_records_is_to_join(tmp_path: Path) -> None:
    partition, change = expanding(tmp_path)
    assert (change.committed, change.proposed, change.partition_epoch) == ((ME, A), (ME, A, B), 0)
    assert partition.isr_change is change
    assert tuple(partition.leadership.isr) == (ME, A), "until the controller has responded"


def test_lagging_follower_is_to_leave_with_its_lag(tmp_path: Path) -> None:
    _, change = shrinking(tmp_path)
    assert (change.proposed, change.lags) == (
        (ME, A),
        {B: f"end offset unknown, leader 3; last caught up {LATE_MS} ms ago"},
    )


@pytest.mark.parametrize(
    ("isr", "dead", "fetched", "joins"),
    [
        ((ME, A), (), 3, True),
        ((ME, A), (B,), 3, False),
        ((ME, A), (), 1, False),
        ((ME, A, B), (), 3, False),
    ],
    ids=["complete", "dead", "behind the high watermark", "in sync already"],
)
def test_which_follower_is_to_join(
    tmp_path: Path, isr: tuple[int, ...], dead: tuple[int, ...], fetched: int, joins: bool
) -> None:
    partition = leader_in(tmp_path, isr, dead)
    partition.follower_fetched(A, 2, 0, 0)
    partition.follower_fetched(B, fetched, 0, 0)
    assert (partition.isr_change is not None) is joins


def test_follower_joins_from_the_start_of_the_leaders_epoch_on(tmp_path: Path) -> None:
    """The high watermark of a new leader lags behind what its predecessor has committed."""
    partition = leader_in(tmp_path, (ME, A))
    partition.follow(led_by(A, 1))
    partition.lead(led_by(ME, 2, (ME, A)), 0)
    assert partition.log.high_watermark == 0
    partition.follower_fetched(B, 2, 0, 0)
    assert partition.isr_change is None
    partition.follower_fetched(B, 3, 0, 0)
    assert partition.isr_change is not None


def test_replica_that_is_not_assigned_any_more_does_not_join(tmp_path: Path) -> None:
    partition = leader_in(tmp_path, (ME, A))
    partition.lead(led_by(ME, 1, (ME, A), (ME, A)), 0)
    partition.follower_fetched(B, 3, 0, 0)
    assert partition.isr_change is None


def test_records_do_not_wait_for_a_follower_that_hangs_before_it_has_joined(tmp_path: Path) -> None:
    """No event but the passing of time follows: the others have everything, and producers wait."""
    partition, change = expanding(tmp_path)
    partition.isr_responded(change, IsrResponse(ErrorCode.INELIGIBLE_REPLICA), 0)
    append(partition)
    partition.follower_fetched(A, 4, 0, 1)
    assert partition.log.high_watermark == 3, "the other follower is about to join"
    assert partition.time_passed(LAG_MS) == ()
    assert partition.time_passed(LATE_MS) == (Effect.HIGH_WATERMARK_ADVANCED,)
    assert partition.log.high_watermark == 4


def test_one_change_is_in_flight_at_a_time(tmp_path: Path) -> None:
    partition, change = expanding(tmp_path)
    append(partition)
    assert partition.time_passed(10 * LATE_MS) == ()
    assert partition.isr_change is change
    partition, change = shrinking(tmp_path / "other")
    partition.follower_fetched(B, 3, 0, LATE_MS)
    assert partition.isr_change is change


def test_follower_that_fetched_during_a_change_joins_after_it(tmp_path: Path) -> None:
    """It has everything, so it names the partition in no further fetch."""
    partition = leader_in(tmp_path, (ME,))
    partition.follower_fetched(A, 3, 0, 0)
    partition.follower_fetched(B, 3, 0, 0)
    change = partition.isr_change
    assert change is not None
    assert change.proposed == (ME, A)
    committed, following = partition.isr_responded(change, applied(change), 0)
    assert committed is Effect.ISR_COMMITTED
    assert isinstance(following, IsrChange)
    assert following.proposed == (ME, A, B)


def test_follower_that_could_not_join_is_tried_again(tmp_path: Path) -> None:
    dead = [B]
    rules = ReplicaRules(LAG_MS, lambda replica: replica not in dead)
    partition = Partition("t", 0, ME, partition_in(tmp_path).log, rules=rules)
    partition.lead(led_by(ME, 0, (ME, A)), 0)
    append(partition, 3)
    partition.follower_fetched(B, 3, 0, 0)
    assert partition.expand_isr() == ()
    dead.clear()
    (change,) = partition.expand_isr()
    assert isinstance(change, IsrChange)
    assert change.proposed == (ME, A, B)
    partition.isr_responded(change, IsrResponse(ErrorCode.INELIGIBLE_REPLICA), 0)
    assert partition.expand_isr() != ()


def test_follower_that_has_left_does_not_return_before_it_fetches(tmp_path: Path) -> None:
    """It has all committed records, because the high watermark stands still below min.insync.replicas."""
    partition = leader_in(tmp_path, (ME, A), min_insync_replicas="2")
    partition.follower_fetched(A, 2, 0, 0)
    (change,) = partition.time_passed(LATE_MS)
    assert isinstance(change, IsrChange)
    assert partition.isr_responded(change, applied(change), LATE_MS) == (Effect.ISR_COMMITTED,)
    assert partition.log.high_watermark == 2
    assert partition.expand_isr() == ()


def test_follower_that_has_crashed_does_not_return_before_it_fetches(tmp_path: Path) -> None:
    """The controller has removed it, it runs again, and another follower joins before its first fetch."""
    partition = leader_in(tmp_path, (ME, B))
    partition.follower_fetched(B, 3, 0, 0)
    partition.lead(led_by(ME, 1, (ME,)), 0)
    partition.follower_fetched(A, 3, 0, 0)
    change = partition.isr_change
    assert change is not None
    assert partition.isr_responded(change, applied(change), 0) == (Effect.ISR_COMMITTED,)
    assert partition.expand_isr() == ()
    partition.follower_fetched(B, 2, 0, 0)
    assert partition.expand_isr() == (), "it has lost a record"
    partition.follower_fetched(B, 3, 0, 0)
    assert partition.isr_change is not None


def test_high_watermark_waits_for_a_joining_follower(tmp_path: Path) -> None:
    partition, change = expanding(tmp_path)
    append(partition)
    partition.follower_fetched(A, 4, 0, 10 * LATE_MS)
    assert partition.log.high_watermark == 3, "follower B may be in the ISR that the next leader is chosen from"
    assert Effect.HIGH_WATERMARK_ADVANCED in partition.follower_fetched(B, 4, 0, 10 * LATE_MS)
    partition.isr_responded(change, applied(change), 10 * LATE_MS)
    assert partition.log.high_watermark == 4


def test_high_watermark_waits_for_a_leaving_follower_until_it_has_left(tmp_path: Path) -> None:
    partition, change = shrinking(tmp_path)
    assert partition.log.high_watermark == 0
    effects = partition.isr_responded(change, applied(change), LATE_MS)
    assert effects == (Effect.ISR_COMMITTED, Effect.HIGH_WATERMARK_ADVANCED)
    assert partition.log.high_watermark == 3
    assert (partition.leadership.isr, partition.leadership.partition_epoch) == ((ME, A), 1)


def test_high_watermark_waits_for_a_follower_that_is_about_to_join(tmp_path: Path) -> None:
    partition = leader_in(tmp_path, (ME,), dead=(A,))
    assert partition.log.high_watermark == 3
    for follower in (A, B):
        partition.follower_fetched(follower, 3, 0, 0)
    change = partition.isr_change
    assert change is not None
    assert change.proposed == (ME, B)
    partition.isr_responded(change, IsrResponse(ErrorCode.INELIGIBLE_REPLICA), 0)
    append(partition)
    assert partition.log.high_watermark == 3, "B was caught up a moment ago, and A is dead"
    assert partition.advance_high_watermark(LATE_MS)
    assert partition.log.high_watermark == 4


@pytest.mark.parametrize("state", [expanding, shrinking])
@pytest.mark.parametrize(
    ("code", "is_in_flight", "is_repeated"),
    [
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False, False),
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True, False),
        (ErrorCode.INVALID_UPDATE_VERSION, True, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, True, False),
        (ErrorCode.INVALID_REQUEST, True, False),
        (ErrorCode.NOT_CONTROLLER, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
        (ErrorCode.REQUEST_TIMED_OUT, True, True),
    ],
)
def test_refused_change_returns_waits_or_is_repeated(
    tmp_path: Path, state: object, code: ErrorCode, is_in_flight: bool, is_repeated: bool
) -> None:
    partition, change = state(tmp_path)  # type: ignore[operator]
    isr = partition.leadership.isr
    effects = partition.isr_responded(change, IsrResponse(code), LATE_MS)
    assert effects == ((Effect.ISR_REFUSED, change) if is_repeated else (Effect.ISR_REFUSED,))
    assert (partition.isr_change is change) is is_in_flight
    assert partition.leadership.isr == isr


@pytest.mark.parametrize("state", [expanding, shrinking])
def test_response_of_another_leadership_is_ignored(tmp_path: Path, state: object) -> None:
    partition, change = state(tmp_path)  # type: ignore[operator]
    newer = replace(applied(change), leader_epoch=1)
    older = replace(applied(change), partition_epoch=-1)
    for response in (newer, older):
        assert partition.isr_responded(change, response, 0) == ()
        assert partition.isr_change is change


@pytest.mark.parametrize("state", [expanding, shrinking])
@pytest.mark.parametrize("event", ["new epoch", "follow", "stop"])
def test_newer_metadata_ends_a_change(tmp_path: Path, state: object, event: str) -> None:
    partition, change = state(tmp_path)  # type: ignore[operator]
    if event == "new epoch":
        partition.lead(led_by(ME, 1, (ME, A)), 0)
    elif event == "follow":
        partition.follow(led_by(A, 1))
    else:
        partition.stop()
    assert partition.isr_change is None
    assert partition.isr_responded(change, applied(change), 0) == ()


def test_new_epoch_of_the_same_leader_gives_the_isr_a_full_lag_time(tmp_path: Path) -> None:
    partition = leader_in(tmp_path, (ME, A, B))
    partition.lead(led_by(ME, 1, (ME, A)), LATE_MS)
    assert partition.time_passed(LATE_MS + LAG_MS) == ()
    (change,) = partition.time_passed(LATE_MS + LAG_MS + 1)
    assert isinstance(change, IsrChange)
    assert change.proposed == (ME,)
    outside = partition.progress_of(B)
    assert outside is not None
    assert outside.caught_up_ms == NEVER_MS


def test_fetch_of_an_earlier_registration_is_refused(tmp_path: Path) -> None:
    """The follower may have lost records when it restarted; a late fetch would claim that it still has them."""
    partition = leader_in(tmp_path, (ME, A))
    partition.follower_fetched(A, 1, 0, 0, broker_epoch=8)
    with pytest.raises(KafkaError) as refused:
        partition.follower_fetched(A, 3, 0, 0, broker_epoch=7)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.high_watermark == 1


def test_reported_log_start_is_an_effect_when_it_changes(tmp_path: Path) -> None:
    partition = leader_in(tmp_path, (ME, A))
    assert Effect.LOG_START_REPORTED in partition.follower_fetched(A, 1, 0, 0)
    assert Effect.LOG_START_REPORTED not in partition.follower_fetched(A, 2, 0, 0)
    assert Effect.LOG_START_REPORTED in partition.follower_fetched(A, 2, 1, 0)


def test_partition_without_followers_asks_for_nothing(tmp_path: Path) -> None:
    partition = leader_in(tmp_path, (ME, A))
    partition.lead(led_by(ME, 1, (ME,), (ME,)), 0)
    assert partition.is_alone
    assert partition.time_passed(LATE_MS) == ()


@pytest.mark.parametrize("is_led", [True, False])
def test_follower_requests_no_isr_change(tmp_path: Path, is_led: bool) -> None:
    partition = leader_in(tmp_path, (ME, A))
    if is_led:
        partition.follow(led_by(A, 1))
    else:
        partition.stop()
    assert partition.time_passed(LATE_MS) == ()


def test_added_replica_joins_later_although_the_others_are_in_sync(tmp_path: Path) -> None:
    dead = {B}
    rules = ReplicaRules(LAG_MS, lambda replica: replica not in dead)
    partition = Partition("t", 0, ME, partition_in(tmp_path).log, rules=rules)
    partition.lead(replace(led_by(ME, 0, (ME, A)), adding=(B,), is_reassigning=True), 0)
    assert not any(isinstance(it, IsrChange) for it in partition.follower_fetched(B, 0, 0, 0))
    assert not partition.is_under_replicated
    dead.clear()
    (change,) = partition.expand_isr()
    assert isinstance(change, IsrChange)
    assert change.proposed == (ME, A, B)


def leads(partition: Partition, **changes: object) -> None:
    partition.leadership = replace(partition.leadership, **changes)  # type: ignore[arg-type]


def follows_with_change(partition: Partition, change: IsrChange | None) -> None:
    partition.follow(led_by(A, 1))
    partition.isr_change = change


BREAKS: dict[str, Callable[[Partition], object]] = {
    "The leader epoch is that of the leadership": lambda it: setattr(it, "leader_epoch", 7),
    "A leader is the replica that the leadership names": lambda it: leads(it, leader_id=A),
    "A leader leads since an epoch that is not above the present one; another replica leads since none": lambda it: (
        setattr(it, "leading_since", 1)
    ),
    "A leader knows the progress of each other replica that is assigned or in sync; another replica knows none": (
        lambda it: leads(it, isr=(ME, A, 9))
    ),
    "Alone is a leader without such replicas, and only that": lambda it: setattr(it, "is_alone", True),
    "Only a leader has a change of the ISR in flight": lambda it: follows_with_change(it, it.isr_change),
    "The change of the ISR that is in flight starts from the present ISR": lambda it: leads(it, isr=(ME,)),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(partition_module)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(tmp_path: Path, invariant: str) -> None:
    partition, _ = expanding(tmp_path)
    assert broken(partition.check) is None
    BREAKS[invariant](partition)
    assert broken(partition.check) == invariant


def test_broken_invariant_of_the_log_is_named(tmp_path: Path) -> None:
    partition, _ = expanding(tmp_path)
    partition.log.high_watermark = 99
    assert broken(partition.check) == "log start <= last stable offset <= high watermark <= log end"


def test_a_refused_change_commits_what_waited_for_a_follower_that_has_left(tmp_path: Path) -> None:
    dead: set[int] = set()
    partition = Partition(
        "t", 0, ME, partition_in(tmp_path).log, rules=ReplicaRules(LAG_MS, lambda replica: replica not in dead)
    )
    partition.lead(led_by(ME, 0, (ME, A)), 0)
    append(partition, 3)
    partition.follower_fetched(A, 3, 0, 0)
    (change,) = (it for it in partition.follower_fetched(B, 3, 0, 0) if isinstance(it, IsrChange))
    append(partition)
    partition.follower_fetched(A, 4, 0, 0)
    assert partition.log.high_watermark == 3
    dead.add(B)
    effects = partition.isr_responded(change, IsrResponse(ErrorCode.INELIGIBLE_REPLICA), 0)
    assert effects == (Effect.ISR_REFUSED, Effect.HIGH_WATERMARK_ADVANCED)
    assert partition.log.high_watermark == 4
