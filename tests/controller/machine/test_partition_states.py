"""Every state and every target: the table is Kafka's, and the context follows it."""

from itertools import product

import pytest

from controller.machine.context import ControllerContext
from controller.machine.partition_states import VALID_PREVIOUS, PartitionState

PARTITION = ("t", 0)

ALLOWED = {
    ("NonExistentPartition", "NewPartition"),
    ("NewPartition", "OnlinePartition"),
    ("OnlinePartition", "OnlinePartition"),
    ("OfflinePartition", "OnlinePartition"),
    ("NewPartition", "OfflinePartition"),
    ("OnlinePartition", "OfflinePartition"),
    ("OfflinePartition", "OfflinePartition"),
    ("OfflinePartition", "NonExistentPartition"),
}


@pytest.mark.parametrize(("before", "target"), list(product(PartitionState, PartitionState)))
def test_every_transition_is_accepted_or_rejected_as_in_the_table(
    before: PartitionState, target: PartitionState
) -> None:
    context = ControllerContext(1)
    if before is not PartitionState.NON_EXISTENT:
        context.partition_states[PARTITION] = before
    allowed = (before.value, target.value) in ALLOWED
    assert (before in VALID_PREVIOUS[target]) is allowed
    assert context.can_move_partition(PARTITION, target) is allowed
    if allowed:
        context.move_partition(PARTITION, target)
        assert context.partition_state(PARTITION) is target
        assert (PARTITION in context.partition_states) is (target is not PartitionState.NON_EXISTENT)
    else:
        with pytest.raises(AssertionError):
            context.move_partition(PARTITION, target)
        assert context.partition_state(PARTITION) is before
