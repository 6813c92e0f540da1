"""The states of a replica and the only ways between them.

Rule: a transition that is not in `VALID_PREVIOUS` does not happen; it is reported and the state stays. The picture in
docs/controller.md is drawn from this table. Must not know what a transition entails: `controller.transitions` does it.
"""

from collections.abc import Mapping
from enum import Enum


class ReplicaState(Enum):
    """What the controller has made of one broker's copy of a partition."""

    NON_EXISTENT = "NonExistentReplica"
    """Not in the assignment: not yet, or not any more."""

    NEW = "NewReplica"
    """In the assignment; its broker is told to follow if the partition has a leader already."""

    ONLINE = "OnlineReplica"
    """Its broker lives and leads or follows."""

    OFFLINE = "OfflineReplica"
    """Its broker or log directory is gone, or it was told to stop: out of the in-sync replicas unless the last."""

    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was told to delete the files and has not answered."""

    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """The files are gone."""

    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """The files could not be deleted, because the broker is down or failed; tried again later."""


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
