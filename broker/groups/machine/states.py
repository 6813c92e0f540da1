"""The states of a group and the transitions between them.

The text of each state is its specification: its meaning, and every transition from it. What each request gets in each
state is in the tables of `broker.groups.machine.rebalance`, `joins` and `group`.

Owns: the table of transitions. Must not know: what causes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class GroupState(Enum):
    """A group's state; the value is the name that clients see."""

    EMPTY = "Empty"
    """No members, perhaps committed offsets. A join begins the join phase; without offsets the group is removed."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: joins are parked until all members have rejoined or the time is up. Then the next generation
    begins; without members the group becomes Empty."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: syncs are parked until the leader's assignment is in the log, which makes the group Stable. A
    member that joins, leaves, expires or does not sync in time starts another join phase."""
    STABLE = "Stable"
    """Every member can fetch its assignment. A member that joins, leaves, expires or changes its metadata starts a join
    phase."""
    DEAD = "Dead"
    """Removed: deleted, expired, or coordinated by another broker now. No transition leads out of it."""


VALID_PREVIOUS: Mapping[GroupState, frozenset[GroupState]] = MappingProxyType(
    {
        GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
        GroupState.PREPARING_REBALANCE: frozenset(
            {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        ),
        GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
        GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
        GroupState.DEAD: frozenset(GroupState),
    }
)
