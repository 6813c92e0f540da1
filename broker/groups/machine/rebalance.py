"""The two phases of a rebalance, and everything that ends in one. Pure.

Owns: states, generations, the deadlines of the two phases, and the requests parked in them. Must not know: which
request starts what (`broker.groups.machine.joins`, `broker.groups.machine.group`), futures, timers, logs or wire
messages.

Theory of operation. In the join phase (PreparingRebalance) the members' joins are parked until all members are back or
the time is up; the responses open generation n+1. In the sync phase (CompletingRebalance) the syncs are parked until
the leader's assignment is in the log; the responses carry it and the group is Stable.

The generation never decreases, and rises exactly once per completed join phase. A ticket is resolved exactly once: with
its result, or with an error when its request is replaced or its member goes.

Invariants, which `check` tests:
* A join is parked only in PreparingRebalance, or in Stable while the id of a static member is stored.
* A sync is parked only in CompletingRebalance.
* An Empty or Dead group has no members.
* The join phase has a deadline in PreparingRebalance and in no other state.
* Whoever has not synced is a member, and the group CompletingRebalance or Stable.
* A pending member id is not that of a member.
* `wake_at_ms` is not later than any deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from base.dataclass import dataclass
from broker.groups.machine.events import (
    UNKNOWN_MEMBER_ID,
    AssignmentStored,
    Effect,
    JoinedMember,
    JoinResult,
    Moment,
    RespondToJoin,
    RespondToSync,
    StoreGroup,
    StoreOutcome,
    SyncResult,
    Ticket,
)
from broker.groups.machine.member import NEVER, Member
from broker.groups.machine.records import GroupMetadataValue
from broker.groups.machine.roster import Roster
from broker.groups.machine.states import VALID_PREVIOUS, GroupState
from broker.groups.machine.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.errors import ErrorCode

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

REPEATED_JOIN_PHASE_MS_MIN: Final = 1_000
"""A join phase in which nobody has joined is not repeated more often, however short the members' timeouts are."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings for membership."""

    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 3000


