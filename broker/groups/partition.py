"""What the coordinator keeps of one partition of `__consumer_offsets` and of each group in it.

Plain holders: `broker.groups.coordinator` alone changes them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from broker.coordination.coordinator_log import PartitionState
from broker.groups.group import Group
from broker.groups.member import NEVER
from broker.groups.offsets import GroupOffsets
from broker.groups.states import GroupState
from broker.loop.timer import TimerHandle


@dataclass(slots=True, eq=False)
class OffsetsPartition:
    """One led partition and the groups that hash to it."""

    number: int
    leader_epoch: int
    state: PartitionState = PartitionState.LOADING
    groups: dict[str, CoordinatedGroup] = field(default_factory=dict)
    next_order: int = 0
    """Goes up with every append; starts above all offsets that were loaded."""
    groups_by_producer: dict[int, set[str]] = field(default_factory=dict)
    """Ids of groups with offsets in a producer's open transaction."""
    early_markers: list[tuple[int, bool]] = field(default_factory=list)
    """(producer id, is committed) of transactions that ended while the partition was being loaded."""
    loading: asyncio.Task[None] | None = None

    def take_order(self) -> int:
        self.next_order += 1
        return self.next_order - 1


@dataclass(slots=True, eq=False)
class CoordinatedGroup:
    """A group, its offsets, and the one timer that wakes it."""

    machine: Group
    offsets: GroupOffsets
    partition: OffsetsPartition
    last_state: GroupState
    """As last logged."""
    timer: TimerHandle | None = None
    armed_ms: int = NEVER
