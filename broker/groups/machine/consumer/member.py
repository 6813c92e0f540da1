"""One member of a group of the consumer protocol.

Owns: what the member has asked for, what it is to have and what it has, and its deadlines. Must not know: the group's
epochs or other members; `broker.groups.machine.consumer.group` changes it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from broker.groups.machine.consumer.partitions import NOTHING, Partitions, from_stored, joined, to_stored
from broker.groups.machine.consumer.records import ClassicMember, CurrentValue, SubscriptionValue
from broker.groups.machine.member import NEVER

LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that will come back under its instance id."""
JOINING: Final = 0
LEAVING: Final = -1


class MemberState(IntEnum):
    """Where a member is on the way to its target; the values are those of the records."""

    STABLE = 0
    """It has what it was to have at its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has been asked to give partitions up, and stays at its epoch until it has."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up yet."""
    UNKNOWN = 127
    """A state that a later release has stored."""


class Current(NamedTuple):
    """What a member has."""

    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    pending_revocation: Partitions = NOTHING
    """What it may still be reading, although it has been told to stop."""

    @classmethod
    def from_stored(cls, value: CurrentValue) -> Current:
        state = MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN
        return cls(
            value.member_epoch,
            value.previous_member_epoch,
            state,
            from_stored(value.assigned_partitions),
            from_stored(value.partitions_pending_revocation),
        )

    def to_stored(self) -> CurrentValue:
        return CurrentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state.value,
            assigned_partitions=to_stored(self.assigned),
            partitions_pending_revocation=to_stored(self.pending_revocation),
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    @property
    def owned(self) -> Partitions:
        """What no other member may have."""
        return joined(self.assigned, self.pending_revocation)

    def at(self, epoch: int) -> Current:
        """Return the same at another epoch; the present one becomes the previous one."""
        return self if epoch == self.epoch else self._replace(epoch=epoch, previous_epoch=self.epoch)


_STATES: Final = frozenset(state.value for state in MemberState)


class Member:
    """A member, with its deadlines in monotonic milliseconds."""

    __slots__ = (
        "current",
        "join_deadline_ms",
        "member_id",
        "rebalance_deadline_ms",
        "session_deadline_ms",
        "subscription",
        "sync_deadline_ms",
        "target",
    )

    def __init__(self, member_id: str, subscription: SubscriptionValue) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.target = NOTHING
        self.current = Current()
        self.session_deadline_ms = NEVER
        self.rebalance_deadline_ms = NEVER
        """Until when it has to give up what was revoked."""
        self.join_deadline_ms = NEVER
        """Until when a member of the classic protocol has to join again."""
        self.sync_deadline_ms = NEVER
        """Until when a member of the classic protocol has to sync."""

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic_member_metadata is not None

    @property
    def classic(self) -> ClassicMember:
        """What a member of the classic protocol has said of itself in that protocol."""
        classic = self.subscription.classic_member_metadata
        assert classic is not None
        return classic

    def deadline_ms(self) -> int:
        """Return the first of its deadlines."""
        return min(self.session_deadline_ms, self.rebalance_deadline_ms, self.join_deadline_ms, self.sync_deadline_ms)
