"""Which commit wins, what a transaction changes, and what expires."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from base.topic_partition import TopicPartition
from broker.groups.machine.offsets import GroupOffsets, Offsets, expiry_rule
from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.machine.states import GroupState

T0 = ("t", 0)
T1 = ("t", 1)
U0 = ("u", 0)


def at(offset: int, *, committed_ms: int = 0, expires_ms: int = -1) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        offset=offset, metadata="", commit_timestamp_ms=committed_ms, expire_timestamp_ms=expires_ms
    )


def shown(offsets: GroupOffsets) -> dict[TopicPartition, int]:
    return {partition: committed.value.offset for partition, committed in offsets.committed.items()}


def test_commit_is_readable_once_it_is_in_the_log() -> None:
    offsets = GroupOffsets()
    offsets.begin(1, {T0: at(5)})
    assert offsets.get(T0) is None
    assert not offsets.is_empty
    offsets.succeed(1)
    assert offsets.get(T0) == at(5)


def test_a_failed_commit_keeps_the_previous_offset() -> None:
    offsets = GroupOffsets()
    offsets.begin(1, {T0: at(5)})
    offsets.succeed(1)
    offsets.begin(2, {T0: at(6), T1: at(1)})
    offsets.fail(2)
    assert shown(offsets) == {T0: 5}


def test_last_commit_in_the_log_applies_in_any_order_of_results() -> None:
    offsets = GroupOffsets()
    offsets.begin(1, {T0: at(5), T1: at(50)})
    offsets.begin(2, {T0: at(6)})
    offsets.succeed(2)
    offsets.succeed(1)
    assert shown(offsets) == {T0: 6, T1: 50}


def test_offsets_of_a_transaction_wait_for_its_end() -> None:
    offsets = GroupOffsets()
    offsets.load(0, T0, at(1))
    offsets.begin_in_transaction(7, 1, {T0: at(5)})
    offsets.begin_in_transaction(7, 2, {T0: at(6), T1: at(9)})
    offsets.begin_in_transaction(8, 3, {U0: at(3)})
    assert shown(offsets) == {T0: 1}
    assert [offsets.is_unstable(each) for each in (T0, T1, U0, ("u", 1))] == [True, True, True, False]
    offsets.end_transaction(7, is_committed=True)
    offsets.end_transaction(8, is_committed=False)
    assert shown(offsets) == {T0: 6, T1: 9}
    assert not offsets.is_unstable(T0)
    assert list(offsets.open_transactions()) == []


def test_later_plain_commit_overrides_that_of_a_transaction() -> None:
    offsets = GroupOffsets()
    offsets.begin_in_transaction(7, 1, {T0: at(5)})
    offsets.begin(2, {T0: at(100)})
    offsets.succeed(2)
    offsets.end_transaction(7, is_committed=True)
    assert shown(offsets) == {T0: 100}


def test_a_failed_append_is_not_in_its_transaction() -> None:
    offsets = GroupOffsets()
    offsets.begin_in_transaction(7, 1, {T0: at(5)})
    offsets.begin_in_transaction(7, 2, {T0: at(6)})
    offsets.fail_in_transaction(7, 2)
    assert offsets.is_unstable(T0)
    offsets.fail_in_transaction(9, 9)
    offsets.end_transaction(7, is_committed=True)
    assert shown(offsets) == {T0: 5}
    offsets.begin_in_transaction(7, 3, {T1: at(5)})
    offsets.fail_in_transaction(7, 3)
    assert list(offsets.open_transactions()) == []


@pytest.mark.parametrize("decided_first", [1, 2])
def test_the_last_commit_of_a_transaction_in_the_log_applies(decided_first: int) -> None:
    offsets = GroupOffsets()
    offsets.begin_in_transaction(7, 1, {T0: at(5), T1: at(1)})
    offsets.begin_in_transaction(7, 2, {T0: at(6)})
    offsets.succeed_in_transaction(7, decided_first)
    offsets.succeed_in_transaction(7, 3 - decided_first)
    offsets.succeed_in_transaction(9, 9)
    assert offsets.untouched_since(2, [T0, T1]) == [T1]
    offsets.put_in_transaction(7, 3, {U0: at(4)})
    assert offsets.remove([U0]) == [U0]
    offsets.end_transaction(7, is_committed=True)
    offsets.succeed_in_transaction(7, 1)
    assert shown(offsets) == {T0: 6, T1: 1}


def test_a_removed_offset_does_not_return() -> None:
    offsets = GroupOffsets()
    offsets.load(0, T0, at(1))
    offsets.begin(1, {T0: at(2), T1: at(3)})
    offsets.begin_in_transaction(7, 2, {T0: at(4)})
    offsets.begin_in_transaction(8, 3, {U0: at(4)})
    assert offsets.remove([T0, U0, ("never", 0)]) == [T0, U0]
    offsets.succeed(1)
    offsets.end_transaction(7, is_committed=True)
    assert shown(offsets) == {T1: 3}
    assert list(offsets.open_transactions()) == []


def test_partitions_include_committed_and_pending_offsets() -> None:
    offsets = GroupOffsets()
    assert offsets.is_empty
    offsets.load(0, T0, at(1))
    offsets.begin(1, {T1: at(2)})
    offsets.begin_in_transaction(7, 2, {U0: at(3)})
    assert offsets.partitions() == [T0, T1, U0]
    assert offsets.remove(offsets.partitions()) == [T0, T1, U0]


RETENTION = 1000
NOW = 100_000


@pytest.mark.parametrize(
    ("state", "protocol_type", "subscribed", "state_since", "expired"),
    [
        # Stored offsets, with the age of the commit: t-0 is old, t-1 is young, u-0 is old,
        # and of those that say when they expire, x-0 is due and x-1 is not.
        (GroupState.EMPTY, None, None, NOW, {"t0", "u0", "x0"}),
        (GroupState.EMPTY, "consumer", frozenset(), NOW - RETENTION, {"t0", "t1", "u0", "x0"}),
        (GroupState.EMPTY, "consumer", frozenset(), NOW - RETENTION + 1, {"x0"}),
        (GroupState.EMPTY, "consumer", frozenset(), -1, {"t0", "u0", "x0"}),
        (GroupState.EMPTY, "connect", None, NOW - RETENTION, {"t0", "t1", "u0", "x0"}),
        (GroupState.STABLE, "consumer", frozenset({"t"}), 0, {"u0", "x0"}),
        (GroupState.STABLE, "consumer", frozenset({"t", "u", "x"}), 0, set()),
        (GroupState.STABLE, "consumer", None, 0, None),
        (GroupState.STABLE, "connect", None, 0, None),
        (GroupState.PREPARING_REBALANCE, "consumer", frozenset({"t"}), 0, None),
        (GroupState.COMPLETING_REBALANCE, "consumer", frozenset({"t"}), 0, None),
    ],
)
def test_offsets_expire_by_the_state_and_subscription_of_their_group(
    state: GroupState,
    protocol_type: str | None,
    subscribed: frozenset[str] | None,
    state_since: int,
    expired: set[str] | None,
) -> None:
    offsets = GroupOffsets()
    offsets.load(0, T0, at(1, committed_ms=NOW - RETENTION))
    offsets.load(0, T1, at(1, committed_ms=NOW - RETENTION + 1))
    offsets.load(0, U0, at(1, committed_ms=0))
    offsets.load(0, ("x", 0), at(1, expires_ms=NOW))
    offsets.load(0, ("x", 1), at(1, expires_ms=NOW + 1))
    rule = expiry_rule(state, protocol_type, subscribed, state_since, NOW, RETENTION)
    if rule is None:
        assert expired is None
    else:
        assert {f"{topic}{index}" for topic, index in offsets.expired(rule, offsets.partitions())} == expired


def test_offset_with_a_pending_commit_does_not_expire() -> None:
    offsets = GroupOffsets()
    for partition in (T0, T1, U0):
        offsets.load(0, partition, at(1))
    offsets.begin(1, {T0: at(2)})
    offsets.begin_in_transaction(7, 2, {T1: at(2)})
    rule = expiry_rule(GroupState.EMPTY, None, None, 0, NOW, RETENTION)
    assert rule is not None
    assert offsets.expired(rule, [T0, T1, U0, ("unknown", 0)]) == [U0]
    assert offsets.expired(rule, []) == []


def test_untouched_since_returns_partitions_without_later_commits() -> None:
    offsets = GroupOffsets()
    for order, partition in enumerate((T0, T1, U0)):
        offsets.load(order, partition, at(1))
    everything = [T0, T1, U0, ("unknown", 0)]
    assert offsets.untouched_since(3, everything) == everything
    assert offsets.untouched_since(2, everything) == [T0, T1, ("unknown", 0)]
    offsets.begin(3, {T0: at(2)})
    offsets.begin_in_transaction(7, 4, {T1: at(2)})
    assert offsets.untouched_since(5, everything) == everything
    assert offsets.untouched_since(4, everything) == [T0, U0, ("unknown", 0)]
    assert offsets.untouched_since(3, everything) == [U0, ("unknown", 0)]


def test_a_partition_is_unstable_until_no_open_transaction_has_a_commit_of_it() -> None:
    offsets = GroupOffsets()
    steps: list[tuple[Callable[[], object], list[TopicPartition]]] = [
        (lambda: offsets.begin_in_transaction(7, 0, {T0: at(1), T1: at(1)}), [T0, T1]),
        (lambda: offsets.put_in_transaction(7, 1, {T1: at(2)}), [T0, T1]),
        (lambda: offsets.begin_in_transaction(8, 2, {T0: at(3), U0: at(3)}), [T0, T1, U0]),
        (lambda: offsets.fail_in_transaction(7, 0), [T0, T1, U0]),
        (lambda: offsets.succeed_in_transaction(8, 2), [T0, T1, U0]),
        (lambda: offsets.remove([U0]), [T0, T1]),
        (lambda: offsets.end_transaction(8, is_committed=False), [T1]),
        (lambda: offsets.remove([T1]), []),
    ]
    for step, unstable in steps:
        step()
        offsets.check()
        for shown_by in (offsets, offsets.snapshot()):
            assert [partition for partition in (T0, T1, U0) if shown_by.is_unstable(partition)] == unstable
    assert offsets.is_empty


@pytest.mark.parametrize("seed", range(50))
def test_cached_offsets_equal_those_of_a_replay(seed: int) -> None:
    """A dumb twin: the list of all appends that succeeded, replayed from the start."""
    chance = random.Random(seed)
    offsets = GroupOffsets()
    log: list[tuple[int, str, int, Offsets]] = []
    in_flight: list[tuple[int, int, Offsets]] = []
    ended: dict[int, list[tuple[int, bool]]] = {}
    for order in range(200):
        action = chance.random()
        if action < 0.5:
            producer_id = chance.choice((-1, -1, 7, 8))
            batch = {
                (topic, index): at(chance.randrange(1000))
                for topic in "tu"
                for index in range(2)
                if chance.random() < 0.5
            }
            in_flight.append((order, producer_id, batch))
            if producer_id < 0:
                offsets.begin(order, dict(batch))
            else:
                offsets.begin_in_transaction(producer_id, order, dict(batch))
        elif action < 0.85 and in_flight:
            begun, producer_id, batch = in_flight.pop(chance.randrange(len(in_flight)))
            succeeds = chance.random() < 0.8
            if succeeds:
                log.append((begun, "commit", producer_id, batch))
            if producer_id < 0:
                (offsets.succeed if succeeds else offsets.fail)(begun)
            else:
                (offsets.succeed_in_transaction if succeeds else offsets.fail_in_transaction)(producer_id, begun)
        elif not any(producer_id == 7 for _, producer_id, _ in in_flight):
            committed = chance.random() < 0.7
            ended.setdefault(7, []).append((order, committed))
            offsets.end_transaction(7, is_committed=committed)
        offsets.check()
    assert shown(offsets) == replay(log, ended)


def replay(
    log: list[tuple[int, str, int, Offsets]], ended: dict[int, list[tuple[int, bool]]]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for begun, _, producer_id, batch in sorted(log, key=lambda entry: entry[0]):
        markers = [committed for order, committed in ended.get(producer_id, []) if order > begun]
        if producer_id < 0 or (markers and markers[0]):
            found.update({partition: value.offset for partition, value in batch.items()})
    return found
