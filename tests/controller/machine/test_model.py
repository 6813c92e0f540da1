"""What an assignment derives about a reassignment, for every small case."""

from itertools import permutations

import pytest

from controller.machine.model import LeaderAndIsr, Leadership, ReplicaAssignment


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        (ReplicaAssignment((1, 2)), (2, 3), ReplicaAssignment((2, 3, 1), (3,), (1,))),
        (ReplicaAssignment((1, 2)), (2, 1), ReplicaAssignment((2, 1))),
        (ReplicaAssignment((1, 2)), (1,), ReplicaAssignment((1, 2), (), (2,))),
        (ReplicaAssignment((1,)), (1, 2, 3), ReplicaAssignment((1, 2, 3), (2, 3), ())),
        # A newer move replaces a running one: what only that one wanted is not even listed.
        (ReplicaAssignment((2, 3, 1), (3,), (1,)), (2, 4), ReplicaAssignment((2, 4, 1), (4,), (1,))),
    ],
)
def test_reassignment_adds_targets_and_removes_the_others(
    current: ReplicaAssignment, target: tuple[int, ...], expected: ReplicaAssignment
) -> None:
    assert current.reassigned_to(target) == expected


def test_reassignment_ends_with_the_target_replicas() -> None:
    lists = [it for size in (1, 2, 3) for it in permutations((1, 2, 3), size)]
    for original in lists:
        for target in lists:
            moving = ReplicaAssignment(original).reassigned_to(target)
            assert moving.target == target
            assert set(moving.original) == set(original)
            assert moving.is_being_reassigned is (set(original) != set(target))
            assert len(set(moving.replicas)) == len(moving.replicas)


def test_election_raises_the_leader_epoch_by_one() -> None:
    state = LeaderAndIsr(1, 4, (1, 2))
    assert state.with_leader(2) == LeaderAndIsr(2, 5, (1, 2))
    assert state.with_leader(-1, (2,)) == LeaderAndIsr(-1, 5, (2,))


def test_state_is_printed_as_in_kafkas_state_change_log() -> None:
    assert str(Leadership(LeaderAndIsr(1, 4, (1, 2)), controller_epoch=3, partition_epoch=7)) == (
        "LeaderAndIsr(leader=1, leaderEpoch=4, isr=List(1, 2), leaderRecoveryState=RECOVERED, partitionEpoch=7)"
    )
