"""The states of a replica and the allowed transitions.

Invariant: a transition that is not in `VALID_PREVIOUS` does not happen; it is logged and the state stays. The diagram
in docs/controller.md is generated from this table. Must not know what a transition does: see
`controller.active.transitions`.
"""

from collections.abc import Mapping
from enum import Enum


class ReplicaState(Enum):
    """The controller's state of one replica."""

    NON_EXISTENT = "NonExistentReplica"
    """Not in the assignment, or removed from it."""

    NEW = "NewReplica"
    """In the assignment; if the partition has a leader, the replica's broker gets a LeaderAndIsr."""

    ONLINE = "OnlineReplica"
    """Its broker is alive, and leads or follows."""

    OFFLINE = "OfflineReplica"
    """Its broker or log directory is offline, or it was stopped: not in the ISR, unless it is the last member."""

    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker got a StopReplica with delete and has not responded."""

    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted the files."""

    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """The files could not be deleted because the broker is down or failed; the deletion is retried later."""


VALID_PREVIOUS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
}
