"""The states of a partition and the only ways between them.

Rule: a transition that is not in `VALID_PREVIOUS` does not happen; it is reported and the state stays. The picture in
docs/controller.md is drawn from this table. Must not know what a transition entails: `leadership` plans it.
"""

from collections.abc import Mapping
from enum import Enum


class PartitionState(Enum):
    """What the controller has made of a partition."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted: there is no state node."""

    NEW = "NewPartition"
    """Assigned to brokers, but nobody has led it: there is no state node yet. Leaves when an assigned broker lives."""

    ONLINE = "OnlinePartition"
    """Has a leader that lives. Elections of another leader stay in this state."""

    OFFLINE = "OfflinePartition"
    """Has had a leader, which is gone, and no replica qualified to follow it; or its topic is being deleted."""


VALID_PREVIOUS: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
}
