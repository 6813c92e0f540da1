"""The rules of groups, judged by the history of a run. They are pure functions.

Owns the rules of all three protocols: what members own, what they commit, and what is delivered to members of a share
group. `tests.sim.checkers` has the other rules. Must not know brokers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.sim.history import ACCEPT, REJECT, RELEASE, Claim, CommittedRead, Delivery, History, Partition
from tests.sim.rules import (
    OFFSETS,
    SHARE_STATES,
    forgiven,
    has_lost_any,
    is_leader,
    is_of_deposed_coordinator,
    rule,
    time_of,
)


@rule("one owner per partition and generation")
def one_owner(history: History) -> Iterator[str]:
    """In the consumer protocol a member has an epoch of its own, which stands for the generation."""
    if has_lost_any(history, OFFSETS.topic):
        return  # generations begin anew
    owners: dict[tuple[str, int, Partition], str] = {}
    owned = [(it.group, it.generation, it.member, it.partitions) for it in history.assignments]
    owned += [(it.group, it.epoch, it.member, it.partitions) for it in history.claims]
    for group, generation, member, partitions in owned:
        for partition in partitions:
            owner = owners.setdefault((group, generation, partition), member)
            if owner != member:
                yield f"{partition}: {owner} and {member} own it in generation {generation} of {group}"


@rule("a partition of a group has one owner at a time")
def one_owner_at_atime_of(history: History) -> Iterator[str]:
    """The coordinator gives a partition to a member of the consumer protocol once nobody else can have it.

    A member may act as an owner from the response that gives it a partition until it gives it up, or until its session
    may have ended without its knowledge: one session after it sent its last successful heartbeat.
    """
    if has_lost_any(history, OFFSETS.topic):
        return
    held: dict[tuple[str, Partition], list[tuple[int, int, str]]] = defaultdict(list)
    for claim in history.claims:
        if is_of_deposed_coordinator(history, claim):
            continue
        for partition in claim.partitions:
            held[claim.group, partition].append(
                (claim.received_us, _end_of(history, claim, partition), claim.member_id)
            )
    for (group, partition), spans in held.items():
        for number, (begin_us, end_us, member) in enumerate(spans):
            for other_begin_us, other_end_us, other in spans[number + 1 :]:
                if member != other and max(begin_us, other_begin_us) < min(end_us, other_end_us):
                    both_us = max(begin_us, other_begin_us)
                    yield f"{partition}: {member} and {other} own it in {group} at {time_of(both_us)}"


def _end_of(history: History, claim: Claim, partition: Partition) -> int:
    """Return when the member that made a claim has given up a partition, at the latest when its session may end."""
    return int(min(_release_of(history, claim, partition), claim.until_us))


def _release_of(history: History, claim: Claim, partition: Partition) -> float:
    """Return when the member that made a claim has given up a partition."""
    ends = (
        release.at_us
        for release in history.releases
        if (release.group, release.member_id) == (claim.group, claim.member_id)
        and partition in release.partitions
        and release.at_us >= claim.received_us
    )
    return next(ends, math.inf)


@rule("committed offsets survive")
def committed_offsets_survive(history: History) -> Iterator[str]:
    """A read sees the last commit acknowledged before it was asked, or one that may have followed."""
    if has_lost_any(history, OFFSETS.topic):
        return
    commits = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.partition].append(commit)
    for read in history.committed_reads:
        relevant = commits[read.group, read.partition]
        acked = [one for one in relevant if one.acked_us is not None and one.acked_us < read.asked_us]
        if not acked or is_of_deposed_coordinator(history, read):
            continue
        last_asked_us = max(one.asked_us for one in acked)
        possible = {
            one.offset
            for one in relevant
            if one.asked_us <= read.received_us and (one.acked_us is None or one.acked_us >= last_asked_us)
        }
        if read.offset not in possible:
            yield (
                f"{read.partition}: {read.group} had committed {sorted(possible)}, but at {time_of(read.received_us)} "
                f"{read.offset} was read"
            )


@rule("an acknowledged commit is stored by min.insync.replicas")
def commits_are_stored(history: History) -> Iterator[str]:
    if has_lost_any(history, OFFSETS.topic):
        return
    for commit in history.commits:
        if commit.acked_us is not None and commit.stored_by is not None:
            lost = {loss.broker for loss in history.losses if commit.asked_us <= loss.at_us <= commit.acked_us}
            if commit.stored_by + len(lost) < history.min_isr:
                yield (
                    f"{commit.partition}: {commit.member} committed {commit.offset} at {time_of(commit.acked_us)} with "
                    f"{commit.stored_by} replicas"
                )


@rule("no commit of an earlier generation")
def no_commit_of_an_earlier_generation(history: History) -> Iterator[str]:
    """What a member commits in a generation is refused once another one has begun: a member was assigned partitions."""
    if has_lost_any(history, OFFSETS.topic):
        return
    for commit in history.commits:
        if commit.generation < 0 or commit.acked_us is None:
            continue
        for later in history.assignments:
            if later.group == commit.group and later.generation > commit.generation and later.at_us < commit.asked_us:
                yield (
                    f"{commit.partition}: {commit.member} committed {commit.offset} at {time_of(commit.asked_us)} in "
                    f"generation {commit.generation}, after generation {later.generation} had begun"
                )


@rule("a member that was fenced or moved on commits nothing")
def fenced_members_commit_nothing(history: History) -> Iterator[str]:
    """A commit is refused in an earlier epoch than the member knows of, and for a member that has lost its place.

    It has lost it once another member has got a partition which it did not give up.
    """
    if has_lost_any(history, OFFSETS.topic):
        return
    claims = [claim for claim in history.claims if not is_of_deposed_coordinator(history, claim)]
    for commit in history.commits:
        if commit.acked_us is None:
            continue
        what = f"{commit.partition}: {commit.member} committed {commit.offset} in epoch {commit.generation}"
        of_group = [it for it in claims if it.group == commit.group and it.received_us < commit.asked_us]
        own = [it for it in of_group if it.member_id == commit.member]
        if any(it.epoch > commit.generation for it in own):
            yield f"{what}, after it had moved to epoch {max(it.epoch for it in own)}"
        last = next((it for it in reversed(own) if commit.partition in it.partitions), None)
        if last is None or _release_of(history, last, commit.partition) < commit.asked_us:
            continue
        for other in of_group:
            if (
                other.member_id != commit.member
                and commit.partition in other.partitions
                and other.received_us > last.received_us
            ):
                yield f"{what}, after {other.member_id} had got the partition at {time_of(other.received_us)}"


@rule("committed offsets never go back")
def committed_offsets_never_go_back(history: History) -> Iterator[str]:
    """Members begin where the one before has committed, and only go forward."""
    lost = forgiven(history)
    if any(partition.topic == OFFSETS.topic for partition in lost):
        return
    of_members = {(commit.group, commit.partition) for commit in history.commits}
    latest: dict[tuple[str, Partition], CommittedRead] = {}
    for read in sorted(history.committed_reads, key=lambda it: it.received_us):
        place = read.group, read.partition
        if place not in of_members or read.partition in lost or is_of_deposed_coordinator(history, read):
            continue
        before = latest.get(place)
        if before is not None and before.received_us < read.asked_us and read.offset < before.offset:
            yield (
                f"{read.partition}: {read.group} had committed {before.offset} at {time_of(before.received_us)}, and "
                f"{read.offset} at {time_of(read.received_us)}"
            )
        if before is None or read.offset >= before.offset:
            latest[place] = read


# Share groups


Record = tuple[str, Partition, int]
"""A group, and the place of a record."""


def _deliveries(history: History) -> dict[Record, list[Delivery]]:
    """Return the deliveries of each record, in the order in which members heard of them.

    Without partitions that may have lost records; there are none if states of groups may be lost.
    """
    lost = forgiven(history)
    found: dict[Record, list[Delivery]] = defaultdict(list)
    if {OFFSETS.topic, SHARE_STATES.topic} & {partition.topic for partition in lost}:
        return found
    for delivery in sorted(history.deliveries, key=lambda it: it.received_us):
        if delivery.partition not in lost:
            found[delivery.session.group, delivery.partition, delivery.offset].append(delivery)
    return found


def _is_of_leader(history: History, delivery: Delivery) -> bool:
    """Return whether a broker led the partition when it was asked. One that was deposed may not know it yet."""
    return is_leader(history, delivery.session.broker, delivery.partition, delivery.asked_us)


def _elections(history: History, partition: Partition) -> Iterator[int]:
    """Yield when a partition got another leader epoch."""
    states = [state for state in history.leader_states if state.partition == partition]
    for before, after in pairwise(states):
        if after.leader_epoch != before.leader_epoch:
            yield after.at_us


def _may_be_forgotten(history: History, one: Delivery, other: Delivery) -> bool:
    """Return whether the leader may have forgotten the first of two deliveries before the second.

    What is acquired is in the memory of the leader only. A delivery counts once its end is stored: an acknowledgement,
    or that its lock has expired. So it is not counted if before that

    * the partition has got another leader, or a new leader epoch; or one of the two came from a leader that did not
      know yet that it was deposed;
    * its session has ended, which takes it back: no later response shows that the session was still open;
    * the leader could not store something, and has read the state again: an acknowledgement was refused.
    """
    begin_us, end_us = min(one.asked_us, other.asked_us), max(one.received_us, other.received_us)
    return (
        any(begin_us <= at_us <= end_us for at_us in _elections(history, one.partition))
        or not _is_of_leader(history, one)
        or not _is_of_leader(history, other)
        or one.session.confirmed_us <= end_us
        or any(
            it.partition == one.partition and it.refusal and it.said_us is not None and begin_us <= it.said_us <= end_us
            for it in history.deliveries
        )
    )


@rule("a record is delivered no more often than allowed")
def deliveries_are_counted(history: History) -> Iterator[str]:
    """The count rises with each delivery up to the limit, except after one that may be forgotten.

    One whose release was confirmed is never forgotten.
    """
    for (_, partition, offset), deliveries in _deliveries(history).items():
        for number, one in enumerate(deliveries):
            what = f"{partition}: record {offset} was delivered to {one.session.member_id} with count {one.count}"
            if not 1 <= one.count <= history.delivery_count_max:
                yield f"{what} of {history.delivery_count_max}"
            for other in deliveries[number + 1 :]:
                is_later = one.received_us < other.asked_us
                if is_later and one.confirmed_us is not None and one.confirmed_us < other.asked_us:
                    is_wrong = other.count <= one.count and _is_of_leader(history, other)
                else:
                    is_wrong = (
                        other.count <= one.count if is_later else other.count == one.count
                    ) and not _may_be_forgotten(history, one, other)
                if is_wrong:
                    yield (
                        f"{what} at {time_of(one.received_us)}, and at {time_of(other.received_us)} with count "
                        f"{other.count}"
                    )


@rule("a record that a share group is done with is not delivered again")
def done_records_stay_done(history: History) -> Iterator[str]:
    """Unless a leader delivers it that does not know yet that it was deposed: nothing fences a fetch."""
    for (_, partition, offset), deliveries in _deliveries(history).items():
        for one in deliveries:
            if one.said == RELEASE or one.confirmed_us is None:
                continue
            for other in deliveries:
                if other.asked_us > one.confirmed_us and _is_of_leader(history, other):
                    yield (
                        f"{partition}: record {offset} was acknowledged by {one.session.member_id} at "
                        f"{time_of(one.confirmed_us)}, and delivered at {time_of(other.received_us)}"
                    )


@rule("a record is locked for one member at a time")
def locks_are_exclusive(history: History) -> Iterator[str]:
    """A member has a record from the response until it says something of it, or its lock may have expired."""
    for (_, partition, offset), deliveries in _deliveries(history).items():
        for one in deliveries:
            end_us = one.asked_us + history.lock_us
            if one.said_us is not None:
                end_us = min(end_us, one.said_us)
            for other in deliveries:
                if (
                    other is not one
                    and one.received_us < other.asked_us
                    and other.received_us < end_us
                    and not _may_be_forgotten(history, one, other)
                ):
                    yield (
                        f"{partition}: record {offset} was locked for {one.session.member_id} until "
                        f"{time_of(end_us)}, and delivered at {time_of(other.received_us)}"
                    )


@rule("a share group is done with every record in the end")
def every_record_is_done(history: History) -> Iterator[str]:
    """A member has accepted or rejected it, or it was delivered as often as allowed.

    A fetch without a response may have acquired any record. At the end a member reads until nothing is left.
    """
    lost = forgiven(history)
    if {OFFSETS.topic, SHARE_STATES.topic} & {partition.topic for partition in lost}:
        return
    found = _deliveries(history)
    for group, partitions in history.share_groups.items():
        for partition in partitions:
            state = history.final_state(partition)
            logs = [log for log in history.logs_of(partition) if state is not None and log.broker == state.leader]
            unseen = sum(it.group == group and partition in it.partitions for it in history.lost_share_fetches)
            for log in logs if partition not in lost else ():
                for record in log.records:
                    deliveries = found[group, partition, record.offset]
                    count = max((it.count for it in deliveries), default=0)
                    is_ended = any(it.said in (ACCEPT, REJECT) and it.said_us is not None for it in deliveries)
                    if not record.is_control and not is_ended and count + unseen < history.delivery_count_max:
                        yield f"{partition}: {group} has left record {record.offset} after {count} deliveries"
