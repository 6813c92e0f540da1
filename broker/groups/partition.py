"""What the coordinator keeps of one partition of `__consumer_offsets`, and of each group in it.

Owns: the order of appends to the partition, and which groups have offsets in which open transaction. Must not know:
how the partition is loaded or when a group changes (`broker.groups.hosted_groups` and `broker.groups.runner`).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.coordination.led_partitions import LedPartition, PartitionState
from broker.groups.machine.events import Respond
from broker.groups.machine.group import Group
from broker.groups.machine.member import NEVER
from broker.groups.machine.offsets import GroupOffsets
from broker.loop.timer import TimerHandle

if TYPE_CHECKING:
    from broker.groups.machine.consumer.group import ConsumerGroup
    from broker.groups.machine.share.group import ShareGroup


@dataclass(slots=True, eq=False)
class OffsetsPartition(LedPartition):
    """One led partition and the groups that hash to it."""

    groups: dict[str, CoordinatedGroup] = field(default_factory=dict)
    next_order: int = 0
    """Rises with every append; starts above all offsets that were loaded."""
    groups_by_producer: dict[int, set[str]] = field(default_factory=dict)
    """Ids of the groups with offsets in a producer's open transaction."""
    early_markers: list[tuple[int, bool]] = field(default_factory=list)
    """(producer id, is committed) of transactions that ended while the partition was being loaded."""

    def take_order(self) -> int:
        """Return the order of the next append, which is higher than every one before."""
        self.next_order += 1
        return self.next_order - 1

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Commit or drop a producer's pending offsets: its marker is in the log.

        During loading the marker is kept and applied by `apply_early_markers`, as the replay may have passed its place.
        """
        if self.state is PartitionState.LOADING:
            self.early_markers.append((producer_id, is_committed))
            return
        for group_id in self.groups_by_producer.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, is_committed=is_committed)

    def apply_early_markers(self) -> None:
        """Apply the markers that were written while the partition was being loaded."""
        markers, self.early_markers = self.early_markers, []
        for producer_id, is_committed in markers:
            self.end_transaction(producer_id, is_committed=is_committed)


@dataclass(slots=True, eq=False)
class CoordinatedGroup:
    """A group, its offsets, and the one timer that wakes it."""

    machine: Group | ConsumerGroup | ShareGroup
    offsets: GroupOffsets
    partition: OffsetsPartition
    last_logged: object = None
    """The state, or the epoch, in the latest log message."""
    unstored: list[list[Respond]] = field(default_factory=list)
    """The responses that wait for each append of changes that not all in-sync replicas have yet, in order."""
    timer: TimerHandle | None = None
    armed_ms: int = NEVER

    def replace(self, machine: Group | ConsumerGroup | ShareGroup) -> None:
        """Continue as a group of another protocol."""
        self.disarm()
        self.machine, self.timer, self.armed_ms, self.last_logged = machine, None, NEVER, None

    def disarm(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