class Rebalancing:
    """A group as far as its rebalances go. `Joining` and `Group` add the requests of members."""

    def __init__(self, group_id: str, settings: GroupSettings, moment: Moment) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_timestamp_ms = moment.now_ms
        """When the state was entered (wall time); NO_TIMESTAMP if the loaded record has no timestamp."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that members of a consumer group subscribe to; None if they are not known."""
        self.wake_at_ms = NEVER
        self._settings = settings
        self._roster = Roster()
        self._pending_members: dict[str, int] = {}
        """Member ids that were given out (KIP-394) and not joined with yet, and the deadline of each."""
        self._awaiting_sync: set[Member] = set()
        self._join_deadline_ms = NEVER
        self._sync_deadline_ms = NEVER
        self._first_join_limit_ms: int | None = None
        """Set during the initial delay of the first join phase: the latest end of the delay."""
        self._has_joined_during_delay = False
        self._effects: list[Effect] = []

    # What is known of the members

    @property
    def members(self) -> Mapping[str, Member]:
        """The members by member id, in order of arrival."""
        return self._roster.members

    @property
    def leader_id(self) -> str | None:
        """The member that assigns partitions; None while the group has no members."""
        return self._roster.leader_id

    def current_members(self) -> tuple[JoinedMember, ...]:
        """Return the members with their metadata under the chosen protocol."""
        name = self.protocol_name
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(name))
            for member in self.members.values()
        )

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        return (
            self._roster.subscribed_topics(self.protocol_name) if self.protocol_type == CONSUMER_PROTOCOL_TYPE else None
        )

    # The join phase

    def _rebalance(self, moment: Moment) -> None:
        """Begin a join phase, unless one is under way."""
        if PREPARING is self.state or self.state not in VALID_PREVIOUS[PREPARING]:
            return
        if self.state is COMPLETING:
            self._give_up_assignment(ErrorCode.REBALANCE_IN_PROGRESS, moment)
        self._awaiting_sync.clear()
        self._sync_deadline_ms = NEVER
        if self.state is EMPTY:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._first_join_limit_ms = moment.monotonic_ms + max(delay_ms, self._roster.rebalance_timeout_ms())
            self._has_joined_during_delay = False
            self._join_deadline_ms = moment.monotonic_ms + delay_ms
        else:
            self._join_deadline_ms = moment.monotonic_ms + self._roster.rebalance_timeout_ms()
        self._enter(PREPARING, moment)
        self._wake_at(self._join_deadline_ms)
        self._complete_join_phase_if_ready(moment)

    def _complete_join_phase_if_ready(self, moment: Moment) -> None:
        if self.state is not PREPARING:
            return
        if self._first_join_limit_ms is not None:
            is_ready = self._join_deadline_ms <= moment.monotonic_ms
        else:
            is_ready = not self._pending_members and self._roster.parked_count == len(self.members)
        if is_ready:
            self._complete_join_phase(moment)

    def _expire_join_phase(self, moment: Moment) -> None:
        now_ms, limit_ms = moment.monotonic_ms, self._first_join_limit_ms
        if limit_ms is not None and self._has_joined_during_delay and now_ms < limit_ms:
            self._has_joined_during_delay = False
            self._join_deadline_ms = min(now_ms + self._settings.initial_rebalance_delay_ms, limit_ms)
        else:
            self._complete_join_phase(moment)

    def _complete_join_phase(self, moment: Moment) -> None:
        for member in self._roster.members_not_rejoined():
            if member.group_instance_id is None:
                self._forget(member)
        if self.members and not self._roster.keep_or_elect_leader():
            # Only static members are left, and none has rejoined: they stay until their sessions expire.
            wait_ms = max(self._roster.rebalance_timeout_ms(), REPEATED_JOIN_PHASE_MS_MIN)
            self._join_deadline_ms = moment.monotonic_ms + wait_ms
            self._wake_at(self._join_deadline_ms)
            return
        self._join_deadline_ms = NEVER
        self._first_join_limit_ms = None
        self.generation_id += 1
        if self.members:
            self._open_generation(moment)
        else:
            self._become_empty(moment)

    def _open_generation(self, moment: Moment) -> None:
        self.protocol_name = self._roster.choose_protocol()
        self.subscribed_topics = self._find_subscribed_topics()
        self._enter(COMPLETING, moment)
        for member in self.members.values():
            if member.join_ticket is not None:
                self._respond_to_parked_join(member, self._joined(member))
            self._restart_session(member, moment)
            member.is_new = False
        self._awaiting_sync = set(self.members.values())
        self._sync_deadline_ms = moment.monotonic_ms + self._roster.rebalance_timeout_ms()
        self._wake_at(self._sync_deadline_ms)

    def _become_empty(self, moment: Moment) -> None:
        self.protocol_name = None
        self.subscribed_topics = self._find_subscribed_topics()
        self._enter(EMPTY, moment)
        self._store({}, None)

    # The sync phase

    def _mark_synced(self, member: Member) -> None:
        self._awaiting_sync.discard(member)
        if not self._awaiting_sync:
            self._sync_deadline_ms = NEVER

    def _assignment_stored(self, outcome: AssignmentStored, error: ErrorCode, moment: Moment) -> None:
        if self.state is not COMPLETING or self.generation_id != outcome.generation_id:
            return
        if error:
            self._give_up_assignment(error, moment)
            self._rebalance(moment)
            return
        for member in self.members.values():
            member.assignment = outcome.assignments.get(member.member_id, b"")
            if member.sync_ticket is not None:
                self._respond_to_parked_sync(
                    member, SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
                )
                self._restart_session(member, moment)
        self._enter(STABLE, moment)

    def _give_up_assignment(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self._respond_to_parked_sync(member, SyncResult(error))
                self._restart_session(member, moment)

    def _expire_sync_phase(self, moment: Moment) -> None:
        """Remove the members that joined the generation and have not synced in time."""
        self._sync_deadline_ms = NEVER
        for member in [each for each in self.members.values() if each in self._awaiting_sync]:
            self._forget(member)
        self._rebalance(moment)

    # Removal of members

    def _remove(self, member: Member, moment: Moment) -> None:
        self._forget(member)
        AFTER_REMOVAL[self.state](self, moment)

    def _stay(self, moment: Moment) -> None:
        """nothing"""

    def _complete_join_phase_without(self, moment: Moment) -> None:
        """the join phase ends if it waited for this member alone"""
        self._complete_join_phase_if_ready(moment)

    def _rebalance_without(self, moment: Moment) -> None:
        """a join phase begins"""
        self._rebalance(moment)

    def _forget(self, member: Member) -> None:
        """Drop a member. Its parked requests fail with UNKNOWN_MEMBER_ID, so that a live client joins again."""
        self._respond_to_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._awaiting_sync.discard(member)
        self._roster.remove(member)

    def _become_dead(self, error: ErrorCode) -> None:
        self._pending_members.clear()
        for member in self.members.values():
            self._respond_to_parked(member, error)
        self._roster = Roster()
        self._awaiting_sync.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self.wake_at_ms = NEVER
        self.state = DEAD

    # Responses

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinResult:
        is_leader = member.member_id == self.leader_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or UNKNOWN_MEMBER_ID,
            skip_assignment and is_leader,
            self.current_members() if is_leader else (),
        )

    def _respond_to_parked(self, member: Member, error: ErrorCode) -> None:
        if member.join_ticket is not None:
            self._respond_to_parked_join(member, JoinResult(error, member.member_id))
        if member.sync_ticket is not None:
            self._respond_to_parked_sync(member, SyncResult(error))

    def _respond_to_parked_join(self, member: Member, result: JoinResult) -> None:
        self._effects.append(RespondToJoin(self._roster.unpark(member), result))

    def _respond_to_parked_sync(self, member: Member, result: SyncResult) -> None:
        self._effects.append(RespondToSync(member.sync_ticket, result))
        member.sync_ticket = None

    def _respond_to_sync(self, ticket: Ticket, result: SyncResult) -> None:
        self._effects.append(RespondToSync(ticket, result))

    # Small steps

    def _enter(self, state: GroupState, moment: Moment) -> None:
        assert self.state in VALID_PREVIOUS[state], f"group {self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_timestamp_ms = moment.now_ms

    def _wake_at(self, deadline_ms: int) -> None:
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    def _restart_session(self, member: Member, moment: Moment) -> None:
        deadline_ms = moment.monotonic_ms + member.session_timeout_ms
        member.session_deadline_ms = deadline_ms
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    def _store(self, assignments: Mapping[str, bytes], outcome: StoreOutcome) -> None:
        """Add the effect that stores the group as it is now, but with these assignments."""
        name = self.protocol_name
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=name,
            leader_id=self.leader_id,
            state_timestamp_ms=self.state_timestamp_ms,
            members=[member.to_stored(name, assignments[key]) for key, member in self.members.items()],
        )
        self._effects.append(StoreGroup(value, outcome))

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold between two events."""
        self._roster.check()
        state, members = self.state, self.members.values()
        for member in members:
            is_being_stored = state is STABLE and member.group_instance_id is not None
            assert member.join_ticket is None or state is PREPARING or is_being_stored, (
                "A join is parked only in PreparingRebalance, or in Stable while the id of a static member is stored"
            )
            assert member.sync_ticket is None or state is COMPLETING, "A sync is parked only in CompletingRebalance"
        assert not members or state not in (EMPTY, DEAD), "An Empty or Dead group has no members"
        assert (self._join_deadline_ms != NEVER) == (state is PREPARING), (
            "The join phase has a deadline in PreparingRebalance and in no other state"
        )
        assert not self._awaiting_sync or (state in (COMPLETING, STABLE) and self._awaiting_sync <= set(members)), (
            "Whoever has not synced is a member, and the group CompletingRebalance or Stable"
        )
        assert self._pending_members.keys().isdisjoint(self.members), "A pending member id is not that of a member"
        deadlines = [member.session_deadline_ms for member in members]
        deadlines += self._join_deadline_ms, self._sync_deadline_ms, *self._pending_members.values()
        assert self.wake_at_ms <= min(deadlines), "`wake_at_ms` is not later than any deadline"


AFTER_REMOVAL: Mapping[GroupState, Callable[[Rebalancing, Moment], None]] = MappingProxyType(
    {
        EMPTY: Rebalancing._stay,
        PREPARING: Rebalancing._complete_join_phase_without,
        COMPLETING: Rebalancing._rebalance_without,
        STABLE: Rebalancing._rebalance_without,
        DEAD: Rebalancing._stay,
    }
)
