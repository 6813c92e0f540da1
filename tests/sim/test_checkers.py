"""Each checker accepts a good history, and catches a handmade one that breaks its rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.checkers import check
from tests.sim.history import (
    ACCEPT,
    RELEASE,
    Anomaly,
    Assignment,
    Claim,
    Commit,
    CommittedRead,
    DataLoss,
    Deletion,
    Delivery,
    Departure,
    History,
    Initialization,
    LeaderState,
    LogRecord,
    Lookup,
    Partition,
    Poll,
    PolledRecord,
    Release,
    ReplicaLog,
    Send,
    ShareSession,
    Transaction,
)
from tests.sim.rules import CHECKERS, TRANSACTIONS, forgiven, partition_of

P = Partition("t", 0)
OFFSETS = Partition("__consumer_offsets", 0)


def state(at_us: int, leader: int, epoch: int, isr: tuple[int, ...], version: int, controller: int = 1) -> LeaderState:
    return LeaderState(at_us, P, leader, epoch, isr, version, controller, (1, 2, 3))


def record(offset: int, value: str, epoch: int = 0, **flags: bool) -> LogRecord:
    return LogRecord(offset, epoch, value, 7, flags.get("is_control", False), flags.get("is_transactional", False))


def send(number: int, value: str, offset: int | None, transaction: str | None = None) -> Send:
    at_us = 1000 * number
    return Send("p", P, (value,), number, -1, True, at_us, transaction, at_us + 500, offset, 1, at_us, 3)


def poll(consumer: str, at_us: int, position: int, *values: str, bound: int = 10, committed: bool = False) -> Poll:
    records = tuple(PolledRecord(position + index, 0, value) for index, value in enumerate(values))
    return Poll(
        consumer, P, committed, 1, 0, position, at_us, at_us + 100, bound, bound, 0, records, position + len(values)
    )


def claim(member: str, epoch: int, at_us: int, *partitions: Partition) -> Claim:
    """Return what a member has, whose session lasts 6 ms."""
    return Claim("h", member, member, epoch, partitions, 1, at_us, at_us + 100, at_us + 6000)


SESSION = ShareSession("s", "u", 1, 90_000)


def delivery(offset: int, count: int, at_us: int, said: int | None) -> Delivery:
    """Return a record of a share group, with what its member says of it, which is stored after 0.3 ms."""
    sent_us, stored_us = (None, None) if said is None else (at_us + 200, at_us + 300)
    return Delivery(SESSION, P, offset, "v", count, at_us, at_us + 100, said, sent_us, stored_us)


def good() -> History:
    """A run of one partition: four records by one producer, then a transaction, all read and committed."""
    values = ["a", "b", "c", "d"]
    log = [record(offset, value) for offset, value in enumerate(values)]
    log += [record(4, "x", is_transactional=True), record(5, "COMMIT", is_control=True, is_transactional=True)]
    log += [record(6, "y", is_transactional=True), record(7, "ABORT", is_control=True, is_transactional=True)]
    history = History(
        sends=[send(number, value, number) for number, value in enumerate(values)],
        leader_states=[state(0, 1, 0, (1, 2, 3), 0), state(9000, 1, 0, (1, 2), 1), state(10_000, 1, 0, (1, 2, 3), 2)],
        logs=[ReplicaLog(broker, P, 0, 8, list(log)) for broker in (1, 2, 3)],
        min_isr=2,
        healed_us=20_000,
    )
    history.sends += [send(4, "x", 4, "T1"), send(5, "y", 6, "T2")]
    history.transactions = {
        "T1": Transaction("T1", "p", 4000, "committed", 4600, 4800, ["a"]),
        "T2": Transaction("T2", "p", 5000, "aborted", None, 5800, ["b"]),
    }
    history.polls = [
        poll("c", 6000, 0, "a", "b"),
        poll("c", 7000, 2, "c", "d", "x"),
        poll("d", 6000, 0, "a", "b", "c", "d", "x", committed=True),
    ]
    history.polls[0].stored_by = 2
    history.polls[1].next_position = 6
    history.polls.append(poll("c", 8000, 6, "y"))
    history.commits = [Commit("g", "m", 1, P, 2, 6500, 6600), Commit("g", "m", 1, P, 4, 7500, 7600)]
    history.committed_reads = [CommittedRead("g", P, 2, 1, 6700, 6800), CommittedRead("g", P, 4, 1, 7700, 7800)]
    history.assignments = [Assignment("g", "m", 1, (P,), 6000), Assignment("g", "n", 2, (P,), 7800)]
    history.claims = [claim("k", 1, 5000, P), claim("k", 1, 6000), claim("l", 2, 6500, P)]
    history.releases = [Release("h", "k", (P,), 5900)]
    history.share_groups = {"s": [P]}
    history.lock_us, history.delivery_count_max = 5000, 2
    history.deliveries = [delivery(0, 1, 1000, RELEASE)] + [
        delivery(offset, 1 + (offset == 0), 2000 + offset, ACCEPT) for offset in (0, 1, 2, 3, 4, 6)
    ]
    history.created_topics = {"t": 1, "gone": 1}
    history.deleted_topics = {"gone": 9000}
    history.remains = {"t": ["/brokers/topics/t", "broker-1:/data/t-0"]}
    return history


def set_log(history: History, broker: int, records: list[LogRecord]) -> None:
    history.logs = [log for log in history.logs if log.broker != broker]
    history.logs.append(ReplicaLog(broker, P, 0, 8, records))


def read_without_copies(history: History) -> None:
    history.polls[0].stored_by = 1


def two_leaders(history: History) -> None:
    history.leader_states.append(state(11_000, 2, 0, (2, 3), 3))


def partition_that_never_began(history: History) -> None:
    history.created_topics["t"] = 2


def replica_of_a_deleted_topic(history: History) -> None:
    history.remains["gone"] = ["broker-3:/data/gone-0"]


def falling_epoch(history: History) -> None:
    history.leader_states += [state(11_000, 2, 5, (2, 3), 3), state(12_000, 2, 4, (1, 2, 3), 4)]


def write_of_an_earlier_controller(history: History) -> None:
    other = replace(state(11_000, 1, 0, (1, 2), 0, controller=2), partition=Partition("t", 1))
    history.leader_states += [other, state(12_000, 1, 0, (1, 2), 3, controller=1)]


def late_commit(history: History) -> None:
    history.commits.append(Commit("g", "m", 1, P, 4, 7900, 8000))


def poll_of_another_leader(history: History) -> None:
    history.polls[0].broker = 2


def empty_isr(history: History) -> None:
    history.leader_states.append(state(11_000, -1, 1, (), 3))


def unclean(history: History) -> None:
    history.leader_states += [state(11_000, 1, 0, (1,), 3), state(12_000, 2, 1, (2,), 4)]


def other_record_below_a_common_one(history: History) -> None:
    records = list(history.logs[0].records)
    records[1] = record(1, "other")
    set_log(history, 2, records)


def missing_below_high_watermark(history: History) -> None:
    set_log(history, 2, history.logs[0].records[:6])


def acked_is_lost(history: History) -> None:
    for log in history.logs:
        log.records = [replace_value(one, "c", "other") for one in log.records]


def replace_value(one: LogRecord, old: str, new: str) -> LogRecord:
    return one._replace(value=new) if one.value == old else one


def visible_is_lost(history: History) -> None:
    history.polls.append(poll("e", 8000, 3, "never stored"))


def duplicate(history: History) -> None:
    for log in history.logs:
        log.records.append(record(8, "a"))


def out_of_order(history: History) -> None:
    history.sends[1].offset = 0
    history.sends[0].offset = 1


def gap_in_sequence(history: History) -> None:
    history.sends.insert(1, replace(send(0, "lost", None), acked_us=None))


def reassigned_offset(history: History) -> None:
    history.polls.append(poll("e", 8000, 1, "other"))


def hole_in_log(history: History) -> None:
    for log in history.logs:
        log.records.append(record(12, "late"))


def ack_without_copies(history: History) -> None:
    history.sends[0].stored_by = 1


def ack_of_a_deposed_leader(history: History) -> None:
    history.leader_states += [state(11_000, 2, 1, (2, 3), 3)]
    late = send(12, "late", 8)
    history.sends.append(late)


def incomplete_isr(history: History) -> None:
    history.leader_states.append(state(21_000, 1, 0, (1, 2), 3))


def low_high_watermark(history: History) -> None:
    history.logs[0].high_watermark = 5


def read_beyond(history: History) -> None:
    history.polls[1].high_watermark = history.polls[1].last_stable_offset = 3


def fallen_high_watermark(history: History) -> None:
    history.polls.append(poll("e", 9000, 0, "a", bound=4))


def fallen_log_start(history: History) -> None:
    history.polls[0].log_start = 2


def two_values(history: History) -> None:
    history.polls.append(poll("e", 8000, 0, "z"))


def skip(history: History) -> None:
    del history.polls[1]


def skip_within_a_poll(history: History) -> None:
    history.polls[2].records = history.polls[2].records[:1] + history.polls[2].records[2:]


def lost_write(history: History) -> None:
    history.polls[2].records = history.polls[2].records[1:]


def aborted_read(history: History) -> None:
    history.polls.append(poll("d", 8000, 6, "y", committed=True))


def early_read(history: History) -> None:
    history.transactions["T1"].end_asked_us = 6200


def half_committed(history: History) -> None:
    history.transactions["T2"].outcome = "committed"


def hanging(history: History) -> None:
    for log in history.logs:
        log.records.append(record(8, "z", is_transactional=True))


def copied_twice(history: History) -> None:
    history.transactions["T3"] = Transaction("T3", "q", 8000, "committed", 8100, 8200, ["a"], group="q-group")


def cycle(history: History) -> None:
    history.transactions["T1"].reads.append("y")


def two_owners(history: History) -> None:
    history.assignments.append(Assignment("g", "other", 1, (P,), 7900))


def forgotten_commit(history: History) -> None:
    history.committed_reads.append(CommittedRead("g", P, 2, 1, 8000, 8100))


def wrong_lookup(history: History) -> None:
    log = history.logs[0]
    log.records[:] = [one._replace(timestamp_ms=one.offset) for one in log.records]
    history.lookups.append(Lookup("c", P, 1, 0, 3, 4, 8000, 8000, is_committed=False))


def epoch_given_twice(history: History) -> None:
    history.initializations += [Initialization("p", 7, 1, at_us, at_us + 10) for at_us in (100, 200)]


def send_of_a_fenced_instance(history: History) -> None:
    history.initializations += [Initialization("p", 7, epoch, 100, 5000 * epoch) for epoch in (0, 1)]
    history.sends[-1].instance, history.sends[-1].last_sent_us = (7, 0), 5001


def end_by_a_fenced_instance(history: History) -> None:
    history.initializations += [Initialization("p", 7, epoch, 100, 5000 * epoch) for epoch in (0, 1)]
    history.transactions["T2"].instance, history.transactions["T2"].last_asked_us = (7, 0), 5001


def decision_of_one_replica(history: History) -> None:
    history.transactions["T1"].decided_by = 1


def commit_on_one_replica(history: History) -> None:
    history.commits[0].stored_by = 1


def partition_that_was_not_given_up(history: History) -> None:
    history.releases.clear()


def epoch_of_two_owners(history: History) -> None:
    history.claims.append(claim("k", 2, 50_000, P))


def commit_of_an_earlier_epoch(history: History) -> None:
    history.claims.append(claim("k", 3, 40_000, P))
    history.commits.append(Commit("h", "k", 2, P, 4, 41_000, 41_100))


def commit_of_a_fenced_member(history: History) -> None:
    """Its session is over, and another member has the partition."""
    history.claims += [claim("k", 3, 40_000, P), claim("l", 4, 60_000, P)]
    history.commits.append(Commit("h", "k", 3, P, 4, 61_000, 61_100))


def commit_that_goes_back(history: History) -> None:
    history.commits.append(Commit("g", "m", 1, P, 3, 7800, None))
    history.committed_reads.append(CommittedRead("g", P, 3, 1, 8000, 8100))


def delivered_too_often(history: History) -> None:
    history.deliveries.append(delivery(0, 3, 20_000, None))


def released_without_a_count(history: History) -> None:
    history.deliveries[1].count = 1


def expired_without_a_count(history: History) -> None:
    history.deliveries += [delivery(7, 1, 20_000, None), delivery(7, 1, 26_000, None)]


def accepted_record_is_back(history: History) -> None:
    history.deliveries.append(delivery(1, 2, 20_000, None))


def locked_for_two(history: History) -> None:
    history.deliveries += [delivery(7, 1, 20_000, None), delivery(7, 2, 21_000, None)]


def record_left(history: History) -> None:
    del history.deliveries[-1]


def released_record_left(history: History) -> None:
    del history.deliveries[1]


def start_without_a_deletion(history: History) -> None:
    history.logs[0].log_start = 2


def delete(history: History, acked_us: int = 8500) -> None:
    """Delete the first two records on all replicas."""
    history.deletions.append(Deletion(P, 2, 8000, acked_us, 1, 2))
    for log in history.logs:
        log.log_start = 2
        del log.records[:2]


def follower_keeps_its_log_start(history: History) -> None:
    delete(history)
    history.logs[2].log_start = 1


def read_of_deleted_records(history: History) -> None:
    delete(history)
    history.polls.append(poll("e", 9000, 0, "a", "b"))


def deleted_records_are_back(history: History) -> None:
    whole = [list(log.records) for log in history.logs]
    delete(history)
    for log, records in zip(history.logs, whole, strict=True):
        log.log_start, log.records = 0, records


def record_of_an_earlier_topic(history: History) -> None:
    history.polls.append(replace(poll("e", 9000, 0, "a", "b"), partition=Partition("t#2", 0)))


def too_little_retained(history: History) -> None:
    history.retained["t"] = 1000
    for log in history.logs:
        log.log_start, log.size = 2, 999
        del log.records[:2]


BROKEN: list[tuple[str, Callable[[History], None]]] = [
    ("a created topic has all its partitions", partition_that_never_began),
    ("a deleted topic leaves nothing", replica_of_a_deleted_topic),
    ("I1 one leader per epoch", two_leaders),
    ("I1 one leader per epoch", falling_epoch),
    ("only the latest controller writes states", write_of_an_earlier_controller),
    ("I1 consumers see one leader per epoch", poll_of_another_leader),
    ("I8 ISR is never empty and holds the leader", empty_isr),
    ("I13 no unclean election unless allowed", unclean),
    ("I2 log matching", other_record_below_a_common_one),
    ("I3 in-sync replicas are equal below the high watermark", missing_below_high_watermark),
    ("I4 no acknowledged record is lost", acked_is_lost),
    ("I5 no visible record is lost", visible_is_lost),
    ("I6 order and uniqueness per producer", duplicate),
    ("I6 order and uniqueness per producer", out_of_order),
    ("I6 order and uniqueness per producer", gap_in_sequence),
    ("I10 offsets are dense and assigned once per epoch", reassigned_offset),
    ("I10 offsets are dense and assigned once per epoch", hole_in_log),
    ("I11 acknowledged means stored by min.insync.replicas", ack_without_copies),
    ("visible means stored by min.insync.replicas", read_without_copies),
    ("I9 a deposed leader acknowledges nothing", ack_of_a_deposed_leader),
    ("I12 replicas are complete after healing", incomplete_isr),
    ("I12 replicas are complete after healing", low_high_watermark),
    ("I7 the high watermark is monotonic and bounds reads", read_beyond),
    ("I7 the high watermark is monotonic and bounds reads", fallen_high_watermark),
    ("I14 the log start never falls", fallen_log_start),
    ("a log begins where its records were deleted", start_without_a_deletion),
    ("retention keeps what it has to", too_little_retained),
    ("replicas begin where their leader begins", follower_keeps_its_log_start),
    ("deleted records stay deleted", read_of_deleted_records),
    ("deleted records stay deleted", deleted_records_are_back),
    ("one value per offset", two_values),
    ("a record is in one partition", record_of_an_earlier_topic),
    ("every poll continues where the last one ended", skip),
    ("every poll continues where the last one ended", skip_within_a_poll),
    ("every acknowledged record below the last read one was read", lost_write),
    ("no aborted read", aborted_read),
    ("no read before the commit", early_read),
    ("transactions are atomic", half_committed),
    ("transactions are atomic", hanging),
    ("a copied record is committed once", copied_twice),
    ("no cycle of dependencies", cycle),
    ("one owner per partition and generation", two_owners),
    ("no commit of an earlier generation", late_commit),
    ("a partition of a group has one owner at a time", partition_that_was_not_given_up),
    ("one owner per partition and generation", epoch_of_two_owners),
    ("a member that was fenced or moved on commits nothing", commit_of_an_earlier_epoch),
    ("a member that was fenced or moved on commits nothing", commit_of_a_fenced_member),
    ("committed offsets never go back", commit_that_goes_back),
    ("a record is delivered no more often than allowed", delivered_too_often),
    ("a record is delivered no more often than allowed", released_without_a_count),
    ("a record is delivered no more often than allowed", expired_without_a_count),
    ("a record that a share group is done with is not delivered again", accepted_record_is_back),
    ("a record is locked for one member at a time", locked_for_two),
    ("a share group is done with every record in the end", record_left),
    ("a share group is done with every record in the end", released_record_left),
    ("committed offsets survive", forgotten_commit),
    ("a lookup by time finds the first record from then on", wrong_lookup),
    ("each instance of a transactional producer has its own epoch", epoch_given_twice),
    ("a fenced instance of a transactional producer is acknowledged nothing", send_of_a_fenced_instance),
    ("a fenced instance of a transactional producer is acknowledged nothing", end_by_a_fenced_instance),
    ("a decision about a transaction is stored by min.insync.replicas", decision_of_one_replica),
    ("an acknowledged commit is stored by min.insync.replicas", commit_on_one_replica),
]


def test_good_history_has_no_violation() -> None:
    assert check(good()) == []


def test_deletion_of_records_breaks_no_rule() -> None:
    history = good()
    delete(history)
    history.polls.append(replace(poll("e", 9000, 2, "c", "d"), log_start=2))
    assert check(history) == []


def test_retention_breaks_no_rule() -> None:
    history = good()
    too_little_retained(history)
    history.logs[0].size = 1000
    assert check(history) == []


@pytest.mark.parametrize(
    ("leader", "joined_us", "is_excused"),
    [(2, 0, False), (3, 15_000_000, False), (3, 18_000_000, True), (1, 0, True)],
    ids=["a live replica", "a replica that has learned it", "a replica that has just joined", "a restarted leader"],
)
def test_log_start_may_fall_with_a_leader_that_has_started_again(leader: int, joined_us: int, is_excused: bool) -> None:
    """Broker 3 starts again a second after the deletion, and broker 1 after 20 seconds."""
    history = good()
    deleted_records_are_back(history)
    history.departures += [Departure(1_000_000, 3)]
    if joined_us:
        history.leader_states += [
            state(1_000_001, 1, 0, (1, 2), 3),
            state(joined_us, 1, 0, (1, 2, 3), 4),
        ]
    history.departures.append(Departure(20_000_000, 1))
    history.leader_states.append(state(20_000_001, leader, 1, (1, 2, 3), 5))
    rules = [violation.rule for violation in check(history)]
    assert ("deleted records stay deleted" not in rules) is is_excused


def test_transactions_are_not_judged_after_the_loss_of_their_state() -> None:
    history = good()
    hanging(history)
    history.leader_states.append(LeaderState(100, TRANSACTIONS, 1, 0, (1,), 0, 1, (1, 2, 3)))
    assert "transactions are atomic" in [it.rule for it in check(history)]
    history.losses.append(DataLoss(200, 1))
    assert "transactions are atomic" not in [it.rule for it in check(history)]


def test_old_offsets_of_a_deposed_coordinator_are_excused_with_what_follows_from_them() -> None:
    rules = "a copied record is committed once", "committed offsets survive"
    history = good()
    history.leader_states += [
        LeaderState(100, OFFSETS, 1, 0, (1, 2, 3), 0, 1, (1, 2, 3)),
        LeaderState(7900, OFFSETS, 2, 1, (2, 3), 1, 1, (1, 2, 3)),
    ]
    forgotten_commit(history)  # broker 1 responds
    copied_twice(history)
    assert [it.rule for it in check(history) if it.rule in rules] == [rules[0]]
    history.committed_reads.append(CommittedRead("q-group", P, -1, 1, 7950, 7960))
    assert not [it for it in check(history) if it.rule in rules]
    history.committed_reads.append(CommittedRead("g", P, 2, 2, 8200, 8300))
    assert [it.rule for it in check(history) if it.rule in rules] == [rules[1]]


@pytest.mark.parametrize(("rule", "break_it"), BROKEN, ids=[f"{break_it.__name__}" for _, break_it in BROKEN])
def test_broken_history_is_caught(rule: str, break_it: Callable[[History], None]) -> None:
    history = good()
    break_it(history)
    assert rule in [violation.rule for violation in check(history)]


def new_leader(history: History) -> None:
    history.leader_states.append(state(23_000, 2, 1, (2, 3), 3))


def session_without_a_later_response(history: History) -> None:
    for one in history.deliveries:
        one.session = replace(one.session, confirmed_us=20_000)


def write_that_failed(history: History) -> None:
    history.deliveries.append(replace(delivery(8, 1, 20_000, ACCEPT), confirmed_us=None, refusal="NOT_LEADER"))


COUNTED = "a record is delivered no more often than allowed"


@pytest.mark.parametrize("excuse", [new_leader, session_without_a_later_response, write_that_failed])
def test_delivery_that_the_leader_may_have_forgotten_is_not_counted(excuse: Callable[[History], None]) -> None:
    history = good()
    expired_without_a_count(history)
    excuse(history)
    assert COUNTED not in [it.rule for it in check(history)]


def test_member_may_own_what_the_session_of_another_has_lost() -> None:
    """The other one cannot know that its session is over, but its own clock says that it may be."""
    history = good()
    history.claims += [claim("k", 3, 40_000, P), claim("l", 4, 46_000, P)]
    assert check(history) == []


@pytest.mark.parametrize(("value", "is_caught"), [("a", False), ("other", True)])
def test_a_deposed_leader_may_confirm_what_was_replicated_while_it_led(value: str, is_caught: bool) -> None:
    history = good()
    history.leader_states += [state(11_000, 2, 1, (2, 3), 3)]
    again = history.sends[0]
    again.last_sent_us, again.acked_us = 12_000, 12_500
    if is_caught:
        for log in history.logs:
            log.records[0] = record(0, value, epoch=1)
    rules = [violation.rule for violation in check(history)]
    assert ("I9 a deposed leader acknowledges nothing" in rules) is is_caught


@pytest.mark.parametrize(
    ("brokers", "epoch", "value", "is_caught"),
    [
        ((1, 2, 3), 0, "late", False),
        ((1, 3), 0, "late", True),
        ((1, 2, 3), 1, "late", True),
        ((1, 2, 3), 0, "another", True),
    ],
    ids=["on all replicas", "not on the leader", "from the new epoch", "another record"],
)
def test_a_deposed_leader_may_acknowledge_what_all_replicas_had_before_the_next_one_began(
    brokers: tuple[int, ...], epoch: int, value: str, is_caught: bool
) -> None:
    history = good()
    ack_of_a_deposed_leader(history)
    for log in history.logs:
        if log.broker in brokers:
            log.records.append(record(8, value, epoch=epoch))
    rules = [violation.rule for violation in check(history)]
    assert ("I9 a deposed leader acknowledges nothing" in rules) is is_caught


def test_replicas_after_a_move_are_those_of_the_topic() -> None:
    history = good()
    incomplete_isr(history)
    history.final_replicas[P] = (1, 2)
    assert check(history) == []


def test_every_checker_is_tested() -> None:
    assert {rule for rule, _ in BROKEN} == set(CHECKERS)


def test_loss_of_unsynced_data_on_one_of_several_replicas_forgives_nothing() -> None:
    history = good()
    acked_is_lost(history)
    history.losses.append(DataLoss(9500, 2))
    assert not forgiven(history)
    assert check(history)


def test_loss_of_unsynced_data_on_all_in_sync_replicas_is_forgiven() -> None:
    history = good()
    acked_is_lost(history)
    history.losses += [DataLoss(9500, 1), DataLoss(9600, 2)]
    assert forgiven(history) == {P}


def test_loss_is_forgotten_once_the_broker_has_left_the_isr() -> None:
    history = good()
    history.leader_states += [state(11_000, 2, 1, (2, 3), 3), state(12_000, 2, 1, (1, 2, 3), 4)]
    history.losses += [DataLoss(10_500, 1), DataLoss(12_500, 2)]
    assert not forgiven(history)
    history.leader_states.append(state(13_000, 2, 1, (2,), 5))
    assert forgiven(history) == {P}


def test_loss_is_forgiven_if_all_in_sync_replicas_were_gone_without_a_controller() -> None:
    history = good()
    history.leader_states = history.leader_states[:1]
    history.losses.append(DataLoss(9000, 2))
    history.departures = [Departure(9100 + broker, broker) for broker in (1, 2, 3)]
    assert forgiven(history) == {P}
    history.leader_states.append(state(9103, 1, 1, (1, 3), 1))
    assert not forgiven(history)


def test_anomalies_are_violations_unless_their_partition_is_forgiven() -> None:
    history = good()
    history.anomalies = [Anomaly("unexpected error", "text", 0, P)]
    assert [violation.rule for violation in check(history)] == ["unexpected error"]
    history.losses += [DataLoss(100, 1), DataLoss(200, 2), DataLoss(300, 3)]
    assert check(history) == []


@pytest.mark.parametrize(
    ("place", "lost_us", "is_excused"),
    [
        ("broker-3:/data/gone-0", 9000, True),
        ("broker-3:/data/gone-0", 8999, False),
        ("broker-1:/data/gone-0", 9000, False),
        ("/brokers/topics/gone", 9000, False),
    ],
)
def test_replica_of_a_deleted_topic_may_be_back_after_a_power_loss(place: str, lost_us: int, is_excused: bool) -> None:
    history = good()
    history.remains["gone"] = [place]
    history.losses.append(DataLoss(lost_us, 3))
    assert [violation.rule for violation in check(history)] == (
        [] if is_excused else ["a deleted topic leaves nothing"]
    )


@pytest.mark.parametrize(
    ("rule", "breaks", "read_us"),
    [("no aborted read", aborted_read, 8100), ("no read before the commit", early_read, 6100)],
)
def test_reads_of_transactions_are_judged_until_their_partition_has_lost_records(
    rule: str, breaks: Callable[[History], None], read_us: int
) -> None:
    history = good()
    breaks(history)
    history.losses = [DataLoss(read_us + 1, broker) for broker in (1, 2, 3)]
    assert rule in [violation.rule for violation in check(history)]
    history.losses = [DataLoss(read_us, broker) for broker in (1, 2, 3)]
    assert rule not in [violation.rule for violation in check(history)]


def test_reads_of_transactions_are_judged_until_their_state_is_lost() -> None:
    history = good()
    early_read(history)
    history.leader_states.append(LeaderState(100, TRANSACTIONS, 1, 0, (1,), 0, 1, (1, 2, 3)))
    history.losses = [DataLoss(6101, 1)]
    assert "no read before the commit" in [violation.rule for violation in check(history)]
    history.losses = [DataLoss(6100, 1)]
    assert "no read before the commit" not in [violation.rule for violation in check(history)]


def test_group_is_stored_where_its_java_hash_says() -> None:
    history = History(partition_counts={OFFSETS.topic: {3}})
    assert partition_of(history, OFFSETS.topic, "group") == Partition(OFFSETS.topic, 98629247 % 3)
    assert partition_of(History(), OFFSETS.topic, "group") == OFFSETS


def test_rules_with_a_number_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    checked = {found[1] for name in CHECKERS if (found := re.match(r"(I\d+) ", name))}
    assert set(re.findall(r"^\| (I\d+) \|", page, re.MULTILINE)) == checked
    assert set(re.findall(r"\bI\d+\b", page)) == checked


@pytest.mark.parametrize(
    ("left_us", "joined_us", "is_excused"),
    [(0, 0, False), (8600, 0, True), (8600, 8_600_000, True), (8600, 4_600_000, False)],
    ids=["a live follower", "a restarted one", "one that has just joined", "one that has learned the log start"],
)
def test_follower_that_has_started_again_may_serve_deleted_records(
    left_us: int, joined_us: int, is_excused: bool
) -> None:
    history = good()
    delete(history)
    if left_us:
        history.departures.append(Departure(left_us, 2))
    if joined_us:
        history.leader_states += [state(11_000, 1, 0, (1, 3), 3), state(joined_us, 1, 0, (1, 2, 3), 4)]
    served = replace(poll("e", 9_000_000, 0, "a", "b"), broker=2, reads_followers=True)
    history.polls.append(served)
    rules = [violation.rule for violation in check(history)]
    assert ("deleted records stay deleted" not in rules) is is_excused


@pytest.mark.parametrize(("was_away", "is_excused"), [(True, True), (False, False)])
def test_replica_that_was_dropped_while_its_broker_was_away_may_outlast_its_topic(
    was_away: bool, is_excused: bool
) -> None:
    history = good()
    replica_of_a_deleted_topic(history)
    history.leader_states.append(replace(state(8000, 1, 0, (1, 2), 0), partition=Partition("gone", 0), replicas=(1, 2)))
    if was_away:
        history.departures.append(Departure(8500, 3))
    rules = [violation.rule for violation in check(history)]
    assert ("a deleted topic leaves nothing" not in rules) is is_excused


@pytest.mark.parametrize(("asked_us", "is_excused"), [(7999, True), (8001, False)])
def test_lookup_may_skip_records_that_were_deleted_at_that_time(asked_us: int, is_excused: bool) -> None:
    """Brokers that are killed forget the log start, so the records are back at the end."""
    history = good()
    wrong_lookup(history)
    history.deletions.append(Deletion(P, history.lookups[-1].offset, asked_us, None, -1, 1))
    rules = {violation.rule for violation in check(history)}
    assert ("a lookup by time finds the first record from then on" not in rules) is is_excused


@pytest.mark.parametrize(
    ("replicas", "epoch", "is_excused"),
    [((1, 2), 0, True), ((1, 2, 3), 0, False), ((1, 2), 1, False)],
    ids=["removed since", "still assigned", "removed before the record"],
)
def test_a_replica_that_a_move_removed_may_have_had_a_visible_record(
    replicas: tuple[int, ...], epoch: int, is_excused: bool
) -> None:
    history = good()
    read_without_copies(history)
    first = history.polls[0]
    first.records = tuple(it._replace(epoch=epoch) for it in first.records)
    history.leader_states.insert(1, replace(state(5500, 1, epoch, (1, 2), 1), replicas=replicas))
    rules = {violation.rule for violation in check(history)}
    assert ("visible means stored by min.insync.replicas" not in rules) is is_excused
