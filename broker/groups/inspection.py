"""Groups as administrators and metrics see them.

Owns: which groups are listed. Changes nothing, and must not know what becomes of the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.group import Group
from broker.groups.machine.states import GroupState
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.machine.consumer.group import ConsumerGroup
    from broker.groups.machine.consumer.membership import ConsumerGroupState
    from broker.groups.machine.share.group import ShareGroup


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

    def count_by_state(self) -> dict[GroupState | ConsumerGroupState, int]:
        """Return the number of groups in each state: of the consumer protocol, only states in which groups are."""
        counts: dict[GroupState | ConsumerGroupState, int] = dict.fromkeys(GroupState, 0)
        for group in self._groups:
            state = group.machine.state
            counts[state] = counts.get(state, 0) + 1
        return counts

    def member_count(self) -> int:
        """Return the number of members of all groups."""
        return sum(len(group.machine.members) for group in self._groups)

    def offset_count(self) -> int:
        """Return the number of committed offsets in all groups."""
        return sum(len(group.offsets.committed) for group in self._groups)
