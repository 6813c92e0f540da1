"""What the checkers of a history share: the table of rules, and what is forgiven.

Owns: which rule is judged by which function, and when records may be lost by the rules. Must not know a rule, or
brokers.

Where a rule speaks of clean elections it does not judge partitions of which an unclean election, or the loss of
unsynced data on all in-sync replicas, may have taken records (`forgiven`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from protocol.java_hash import absolute, string_hash
from tests.sim.history import Claim, CommittedRead, DataLoss, Departure, History, LeaderState, Partition

OFFSETS = Partition("__consumer_offsets", 0)
"""The first partition of groups."""
TRANSACTIONS = Partition("__transaction_state", 0)
"""The first partition of transactions."""
SHARE_STATES = Partition("__share_group_state", 0)
"""The first partition of the states of share groups."""


class Violation(NamedTuple):
    """A broken rule, with what shows it."""

    rule: str
    text: str


Checker = Callable[[History], Iterator[str]]
CHECKERS: dict[str, Checker] = {}


def rule(name: str) -> Callable[[Checker], Checker]:
    def register(checker: Checker) -> Checker:
        CHECKERS[name] = checker
        return checker

    return register


def forgiven(history: History) -> set[Partition]:
    """Return the partitions that may have lost acknowledged records by the rules; see `forgiven_since`."""
    return set(forgiven_since(history))


def forgiven_since(history: History) -> dict[Partition, int]:
    """Return when each partition that may have lost acknowledged records by the rules may have lost the first.

    That is so after an unclean election, and if every in-sync replica has lost what its disk had not synced: a broker
    counts as such from its loss until it leaves the ISR, or, if the ISR has no other member, for ever. And it is so if
    one in-sync replica has lost data and all of them have been gone since the state was written, because no controller
    ran: then no record shows which of them had lost its data, and any of them may lead.
    """
    lossy: dict[Partition, set[int]] = defaultdict(set)
    gone: dict[Partition, set[int]] = defaultdict(set)
    latest: dict[Partition, LeaderState] = {}
    lost: dict[Partition, int] = {}
    events: list[tuple[int, LeaderState | DataLoss | Departure]] = []
    events += [(event.at_us, event) for event in (*history.leader_states, *history.losses, *history.departures)]
    for at_us, event in sorted(events, key=lambda pair: pair[0]):
        if isinstance(event, DataLoss):
            for partition, state in latest.items():
                if event.broker in state.isr:
                    lossy[partition].add(event.broker)
                    if lossy[partition] >= set(state.isr) or gone[partition] >= set(state.isr):
                        lost.setdefault(partition, at_us)
            continue
        if isinstance(event, Departure):
            for partition, state in latest.items():
                gone[partition].add(event.broker)
                if lossy[partition] and gone[partition] >= set(state.isr):
                    lost.setdefault(partition, at_us)
            continue
        gone[event.partition].clear()
        before = latest.get(event.partition)
        if before is not None and is_unclean(before, event):
            lost.setdefault(event.partition, at_us)
        latest[event.partition] = event
        lossy[event.partition] &= set(event.isr)
        if lossy[event.partition] and lossy[event.partition] >= set(event.isr):
            lost.setdefault(event.partition, at_us)
    return lost


def partition_of(history: History, topic: str, key: str) -> Partition:
    """Return the partition of an internal topic that stores a group or a transactional id."""
    count = max(history.partition_counts.get(topic, {1}))
    return Partition(topic, absolute(string_hash(key)) % count)


def is_unclean(before: LeaderState, after: LeaderState) -> bool:
    return after.leader >= 0 and after.leader_epoch > before.leader_epoch and after.leader not in before.isr


def has_lost_any(history: History, topic: str) -> bool:
    """Return whether any partition of an internal topic may have lost records by the rules."""
    return any(partition.topic == topic for partition in forgiven(history))


def is_of_deposed_coordinator(history: History, read: CommittedRead | Claim) -> bool:
    """Return whether a broker responded that no longer led the partition of the group's offsets when it was asked.

    That happens while LeaderAndIsr is on its way to a broker whose session has ended. Nothing fences OffsetFetch.
    """
    partition = partition_of(history, OFFSETS.topic, read.group)
    return not is_leader(history, read.broker, partition, read.asked_us)


def is_leader(history: History, broker: int, partition: Partition, at_us: int) -> bool:
    """Return whether a broker led a partition at a time; before its first state, any is taken for it."""
    leader = broker
    for state in history.leader_states:
        if state.partition == partition and state.at_us <= at_us:
            leader = state.leader
    return leader == broker


def time_of(at_us: int | None) -> str:
    return "never" if at_us is None else f"{at_us / 1_000_000:.6f} s"
