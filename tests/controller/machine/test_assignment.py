"""Placement: Kafka's known example, and what must hold for every size of cluster."""

from collections import Counter
from itertools import pairwise

import pytest

from controller.machine.assignment import assign_replicas, interleaved_by_rack


def test_ten_partitions_are_assigned_round_robin_to_five_brokers() -> None:
    """The example that Kafka's documentation of the placement gives, with start and shift 0."""
    assert assign_replicas(dict.fromkeys(range(5)), 10, 3, start=0, shift=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_partitions_are_assigned_to_six_brokers_in_three_racks() -> None:
    """The example that Kafka's documentation of the placement gives, with start and shift 0."""
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert assign_replicas(racks, 7, 3, start=0, shift=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


@pytest.mark.parametrize(
    ("replication_factor", "expected"),
    [
        (4, {6: (0, 4, 2, 3), 7: (3, 2, 0, 1), 8: (1, 0, 3, 5)}),
        (5, {6: (0, 4, 2, 3, 1), 7: (3, 2, 0, 1, 5), 8: (1, 0, 3, 5, 4)}),
    ],
)
def test_followers_beyond_the_racks_continue_the_round(
    replication_factor: int, expected: dict[int, tuple[int, ...]]
) -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert assign_replicas(racks, 9, replication_factor, start=0, shift=0).items() >= expected.items()


def test_racks_are_interleaved() -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert interleaved_by_rack(racks) == [0, 3, 1, 5, 4, 2]
    assert interleaved_by_rack({0: "a", 1: "a", 2: "a", 3: "b"}) == [0, 3, 1, 2]
    assert interleaved_by_rack({}) == []


def test_later_partitions_continue_the_round() -> None:
    racks: dict[int, str | None] = dict.fromkeys((1, 2, 3))
    whole = assign_replicas(racks, 9, 2, start=1, shift=1)
    assert assign_replicas(racks, 4, 2, start=1, shift=2, first_partition=5) == {it: whole[it] for it in range(5, 9)}


@pytest.mark.parametrize("broker_count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("rack_count", [0, 1, 2, 3])
def test_assignment_invariants_hold_for_any_input(broker_count: int, rack_count: int) -> None:
    racks = {broker: f"r{broker % rack_count}" if rack_count else None for broker in range(broker_count)}
    for replication_factor in range(1, broker_count + 1):
        for start in range(broker_count):
            for shift in range(broker_count):
                assigned = assign_replicas(racks, 3 * broker_count, replication_factor, start=start, shift=shift)
                assert list(assigned) == list(range(3 * broker_count))
                for replicas in assigned.values():
                    assert len(replicas) == len(set(replicas)) == replication_factor
                    assert set(replicas) <= set(racks)
                    distinct = {racks[it] for it in replicas}
                    assert len(distinct) == min(replication_factor, len(set(racks.values())))
                leaders = Counter(replicas[0] for replicas in assigned.values())
                assert set(leaders.values()) == {3}


def test_followers_are_spread() -> None:
    """The brokers that share partitions with one broker are all others, not its neighbours alone."""
    assigned = assign_replicas(dict.fromkeys(range(6)), 60, 2, start=0, shift=0)
    followers = Counter(replicas[1] for replicas in assigned.values() if replicas[0] == 0)
    assert set(followers) == {1, 2, 3, 4, 5}


def test_leaders_of_neighbouring_partitions_are_in_different_racks() -> None:
    racks = {broker: f"r{broker // 2}" for broker in range(6)}
    assigned = assign_replicas(racks, 6, 2, start=0, shift=0)
    for before, after in pairwise(assigned.values()):
        assert racks[before[0]] != racks[after[0]]
