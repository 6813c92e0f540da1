"""The states of a partition and the allowed transitions.

Invariant: a transition that is not in `VALID_PREVIOUS` does not happen; it is logged and the state stays. The diagram
in docs/controller.md is generated from this table. Must not know what a transition does: `leadership` plans it.
"""

from collections.abc import Mapping
from enum import Enum


class PartitionState(Enum):
    """The controller's state of a partition."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted: it has no state node."""

    NEW = "NewPartition"
    """Assigned, but it never had a leader and has no state node. It waits until an assigned broker is alive."""

    ONLINE = "OnlinePartition"
    """Has a live leader. The election of another leader does not change the state."""

    OFFLINE = "OfflinePartition"
    """Its leader is gone and no replica qualified to replace it, or its topic is being deleted."""


VALID_PREVIOUS: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
}
