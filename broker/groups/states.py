"""The states of a group and the ways between them.

Each member's text is its specification: what it means, and every way out. What each request gets in each state is the
table in `broker.groups.group`.

Owns the table of transitions. Must not know what causes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class GroupState(Enum):
    """A group's state; the value is the name that clients see."""

    EMPTY = "Empty"
    """No members; perhaps committed offsets. A join opens the join phase; without offsets the group is removed."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: joins are parked until all members are back or time is up, which ends in the next generation.
    That is Empty when nobody is left."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: syncs are parked until the leader's assignment is in the log, which makes the group Stable.
    Whoever joins, leaves, expires or fails to sync in time starts another join phase."""
    STABLE = "Stable"
    """Every member can have its assignment. Whoever joins, leaves, expires or wants something else starts a join
    phase."""
    DEAD = "Dead"
    """Removed: deleted, expired, or coordinated by another broker now. There is no way back."""


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
