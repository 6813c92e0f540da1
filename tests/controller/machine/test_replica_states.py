"""Every state and every target: the table is Kafka's, and the context follows it."""

from itertools import product

import pytest

from controller.machine.context import ControllerContext
from controller.machine.model import PartitionReplica
from controller.machine.replica_states import VALID_PREVIOUS, ReplicaState

REPLICA = PartitionReplica(("t", 0), 1)

ALLOWED = {
    "NewReplica": {"NonExistentReplica"},
    "OnlineReplica": {"NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible"},
    "OfflineReplica": {"NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible"},
    "ReplicaDeletionStarted": {"OfflineReplica"},
    "ReplicaDeletionSuccessful": {"ReplicaDeletionStarted"},
    "ReplicaDeletionIneligible": {"OfflineReplica", "ReplicaDeletionStarted"},
    "NonExistentReplica": {"ReplicaDeletionSuccessful"},
}


@pytest.mark.parametrize(("before", "target"), list(product(ReplicaState, ReplicaState)))
def test_every_transition_is_accepted_or_rejected_as_in_the_table(before: ReplicaState, target: ReplicaState) -> None:
    context = ControllerContext(1)
    if before is not ReplicaState.NON_EXISTENT:
        context.replica_states[REPLICA] = before
    allowed = before.value in ALLOWED[target.value]
    assert (before in VALID_PREVIOUS[target]) is allowed
    assert context.can_move_replica(REPLICA, target) is allowed
    if allowed:
        context.move_replica(REPLICA, target)
        assert context.replica_state(REPLICA) is target
        assert (REPLICA in context.replica_states) is (target is not ReplicaState.NON_EXISTENT)
    else:
        with pytest.raises(AssertionError):
            context.move_replica(REPLICA, target)
        assert context.replica_state(REPLICA) is before
