"""Groups as administrators and metrics see them.

Owns: which groups are listed. Changes nothing, and must not know what becomes of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.group import Group
from broker.groups.machine.states import GroupState
from broker.groups.partition import CoordinatedGroup
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.machine.consumer.group import ConsumerGroup
    from broker.groups.machine.share.group import ShareGroup

SLICE_SIZE = 5_000
"""Groups and members that are counted before other requests get their turn: about a millisecond."""


class GroupInspection:
    """Lists and counts the groups of one broker."""

    def __init__(self, groups: HostedGroups) -> None:
        self._groups = groups

    def groups(self) -> tuple[ErrorCode, list[Group | ConsumerGroup | ShareGroup]]:
        """Return all groups, to be read only, and COORDINATOR_LOAD_IN_PROGRESS if partitions are still being loaded.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) when the broker stops.
        """
        is_loading = self._groups.partitions.are_loading()
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        machines = (group.machine for group in self._groups)
        return code, [machine for machine in machines if not machine.is_dead]

    def group(self, group_id: str) -> Group | ConsumerGroup | ShareGroup | None:
        """Return a group, to be read only; None if it does not exist.

        Raises KafkaError if the group cannot be served here now (see `LedPartitions.require`).
        """
        group = self._groups.find(group_id)
        return None if group is None else group.machine

    def group_count(self) -> int:
        """Return the number of groups."""
        return len(self._groups)

    def count_in_state(self, state: GroupState) -> Iterator[int | None]:
        """Count the groups in a state in slices: yield None after each, and at last the number."""
        return self._count(lambda group: group.machine.state is state)

    def count_members(self) -> Iterator[int | None]:
        """Count the members of all groups in slices, as `count_in_state` does."""
        return self._count(lambda group: len(group.machine.members))

    def count_offsets(self) -> Iterator[int | None]:
        """Count the committed offsets of all groups in slices, as `count_in_state` does."""
        return self._count(lambda group: len(group.offsets.committed))

    def _count(self, amount: Callable[[CoordinatedGroup], int]) -> Iterator[int | None]:
        total = inspected = 0
        for group in self._groups:
            total += amount(group)
            inspected += 1 + len(group.machine.members)
            if inspected >= SLICE_SIZE:
                inspected = 0
                yield None
        yield total
