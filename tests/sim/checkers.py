"""Checkers: what must hold of every history.

Owns the rules: those of replication, the guarantees of clients, and the anomalies that Jepsen's Kafka workload looks
for; docs/simulation.md lists them. Each is a function from a history to its violations, in `CHECKERS` by name.
`tests.sim.group_checkers` has the rules of groups, `tests.sim.rules` what may be lost by the rules. Must not know
brokers.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.sim import group_checkers  # noqa: F401 - adds its rules to the table
from tests.sim.history import (
    DataLoss,
    Deletion,
    Departure,
    History,
    LeaderState,
    LogRecord,
    Lookup,
    Partition,
    Poll,
    ReplicaLog,
    Send,
)
from tests.sim.rules import (
    CHECKERS,
    TRANSACTIONS,
    Violation,
    forgiven,
    forgiven_since,
    has_lost_any,
    is_of_deposed_coordinator,
    is_unclean,
    rule,
    time_of,
)

_DIRECTORY = re.compile(r"broker-(\d+):.*-(\d+)")
"""Where a replica is, as `History.remains` says."""


def check(history: History) -> list[Violation]:
    """Return all violations, the first of each rule."""
    excused = forgiven(history)
    found = [Violation(anomaly.name, anomaly.text) for anomaly in history.anomalies if anomaly.partition not in excused]
    for name, checker in CHECKERS.items():
        text = next(checker(history), None)
        if text is not None:
            found.append(Violation(name, text))
    return found


def _judged_logs(history: History, *, clean: bool = True) -> Iterator[tuple[Partition, list[ReplicaLog]]]:
    """Yield each partition with the logs of its in-sync replicas, without deleted topics."""
    excused = forgiven(history) if clean else set()
    for partition in sorted({log.partition for log in history.logs}):
        state = history.final_state(partition)
        if partition in excused or partition.topic in history.deleted_topics or state is None:
            continue
        yield partition, [log for log in history.logs_of(partition) if log.broker in state.isr]


# Metadata


@rule("I1 one leader per epoch")
def one_leader_per_epoch(history: History) -> Iterator[str]:
    leaders: dict[tuple[Partition, int], int] = {}
    latest: dict[Partition, LeaderState] = {}
    for state in history.leader_states:
        before = latest.get(state.partition)
        latest[state.partition] = state
        if before is not None and state.leader_epoch < before.leader_epoch:
            yield f"{state.partition}: leader epoch fell from {before.leader_epoch} to {state.leader_epoch}"
        if before is not None and state.partition_epoch <= before.partition_epoch:
            yield f"{state.partition}: partition epoch {state.partition_epoch} follows {before.partition_epoch}"
        if before is not None and state.controller_epoch < before.controller_epoch:
            yield f"{state.partition}: controller epoch fell from {before.controller_epoch} to {state.controller_epoch}"
        if state.leader >= 0:
            leader = leaders.setdefault((state.partition, state.leader_epoch), state.leader)
            if leader != state.leader:
                yield f"{state.partition}: both {leader} and {state.leader} lead epoch {state.leader_epoch}"


@rule("only the latest controller writes states")
def latest_controller_writes(history: History) -> Iterator[str]:
    """After a controller has written the state of any partition, no earlier one writes any.

    In older protocols a leader writes its ISR, and keeps the epoch of the controller that has elected it.
    """
    highest: LeaderState | None = None
    latest: dict[Partition, LeaderState] = {}
    for state in history.leader_states:
        before = latest.get(state.partition)
        latest[state.partition] = state
        if history.leaders_write_states and before is not None and _is_by_leader(before, state):
            continue
        if highest is None or state.controller_epoch > highest.controller_epoch:
            highest = state
        elif state.controller_epoch < highest.controller_epoch:
            yield (
                f"{state.partition}: the controller of epoch {state.controller_epoch} wrote at {time_of(state.at_us)}, "
                f"after that of epoch {highest.controller_epoch} wrote {highest.partition}"
            )


def _is_by_leader(before: LeaderState, after: LeaderState) -> bool:
    return (before.leader, before.leader_epoch, before.controller_epoch) == (
        after.leader,
        after.leader_epoch,
        after.controller_epoch,
    )


@rule("I1 consumers see one leader per epoch")
def consumers_see_one_leader(history: History) -> Iterator[str]:
    """A broker that responds in an epoch leads in it, or is a replica of it if the consumer may read followers."""
    states = {(state.partition, state.leader_epoch): state for state in history.leader_states if state.leader >= 0}
    for served in (*history.polls, *history.lookups):
        state = states.get((served.partition, served.epoch))
        if state is None:
            continue
        leader = state.leader
        reads_followers = isinstance(served, Poll) and served.reads_followers
        if served.broker != leader and not (reads_followers and served.broker in state.replicas):
            yield (
                f"{served.partition}: broker {served.broker} served {served.consumer} in epoch {served.epoch} of "
                f"{leader}"
            )


@rule("I8 ISR is never empty and holds the leader")
def isr_holds_the_leader(history: History) -> Iterator[str]:
    for state in history.leader_states:
        if not state.isr:
            yield f"{state.partition}: the ISR is empty in epoch {state.leader_epoch}"
        if state.leader >= 0 and state.leader not in state.isr:
            yield f"{state.partition}: leader {state.leader} is not in the ISR {state.isr}"
        # In older protocols a leader may write an ISR while the controller drops one of its members.
        may_be_late = history.leaders_write_states
        if state.replicas and not set(state.isr) <= set(state.replicas) and not may_be_late:
            yield f"{state.partition}: ISR {state.isr} names others than the replicas {state.replicas}"


@rule("I13 no unclean election unless allowed")
def no_unclean_election(history: History) -> Iterator[str]:
    latest: dict[Partition, LeaderState] = {}
    for state in history.leader_states:
        before = latest.get(state.partition)
        latest[state.partition] = state
        if before is not None and is_unclean(before, state) and not history.allows_unclean:
            yield f"{state.partition}: {state.leader} was elected out of the ISR {before.isr}"


@rule("a created topic has all its partitions")
def created_topics_exist(history: History) -> Iterator[str]:
    for topic, partitions in sorted(history.created_topics.items()):
        for index in range(partitions):
            if topic not in history.deleted_topics and history.final_state(Partition(topic, index)) is None:
                yield f"{topic} was created with {partitions} partitions, but partition {index} never had a state"


@rule("a deleted topic leaves nothing")
def deleted_topics_are_gone(history: History) -> Iterator[str]:
    """A replica may be back if its machine lost power after the deletion: deleting waits for no disk, as in Kafka.

    And it stays, although it is not served, if a move dropped it while its broker was away.
    """
    for topic, requested_us in sorted(history.deleted_topics.items()):
        excused = tuple(f"broker-{loss.broker}:" for loss in history.losses if loss.at_us >= requested_us)
        found = [
            place
            for place in history.remains.get(topic, ())
            if not place.startswith(excused) and not _was_dropped(history, topic, place)
        ]
        if found:
            yield f"{topic} was deleted, but is still at {', '.join(found)}"


def _was_dropped(history: History, topic: str, place: str) -> bool:
    """Return whether a directory is that of a replica which was not assigned in the end, of a broker that was away."""
    found = _DIRECTORY.fullmatch(place)
    if found is None:
        return False
    broker, state = int(found[1]), history.final_state(Partition(topic, int(found[2])))
    was_away = any(departure.broker == broker for departure in history.departures)
    return was_away and state is not None and broker not in state.replicas


# Logs


@rule("I2 log matching")
def log_matching(history: History) -> Iterator[str]:
    """Where two logs have the same epoch at an offset they agree from there down."""
    by_partition = defaultdict(list)
    for log in history.logs:
        by_partition[log.partition].append(log)
    for partition, logs in sorted(by_partition.items()):
        for number, one in enumerate(logs):
            for other in logs[number + 1 :]:
                yield from _mismatches(partition, one, other)


def _mismatches(partition: Partition, one: ReplicaLog, other: ReplicaLog) -> Iterator[str]:
    mine = {record.offset: record for record in one.records}
    theirs = {record.offset: record for record in other.records}
    common = sorted(mine.keys() & theirs.keys())
    same = [offset for offset in common if mine[offset].epoch == theirs[offset].epoch]
    for offset in common:
        if same and offset <= same[-1] and not _is_same(mine[offset], theirs[offset]):
            yield (
                f"{partition}: at offset {offset} replica {one.broker} has {_text(mine[offset])} and replica "
                f"{other.broker} has {_text(theirs[offset])}, but both agree at {same[-1]}"
            )
            return


def _is_same(one: LogRecord, other: LogRecord) -> bool:
    return one == other


def _text(record: LogRecord) -> str:
    return f"{record.value!r} of epoch {record.epoch}"


@rule("I3 in-sync replicas are equal below the high watermark")
def in_sync_replicas_are_equal(history: History) -> Iterator[str]:
    for partition, logs in _judged_logs(history, clean=False):
        high_watermark = max((log.high_watermark for log in logs), default=0)
        start = max((log.log_start for log in logs), default=0)
        below = [[record for record in log.records if start <= record.offset < high_watermark] for log in logs]
        for log, records in zip(logs, below, strict=True):
            if records != below[0]:
                difference = sorted(set(records) ^ set(below[0]))[0]
                yield (
                    f"{partition}: below high watermark {high_watermark} the replicas {logs[0].broker} and "
                    f"{log.broker} differ at offset {difference.offset} ({_text(difference)})"
                )


@rule("I4 no acknowledged record is lost")
def no_acked_record_is_lost(history: History) -> Iterator[str]:
    acked = defaultdict(list)
    for send, offset, value in history.acked():
        if send.acks == -1:
            acked[send.partition].append((send, offset, value))
    for partition, logs in _judged_logs(history):
        for log in logs:
            stored = {record.offset: record.value for record in log.records}
            for send, offset, value in acked[partition]:
                if offset >= log.log_start and stored.get(offset) != value:
                    yield (
                        f"{partition}: {value!r} was acknowledged to {send.producer} at offset {offset} by broker "
                        f"{send.broker} at {time_of(send.acked_us)}, but replica {log.broker} has there "
                        f"{stored.get(offset)!r}"
                    )


@rule("I5 no visible record is lost")
def no_visible_record_is_lost(history: History) -> Iterator[str]:
    polls = defaultdict(list)
    for poll in history.polls:
        polls[poll.partition].append(poll)
    for partition, logs in _judged_logs(history):
        for log in logs:
            stored = {record.offset: record.value for record in log.records}
            for poll in polls[partition]:
                for record in poll.records:
                    if record.offset >= log.log_start and stored.get(record.offset) != record.value:
                        yield (
                            f"{partition}: {poll.consumer} read {record.value!r} at offset {record.offset} from broker "
                            f"{poll.broker} at {time_of(poll.received_us)}, but replica {log.broker} has there "
                            f"{stored.get(record.offset)!r}"
                        )


@rule("I6 order and uniqueness per producer")
def order_per_producer(history: History) -> Iterator[str]:
    """Acknowledged records keep the order of sending; idempotent ones are there once, in order and without gaps."""
    excused = forgiven(history)
    for sends in _sends_per_producer(history).values():
        acked = [send for send in sends if send.offset is not None]
        for one, other in pairwise(acked):
            assert one.offset is not None
            assert other.offset is not None
            if one.acks == -1 and other.offset <= one.offset and one.partition not in excused:
                yield (
                    f"{one.partition}: {one.producer} sent {one.values} before {other.values}, but they are at "
                    f"{one.offset} and {other.offset}"
                )
    idempotent = _sends_per_producer(history, idempotent=True)
    for partition, logs in _judged_logs(history):
        for log in logs:
            places = defaultdict(list)
            for record in log.records:
                places[record.value].append(record.offset)
            for (sender, where), sends in idempotent.items():
                if where == partition:
                    yield from _misplaced(sender, log, sends, places)


def _misplaced(sender: str, log: ReplicaLog, sends: list[Send], places: dict[str, list[int]]) -> Iterator[str]:
    values = [value for send in sends for value in send.values]
    for value in values:
        if len(places[value]) > 1:
            yield f"{log.partition}: replica {log.broker} has {value!r} of {sender} at {places[value]}"
    stored = [places[value][0] for value in values if places[value]]
    if stored != sorted(stored):
        yield f"{log.partition}: replica {log.broker} has the records of {sender} out of order"
    missing = [not places[value] for send in sends if send.transaction is None for value in send.values]
    if log.log_start == 0 and any(first and not second for first, second in pairwise(missing)):
        yield f"{log.partition}: replica {log.broker} has a gap in the records of {sender}"


def _sends_per_producer(history: History, *, idempotent: bool = False) -> dict[tuple[str, Partition], list[Send]]:
    found: dict[tuple[str, Partition], list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.is_idempotent or not idempotent:
            found[send.producer, send.partition].append(send)
    for sends in found.values():
        sends.sort(key=lambda send: send.number)
    return found


@rule("I10 offsets are dense and assigned once per epoch")
def offsets_are_dense(history: History) -> Iterator[str]:
    assigned: dict[tuple[Partition, int, int], str] = {}
    excused = forgiven(history)

    def assign(partition: Partition, offset: int, epoch: int, value: str) -> Iterator[str]:
        first = assigned.setdefault((partition, offset, epoch), value)
        if first != value and partition not in excused:
            yield f"{partition}: offset {offset} was assigned to {first!r} and to {value!r} in epoch {epoch}"

    for log in history.logs:
        expected = log.log_start
        for record in log.records:
            if record.offset > expected:
                yield f"{log.partition}: replica {log.broker} has {record.offset} after {expected - 1}"
            expected = record.offset + 1
            yield from assign(log.partition, record.offset, record.epoch, record.value)
    for poll in history.polls:
        for polled in poll.records:
            yield from assign(poll.partition, polled.offset, polled.epoch, polled.value)


@rule("I11 acknowledged means stored by min.insync.replicas")
def acked_means_stored(history: History) -> Iterator[str]:
    excused = forgiven(history)
    for send in history.sends:
        if send.acks != -1 or send.stored_by is None or send.partition in excused:
            continue
        end = (send.offset or 0) + 1
        if history.may_begin_at(send.partition, end, send.acked_us or math.inf):
            continue  # the segment may have been removed before the replicas were counted
        # A replica that has lost its data since may have had it.
        lost = {loss.broker for loss in history.losses if send.sent_us <= loss.at_us <= (send.acked_us or 0)}
        if send.stored_by + len(lost) < history.min_isr:
            yield (
                f"{send.partition}: {send.values} was acknowledged at {time_of(send.acked_us)} by broker "
                f"{send.broker} with {send.stored_by} replicas, of {history.min_isr} required"
            )


@rule("visible means stored by min.insync.replicas")
def visible_means_stored(history: History) -> Iterator[str]:
    """A record below the high watermark is on `min.insync.replicas` replicas, whatever its producer asked for."""
    excused = forgiven(history) | {
        poll.partition for poll in history.polls if poll.partition.topic in history.deleted_topics
    }
    for poll in history.polls:
        if poll.stored_by is None or poll.partition in excused:
            continue
        if history.may_begin_at(poll.partition, poll.records[-1].offset + 1, poll.received_us):
            continue  # the segment may have been removed before the replicas were counted
        lost = {loss.broker for loss in history.losses if loss.at_us <= poll.received_us}
        lost |= _removed_replicas(history, poll)
        if poll.stored_by + len(lost) < history.min_isr:
            yield (
                f"{poll.partition}: {poll.consumer} read offset {poll.records[-1].offset} from broker {poll.broker} at "
                f"{time_of(poll.received_us)} with {poll.stored_by} replicas, of {history.min_isr} required"
            )


def _removed_replicas(history: History, poll: Poll) -> set[int]:
    """Return the brokers that were in sync in the epoch of the last record or later, and have no replica any more.

    A reassignment, also one that is cancelled, may take a replica away after the record became visible.
    """
    states = [it for it in history.leader_states if it.partition == poll.partition and it.at_us <= poll.received_us]
    if not states:
        return set()
    in_sync = {broker for it in states if it.leader_epoch >= poll.records[-1].epoch for broker in it.isr}
    return in_sync - set(states[-1].replicas)


@rule("I9 a deposed leader acknowledges nothing")
def deposed_leader_acknowledges_nothing(history: History) -> Iterator[str]:
    states = defaultdict(list)
    for state in history.leader_states:
        states[state.partition].append(state)
    for send in history.sends:
        if send.acks != -1 or send.acked_us is None or not states[send.partition]:
            continue
        while_waiting = [
            state
            for state, after in pairwise([*states[send.partition], None])
            if state is not None
            and state.at_us <= send.acked_us
            and (after is None or after.at_us >= send.last_sent_us)
        ]
        is_deposed = all(state.leader not in (send.broker, -1) for state in while_waiting)
        if while_waiting and is_deposed and not _is_older(history, send, while_waiting[0].leader_epoch):
            yield (
                f"{send.partition}: broker {send.broker} acknowledged {send.values}, sent at "
                f"{time_of(send.last_sent_us)}, "
                f"although {while_waiting[-1].leader} led since epoch {while_waiting[0].leader_epoch}"
            )


def _is_older(history: History, send: Send, leader_epoch: int) -> bool:
    """Return whether all replicas have a batch from before an epoch, so that the leader of the epoch began with it.

    The deposed leader may acknowledge it: as a duplicate, if it is sent again, or because the state of the epoch was
    written before leader and followers heard of it, and the followers had fetched the batch by then.
    """
    logs = history.logs_of(send.partition)
    return bool(logs) and all(
        _begins_behind(log, send.offset)
        or any(
            record.offset == send.offset and record.epoch < leader_epoch and record.value == send.values[0]
            for record in log.records
        )
        for log in logs
    )


def _begins_behind(log: ReplicaLog, offset: int | None) -> bool:
    return offset is not None and offset < log.log_start


@rule("I12 replicas are complete after healing")
def replicas_are_complete(history: History) -> Iterator[str]:
    """After healing ISR and assignment are equal, and the high watermark is the end of the log."""
    for partition in sorted({state.partition for state in history.leader_states}):
        state = history.final_state(partition)
        if state is None or partition.topic in history.deleted_topics or history.healed_us is None:
            continue
        replicas = history.final_replicas.get(partition, state.replicas)
        if state.leader < 0 or set(state.isr) != set(replicas):
            yield f"{partition}: after healing the leader is {state.leader}, the ISR {state.isr} of {replicas}"
            continue
        for log in history.logs_of(partition):
            if log.broker in state.isr and log.high_watermark != log.end:
                yield (
                    f"{partition}: after healing the high watermark of replica {log.broker} is {log.high_watermark}, "
                    f"its log ends at {log.end}"
                )


# Consumers


@rule("I7 the high watermark is monotonic and bounds reads")
def high_watermark_is_monotonic(history: History) -> Iterator[str]:
    for poll in history.polls:
        bound = poll.last_stable_offset if poll.is_committed else poll.high_watermark
        if poll.records and poll.records[-1].offset >= bound:
            yield f"{poll.partition}: {poll.consumer} read offset {poll.records[-1].offset}, beyond {bound}"
        if poll.last_stable_offset > poll.high_watermark:
            yield f"{poll.partition}: last stable offset {poll.last_stable_offset} > {poll.high_watermark}"
    yield from _fallen(history, "high watermark", lambda poll: poll.high_watermark)


@rule("I14 the log start never falls")
def log_start_never_falls(history: History) -> Iterator[str]:
    yield from _fallen(history, "log start", lambda poll: poll.log_start)


@rule("a log begins where its records were deleted")
def logs_begin_at_deletions(history: History) -> Iterator[str]:
    for poll in history.polls:
        if not history.may_begin_at(poll.partition, poll.log_start, poll.received_us):
            yield f"{poll.partition}: broker {poll.broker} reported the log start {poll.log_start} without a deletion"
    for log in history.logs:
        if not history.may_begin_at(log.partition, log.log_start, math.inf):
            yield f"{log.partition}: replica {log.broker} begins at {log.log_start} without a deletion"


@rule("retention keeps what it has to")
def retention_keeps_enough(history: History) -> Iterator[str]:
    """Retention deletes a segment only if `retention.bytes` remain. Only the end of a log may be lost later."""
    for partition, logs in _judged_logs(history):
        kept = history.retained.get(partition.topic)
        is_shortened = any(not history.was_deleted_up_to(partition, log.log_start) for log in logs)
        if kept is not None and is_shortened and max(log.size for log in logs) < kept:
            yield f"{partition}: of {kept} bytes {[(log.broker, log.log_start, log.size) for log in logs]} are left"


@rule("replicas begin where their leader begins")
def followers_follow_the_log_start(history: History) -> Iterator[str]:
    for partition, logs in _judged_logs(history, clean=False):
        state = history.final_state(partition)
        starts = {log.broker: log.log_start for log in logs}
        leaders = -1 if state is None else starts.get(state.leader, -1)
        for broker, start in starts.items():
            if start < leaders and history.healed_us is not None:
                yield f"{partition}: replica {broker} begins at {start}, its leader at {leaders}"


@rule("deleted records stay deleted")
def deleted_records_stay_deleted(history: History) -> Iterator[str]:
    """After the acknowledgement no leader serves what is below the log start, until the start may fall by the rules.

    Nor does a follower, unless it has started again and has not learned the log start of its leader yet.
    """
    excused = forgiven(history)
    leaders = {(state.partition, state.leader_epoch): state.leader for state in history.leader_states}
    logs_of = dict(_judged_logs(history))
    for deletion in history.deletions:
        partition, bound = deletion.partition, deletion.low_watermark
        if deletion.acked_us is None or partition in excused:
            continue
        until_us, epoch = _start_may_fall(history, deletion)
        for poll in history.polls:
            if poll.partition != partition or poll.asked_us < deletion.acked_us or poll.received_us > until_us:
                continue
            first = poll.records[0].offset if poll.records else bound
            if poll.epoch < epoch or (poll.log_start >= bound and first >= bound):
                continue
            if leaders.get((partition, poll.epoch)) == poll.broker or _has_learned(history, poll):
                yield (
                    f"{partition}: the records below {bound} were deleted at {time_of(deletion.acked_us)}, but at "
                    f"{time_of(poll.received_us)} broker {poll.broker} served {first}, its log start being "
                    f"{poll.log_start}"
                )
        for log in logs_of.get(partition, ()):
            if log.log_start < bound and until_us == math.inf:
                yield (
                    f"{partition}: the records below {bound} were deleted at {time_of(deletion.acked_us)}, but "
                    f"replica {log.broker} begins at {log.log_start}"
                )


LEARNED_US = 4_000_000
"""After this time in the ISR a replica has learned the log start of its leader, which it adopts with a response."""


def _has_learned(history: History, poll: Poll) -> bool:
    """Return whether the replica that served has never left, or was in the ISR again for a while when it was asked."""
    left_us = max(
        (
            it.at_us
            for it in (*history.losses, *history.departures)
            if it.broker == poll.broker and it.at_us <= poll.received_us
        ),
        default=-1,
    )
    states = [state for state in history.leader_states if state.partition == poll.partition]
    joined_us = [
        after.at_us
        for before, after in pairwise(states)
        if after.at_us > left_us and poll.broker in set(after.isr) - set(before.isr)
    ]
    return left_us < 0 or (bool(joined_us) and joined_us[0] + LEARNED_US <= poll.asked_us)


def _start_may_fall(history: History, deletion: Deletion) -> tuple[float, int]:
    """Return when the log start may fall below what an acknowledged deletion has set, and the epoch of its leader.

    Log starts are in memory, and on the disks only from time to time. So a broker that has started again begins where
    an earlier checkpoint says, until it learns the log start of its leader. If it leads before, the start falls.
    """
    assert deletion.acked_us is not None
    events: list[tuple[int, LeaderState | DataLoss | Departure]] = [
        (state.at_us, state) for state in history.leader_states if state.partition == deletion.partition
    ]
    events += [(event.at_us, event) for event in (*history.losses, *history.departures)]
    events.sort(key=lambda pair: pair[0])
    isr: tuple[int, ...] = ()
    leader, epoch = -1, 0
    departed: set[int] = set()
    for at_us, event in events:
        if at_us > deletion.acked_us:
            break
        if isinstance(event, LeaderState):
            departed -= set(event.isr) - set(isr)
            isr, leader = event.isr, event.leader
            if leader == deletion.broker:
                epoch = event.leader_epoch
        else:
            departed.add(event.broker)
    known_us = {broker: -LEARNED_US for broker in isr if broker not in departed}
    falls_us = math.inf if leader in known_us else float(deletion.acked_us)
    for at_us, event in events:
        if at_us <= deletion.acked_us:
            continue
        if not isinstance(event, LeaderState):
            known_us.pop(event.broker, None)
            if event.broker == leader:
                falls_us = min(falls_us, at_us)  # unless another one leads before it returns
            continue
        joined = set(event.isr) - set(isr)
        isr, leader = event.isr, event.leader
        if leader >= 0 and known_us.get(leader, at_us) > at_us - LEARNED_US:
            return min(falls_us, at_us), epoch
        if leader >= 0:
            falls_us = math.inf
            known_us.update(dict.fromkeys(sorted(joined), at_us))
    return falls_us, epoch


def _fallen(history: History, name: str, bound: Callable[[Poll], int]) -> Iterator[str]:
    """Yield where a bound fell between two polls of one leadership, of which one ended before the other began."""
    excused = forgiven(history)
    terms = defaultdict(list)
    for poll in history.polls:
        if poll.partition not in excused:  # a single replica leads on in the same epoch after it lost its data
            terms[poll.partition, poll.broker, poll.epoch, poll.incarnation].append(poll)
    for (partition, broker, epoch, _), polls in terms.items():
        polls.sort(key=lambda poll: poll.received_us)
        received = [poll.received_us for poll in polls]
        highest: list[int] = []
        for poll in polls:
            highest.append(max(bound(poll), highest[-1] if highest else -1))
        for poll in polls:
            earlier = bisect_left(received, poll.asked_us)
            if earlier and bound(poll) < highest[earlier - 1]:
                yield (
                    f"{partition}: broker {broker} in epoch {epoch} reported {name} {highest[earlier - 1]}, later "
                    f"{bound(poll)} to {poll.consumer} at {time_of(poll.received_us)}"
                )


@rule("one value per offset")
def one_value_per_offset(history: History) -> Iterator[str]:
    seen: dict[tuple[Partition, int], tuple[str, str]] = {}
    excused = forgiven(history)
    for send, offset, value in history.acked():
        if send.acks == -1 and send.partition not in excused:
            who, first = seen.setdefault((send.partition, offset), (f"acknowledged to {send.producer}", value))
            if first != value:
                yield f"{send.partition}: offset {offset} has {first!r} ({who}) and {value!r} (acknowledged)"
    for poll in history.polls:
        for record in poll.records:
            if poll.partition in excused:
                continue
            who, first = seen.setdefault((poll.partition, record.offset), (f"read by {poll.consumer}", record.value))
            if first != record.value:
                yield f"{poll.partition}: offset {record.offset} has {first!r} ({who}) and {record.value!r}"


@rule("a record is in one partition")
def one_partition_per_record(history: History) -> Iterator[str]:
    """In particular, no record of an earlier topic is in the next one of the same name."""
    found: dict[str, Partition] = {}
    places = [(log.partition, record.value) for log in history.logs for record in log.records if not record.is_control]
    places += [(poll.partition, record.value) for poll in history.polls for record in poll.records]
    for partition, value in places:
        first = found.setdefault(value, partition)
        if first != partition:
            yield f"{value!r} is both in {first} and in {partition}"


@rule("every poll continues where the last one ended")
def no_skip_or_inversion(history: History) -> Iterator[str]:
    """A consumer reads ascending offsets, and misses only control records, and aborted ones if it reads committed."""
    logs = {partition: logs[0] for partition, logs in _judged_logs(history) if logs}
    positions: dict[tuple[str, Partition], int] = {}
    aborted = _aborted_values(history)
    for poll in history.polls:
        expected = positions.get((poll.consumer, poll.partition))
        if expected is not None and poll.position != expected:
            yield f"{poll.partition}: {poll.consumer} polled {poll.position} instead of {expected}"
        positions[poll.consumer, poll.partition] = poll.next_position
        offsets = [record.offset for record in poll.records]
        if any(second <= first for first, second in pairwise([poll.position - 1, *offsets])):
            yield f"{poll.partition}: {poll.consumer} got the offsets {offsets} at position {poll.position}"
        log = logs.get(poll.partition)
        if log is None:
            continue
        got = set(offsets)
        for record in _between(log, poll.position, poll.next_position):
            if record.offset in got or record.is_control:
                continue
            if not (poll.is_committed and record.is_transactional and record.value in aborted):
                yield (
                    f"{poll.partition}: {poll.consumer} skipped {record.value!r} at offset {record.offset} "
                    f"when it polled {poll.position} from broker {poll.broker} at {time_of(poll.received_us)}"
                )


def _between(log: ReplicaLog, start: int, end: int) -> list[LogRecord]:
    first = bisect_left(log.records, start, key=lambda record: record.offset)
    last = bisect_left(log.records, end, key=lambda record: record.offset)
    return log.records[first:last]


def _aborted_values(history: History) -> set[str]:
    """Return the values of transactions that may have been aborted."""
    return {
        value
        for send in history.sends
        if send.transaction is not None and history.transactions[send.transaction].outcome != "committed"
        for value in send.values
    }


@rule("every acknowledged record below the last read one was read")
def no_lost_write(history: History) -> Iterator[str]:
    """Jepsen's lost write: for each consumer that reads everything from the start."""
    excused = forgiven(history)
    read: dict[Partition, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    bounds: dict[tuple[str, Partition], tuple[int, int]] = {}
    commits_only: dict[str, bool] = {}
    for poll in history.polls:
        key = poll.consumer, poll.partition
        began, highest = bounds.setdefault(key, (poll.position, -1))
        commits_only[poll.consumer] = poll.is_committed
        if poll.records:
            read[poll.partition][poll.consumer].update([record.value for record in poll.records])
            bounds[key] = began, max(highest, *[record.offset for record in poll.records])
    for send, offset, value in history.acked():
        if send.acks != -1 or send.partition in excused:
            continue
        outcome = "committed" if send.transaction is None else history.transactions[send.transaction].outcome
        for consumer, values in read[send.partition].items():
            began, highest = bounds[consumer, send.partition]
            is_due = began <= offset <= highest and (outcome == "committed" or not commits_only[consumer])
            if is_due and value not in values:
                yield f"{send.partition}: {consumer} read up to {highest} without {value!r} at {offset}"


@rule("a lookup by time finds the first record from then on")
def lookups_find_the_first(history: History) -> Iterator[str]:
    """Records may have been deleted when a broker was asked, and be back: a log start is lost with its brokers."""
    logs = {partition: logs[0] for partition, logs in _judged_logs(history) if logs}
    acked_us = {
        (send.partition, offset): send.acked_us
        for send, offset, _ in history.acked()
        if send.transaction is None and send.acks == -1
    }
    for lookup in history.lookups:
        log = logs.get(lookup.partition)
        if log is None:
            continue
        if _begins_behind(log, lookup.offset) and lookup.offset >= 0:
            continue  # the record was deleted later
        first = next(
            (
                it
                for it in log.records
                if it.timestamp_ms >= lookup.timestamp_ms
                and (it.offset == lookup.offset or not _was_deleted(history, lookup, it.offset))
            ),
            None,
        )
        if lookup.offset >= 0 and (first is None or first.offset != lookup.offset):
            yield f"{lookup.partition}: {lookup} found offset {lookup.offset}, expected {first}"
        if lookup.offset < 0 and first is not None:
            known_us = acked_us.get((lookup.partition, first.offset))
            if known_us is not None and known_us < lookup.asked_us and not lookup.is_committed:
                yield f"{lookup.partition}: {lookup} found nothing, expected {first}"


def _was_deleted(history: History, lookup: Lookup, offset: int) -> bool:
    """Return whether a record may have been deleted when a broker looked for it."""
    return history.may_begin_at(lookup.partition, offset + 1, lookup.received_us)


# Transactions


def _polls_before_losses(history: History) -> Iterator[Poll]:
    """Yield the polls of partitions that had lost no records by the rules yet.

    If a partition has lost the marker of a transaction, but not its records, the next marker of the producer ends them.
    And if the state of transactions is lost, the coordinator may write the markers of an earlier transaction once more.
    """
    since = forgiven_since(history)
    states_lost_us = min((at_us for it, at_us in since.items() if it.topic == TRANSACTIONS.topic), default=math.inf)
    for poll in history.polls:
        if poll.received_us < min(since.get(poll.partition, math.inf), states_lost_us):
            yield poll


@rule("no aborted read")
def no_aborted_read(history: History) -> Iterator[str]:
    transactions = {value: send.transaction for send in history.sends if send.transaction for value in send.values}
    for poll in _polls_before_losses(history):
        for record in poll.records:
            name = transactions.get(record.value)
            if poll.is_committed and name and history.transactions[name].outcome == "aborted":
                yield f"{poll.partition}: {poll.consumer} read {record.value!r} of the aborted transaction {name}"


@rule("no read before the commit")
def no_pre_commit_read(history: History) -> Iterator[str]:
    transactions = {value: send.transaction for send in history.sends if send.transaction for value in send.values}
    for poll in _polls_before_losses(history):
        for record in poll.records:
            name = transactions.get(record.value)
            if not poll.is_committed or not name:
                continue
            asked_us = history.transactions[name].end_asked_us
            if asked_us is None or asked_us > poll.received_us:
                yield f"{poll.partition}: {poll.consumer} read {record.value!r} before {name} was to commit"


@rule("each instance of a transactional producer has its own epoch")
def epochs_are_given_once(history: History) -> Iterator[str]:
    if has_lost_any(history, TRANSACTIONS.topic):
        return
    for number, later in enumerate(history.initializations):
        for earlier in history.initializations[:number]:
            if earlier.transactional_id != later.transactional_id or earlier.received_us > later.asked_us:
                continue
            if later.producer_id == earlier.producer_id and later.epoch <= earlier.epoch:
                yield f"{later.transactional_id} was given epoch {later.epoch} after epoch {earlier.epoch}"


@rule("a fenced instance of a transactional producer is acknowledged nothing")
def fenced_instances_are_refused(history: History) -> Iterator[str]:
    """Once a producer has heard of its epoch, what an earlier epoch of the same id asks for later is refused."""
    if has_lost_any(history, TRANSACTIONS.topic):
        return
    excused = forgiven(history)
    asked = [
        (send.instance, send.last_sent_us, f"{send.partition}: {send.values} of {send.producer}")
        for send in history.sends
        if send.acked_us is not None and send.partition not in excused
    ]
    asked += [
        (transaction.instance, transaction.last_asked_us, f"the end of {transaction.name}")
        for transaction in history.transactions.values()
        if transaction.outcome in ("committed", "aborted")
    ]
    for (producer_id, epoch), asked_us, what in asked:
        for later in history.initializations:
            if later.producer_id == producer_id and later.epoch > epoch and later.received_us < asked_us:
                yield (
                    f"{what}, asked for in epoch {epoch} at {time_of(asked_us)}, was acknowledged, although "
                    f"{later.transactional_id} had epoch {later.epoch} since {time_of(later.received_us)}"
                )


@rule("a decision about a transaction is stored by min.insync.replicas")
def decisions_are_stored(history: History) -> Iterator[str]:
    if has_lost_any(history, TRANSACTIONS.topic):
        return
    for transaction in history.transactions.values():
        ended_us = transaction.ended_us
        if ended_us is not None and transaction.decided_by is not None:
            lost = {loss.broker for loss in history.losses if transaction.began_us <= loss.at_us <= ended_us}
            if transaction.decided_by + len(lost) < history.min_isr:
                yield f"the end of {transaction.name} was acknowledged with {transaction.decided_by} replicas"


@rule("transactions are atomic")
def transactions_are_atomic(history: History) -> Iterator[str]:
    """All records of a transaction end with the same marker, and it is the one that the producer received.

    If the state of transactions is lost, nothing ends those in progress, and a later state may end them otherwise.
    """
    excused = forgiven(history)
    if has_lost_any(history, TRANSACTIONS.topic):
        return
    owner = {value: send.transaction for send in history.sends if send.transaction for value in send.values}
    ends: dict[str, dict[str, str]] = defaultdict(dict)
    for partition, logs in _judged_logs(history):
        for log in logs[:1]:
            closed, hanging = _markers(log)
            for value, marker in closed:
                if value in owner:
                    ends[owner[value]][value] = marker
            if hanging and history.healed_us is not None:
                yield f"{partition}: the transaction of {hanging} has no marker after healing"
    for name, markers in sorted(ends.items()):
        outcome = history.transactions[name].outcome
        touched = {send.partition for send in history.sends if send.transaction == name}
        if touched & excused:
            continue
        if len(set(markers.values())) > 1:
            yield f"{name} is half committed: {markers}"
        if outcome == "committed" and "ABORT" in markers.values():
            yield f"{name} was acknowledged as committed, but its records are aborted"
        if outcome == "aborted" and "COMMIT" in markers.values():
            yield f"{name} was acknowledged as aborted, but its records are committed"


def _markers(log: ReplicaLog) -> tuple[list[tuple[str, str]], list[str]]:
    """Return each transactional value with the marker that ends its transaction, and the values without one."""
    closed: list[tuple[str, str]] = []
    opened: dict[int, list[str]] = defaultdict(list)
    for record in log.records:
        if record.is_control:
            closed += [(value, record.value) for value in opened.pop(record.producer_id, [])]
        elif record.is_transactional:
            opened[record.producer_id].append(record.value)
    return closed, [value for values in opened.values() for value in values]


@rule("a copied record is committed once")
def copied_once(history: History) -> Iterator[str]:
    """A transaction that copies commits its position with its output, so each input has one committed output.

    A copier that a deposed coordinator has given an old position copies again from there.
    """
    excused = forgiven(history)
    if excused:
        return
    misled_us: dict[str, int] = {}
    for read in history.committed_reads:
        if is_of_deposed_coordinator(history, read):
            misled_us.setdefault(read.group, read.received_us)
    copies: dict[str, str] = {}
    for name, transaction in sorted(history.transactions.items()):
        if transaction.began_us >= misled_us.get(transaction.group, math.inf):
            continue
        if transaction.outcome == "committed":
            for value in transaction.reads:
                if value in copies:
                    yield f"{value!r} was copied by {copies[value]} and by {name}"
                copies[value] = name


@rule("no cycle of dependencies")
def no_cycle(history: History) -> Iterator[str]:
    """G1c: no cycle of 'read what the other wrote' and 'wrote after the other had ended'.

    Interleaved transactions may write to two partitions in opposite orders (G0): Kafka does not isolate writes. So the
    order of writes counts only between transactions of which one had ended before the other began.
    """
    writer = {value: send.transaction for send in history.sends if send.transaction for value in send.values}
    after: dict[str, set[str]] = defaultdict(set)
    for name, transaction in history.transactions.items():
        for value in transaction.reads:
            source = writer.get(value)
            if source and source != name:
                after[source].add(name)
    for log in history.logs:
        written: list[str] = []
        for record in log.records:
            name = writer.get(record.value)
            if name and (not written or written[-1] != name):
                written.append(name)
        for one, other in pairwise(written):
            first, second = history.transactions[one], history.transactions[other]
            if second.ended_us is not None and second.ended_us < first.began_us:
                after[one].add(other)  # against the order of time
            elif first.ended_us is not None and first.ended_us < second.began_us:
                after[one].add(other)
    ordered = sorted(history.transactions.values(), key=lambda transaction: transaction.began_us)
    for earlier, later in pairwise(ordered):
        if earlier.producer == later.producer and earlier.ended_us is not None:
            after[earlier.name].add(later.name)
    cycle = _cycle(after)
    if cycle:
        yield " -> ".join(cycle)


def _cycle(after: dict[str, set[str]]) -> list[str] | None:
    """Return the names along a cycle, or None."""
    done: set[str] = set()
    for start in sorted(after):
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, Iterator[str]]] = []
        if start in done:
            continue
        stack.append((start, iter(sorted(after.get(start, ())))))
        path.append(start)
        on_path.add(start)
        while stack:
            name, following = stack[-1]
            step = next(following, None)
            if step is None:
                stack.pop()
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif step in on_path:
                return [*path[path.index(step) :], step]
            elif step not in done:
                stack.append((step, iter(sorted(after.get(step, ())))))
                path.append(step)
                on_path.add(step)
    return None
