"""One consumer group of the classic protocol: what every request and the passing of time does to it. Pure.

Owns: every decision about membership. Requests and the passing of time go in; results, parked tickets and effects come
out. `take_effects` returns the effects, which the shell performs in order (store, respond). Must not know: futures,
timers, logs, wire messages, where ids come from, or committed offsets.

The phases of a rebalance are in `broker.groups.machine.rebalance`, joins in `broker.groups.machine.joins`. What every
request gets in every state is written in the tables at the end of these modules; docs/groups.md is generated from them.

The group keeps its deadlines itself: `wake_at_ms` is the time at which the shell has to call `advance` at the latest.
Heartbeats and commits move a member's deadline without moving `wake_at_ms`, so `advance` may find nothing due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from broker.groups.machine.events import (
    UNKNOWN_MEMBER_ID,
    AssignmentStored,
    Effect,
    Moment,
    StaticMemberStored,
    StoreOutcome,
    SyncRequest,
    SyncResult,
    Ticket,
)
from broker.groups.machine.joins import Joining
from broker.groups.machine.member import NEVER, Member
from broker.groups.machine.offsets import ExpiryRule, expiry_rule
from broker.groups.machine.rebalance import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, GroupSettings
from broker.groups.machine.records import GroupMetadataValue, group_key
from broker.groups.machine.states import GroupState
from protocol.errors import ErrorCode, Malformed


class Group(Joining):
    """One group. Every public method is one event; after each, call `take_effects` and read `wake_at_ms`."""

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue, settings: GroupSettings, moment: Moment) -> Group:
        """Restore a group from its last record. Sessions start with `resume`.

        Raises Malformed if two members have the same member id or the same instance id.
        """
        group = cls(group_id, settings, moment)
        group.generation_id = value.generation_id
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        group.state_timestamp_ms = value.state_timestamp_ms
        roster = group._roster
        for stored in value.members:
            if stored.member_id in roster.members or roster.static_member(stored.group_instance_id) is not None:
                raise Malformed(f"group {group_id}: member {stored.member_id} is in its record twice, expected once")
            roster.add(Member.restored(stored, value.protocol_name))
        if roster.members:
            group.state = STABLE
        if value.leader_id in roster.members:
            roster.leader_id = value.leader_id
        group.subscribed_topics = group._find_subscribed_topics()
        return group

    # Events

    def sync(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """Return a member its assignment; the leader brings the assignments of all.

        `ticket` is resolved now, or when the assignments are stored.
        """
        reaction = self._sync_error(request) or ON_SYNC[self.state]
        if isinstance(reaction, ErrorCode):
            self._respond_to_sync(ticket, SyncResult(reaction))
        else:
            reaction(self, request, ticket, moment)

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, moment: Moment) -> ErrorCode:
        """Keep the session of a member alive. REBALANCE_IN_PROGRESS asks the member to join again."""
        if self.state is DEAD:
            return ON_HEARTBEAT[DEAD]
        if error := self._member_error(member_id, group_instance_id, generation_id):
            return error
        self._restart_session(self.members[member_id], moment)
        return ON_HEARTBEAT[self.state]

    def has_consumer(self, member_id: str) -> bool:
        """Return whether this is a member of the consumer protocol: none is."""
        return False

    def commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        moment: Moment,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Check whether a member may commit offsets now, and keep its session alive.

        A commit without member and generation comes from an administrator or from a consumer that assigns partitions
        itself. It is accepted only for a group without members. Transactional producers before KIP-447 could not name a
        member either, and are accepted.
        """
        if self.state is DEAD:
            return ON_COMMIT[DEAD]
        if generation_id < 0 and self.state is EMPTY:
            return ErrorCode.NONE
        if generation_id >= 0 or member_id != UNKNOWN_MEMBER_ID or group_instance_id is not None:
            if error := self._member_error(member_id, group_instance_id, generation_id):
                return error
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if is_transactional:
            return ErrorCode.NONE
        self._restart_session(self.members[member_id], moment)
        return ON_COMMIT[self.state]

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Offsets of a classic group may be fetched by anybody."""
        return ErrorCode.NONE

    def leave(self, member_id: str, group_instance_id: str | None, moment: Moment) -> ErrorCode:
        """Remove a member. An administrator may name a static member by its instance id alone (KIP-345)."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_id == UNKNOWN_MEMBER_ID:
            static_member = self._roster.static_member(group_instance_id)
            if static_member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_member.member_id
        elif self._pending_members.pop(member_id, None) is not None:
            self._complete_join_phase_if_ready(moment)
            return ErrorCode.NONE
        elif error := self._roster.identity_error(member_id, group_instance_id):
            return error
        self._remove(self.members[member_id], moment)
        return ErrorCode.NONE

    def advance(self, moment: Moment) -> None:
        """Expire what is due, and set `wake_at_ms` to the next deadline."""
        now_ms = moment.monotonic_ms
        for member_id in [each for each, deadline in self._pending_members.items() if deadline <= now_ms]:
            del self._pending_members[member_id]
        for member in [each for each in self.members.values() if each.session_deadline_ms <= now_ms]:
            # Removing a member may have completed the join phase, which restarted this session or removed this member.
            if member.member_id in self.members and member.session_deadline_ms <= now_ms:
                self._expire_session(member, moment)
        if self._join_deadline_ms <= now_ms:
            self._expire_join_phase(moment)
        elif self._sync_deadline_ms <= now_ms:
            self._expire_sync_phase(moment)
        self._complete_join_phase_if_ready(moment)
        deadlines = [member.session_deadline_ms for member in self.members.values()]
        self.wake_at_ms = min(
            self._join_deadline_ms, self._sync_deadline_ms, *deadlines, *self._pending_members.values()
        )

    def stored(self, outcome: StoreOutcome, error: ErrorCode, moment: Moment) -> None:
        """Continue after a `StoreGroup` effect. If the group has changed since the append, the result is void."""
        if isinstance(outcome, AssignmentStored):
            self._assignment_stored(outcome, error, moment)
        elif isinstance(outcome, StaticMemberStored):
            self._static_member_stored(outcome, error, moment)

    def resume(self, moment: Moment) -> None:
        """Start the sessions after loading. A group above the size limit rebalances, which removes the excess."""
        for member in self.members.values():
            if member.session_deadline_ms == NEVER:  # else a request has started its session already
                self._restart_session(member, moment)
        if len(self.members) > self._settings.max_size:
            self._rebalance(moment)

    def begin_rebalance(self, moment: Moment) -> None:
        """Ask all members to join again: the group was of the consumer protocol."""
        self._rebalance(moment)

    def give_way(self) -> None:
        """Fail all parked requests with REBALANCE_IN_PROGRESS: a group of the consumer protocol takes its place."""
        self._become_dead(ErrorCode.REBALANCE_IN_PROGRESS)

    def resign(self) -> None:
        """Fail all parked requests with NOT_COORDINATOR: another broker coordinates this group now."""
        self._become_dead(ErrorCode.NOT_COORDINATOR)

    def delete(self) -> ErrorCode:
        """Remove the group if it is empty, or return why not."""
        error = ON_DELETE[self.state]
        if not error:
            self._become_dead(ErrorCode.UNKNOWN_MEMBER_ID)
        return error

    # Queries

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def is_dead(self) -> bool:
        return self.state is DEAD

    @property
    def is_in_use(self) -> bool:
        """Whether the group has members, or is not Empty yet."""
        return self.state is not EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members and no pending members. Without offsets it is removed."""
        return self.state is EMPTY and not self._pending_members

    def record_keys(self) -> list[bytes]:
        """Return the keys of the group's records: without a generation it only stored offsets."""
        return [group_key(self.group_id)] if self.generation_id > 0 else []

    def expiry_rule(self, now_ms: int, retention_ms: int) -> ExpiryRule | None:
        """See `offsets.expiry_rule`."""
        return expiry_rule(
            self.state, self.protocol_type, self.subscribed_topics, self.state_timestamp_ms, now_ms, retention_ms
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members may be reading the topic; True if their subscriptions are not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # Checks

    def _member_error(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        if error := self._roster.identity_error(member_id, group_instance_id):
            return error
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.NONE  # ON_SYNC has the error
        if error := self._member_error(request.member_id, request.group_instance_id, request.generation_id):
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # Syncs

    def _park_sync(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """parked; the leader's assignment is stored, then all parked syncs return and the group is Stable"""
        member = self.members[request.member_id]
        if member.sync_ticket is not None:  # as with joins, only the last request gets the result
            self._respond_to_parked_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        self._mark_synced(member)
        if member.member_id == self.leader_id:
            assignments = {each: request.assignments.get(each, b"") for each in self.members}
            self._store(assignments, AssignmentStored(self.generation_id, assignments))

    def _respond_with_assignment(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """the current assignment"""
        member = self.members[request.member_id]
        self._mark_synced(member)
        self._restart_session(member, moment)
        self._respond_to_sync(
            ticket, SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
        )

    # Sessions

    def _expire_session(self, member: Member, moment: Moment) -> None:
        if member.is_parked and not member.is_new:
            member.session_deadline_ms = NEVER  # the response that it waits for restarts it
        else:
            self._remove(member, moment)


SyncReaction = Callable[[Group, SyncRequest, Ticket, Moment], None]

ON_SYNC: Mapping[GroupState, SyncReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING: Group._park_sync,
        STABLE: Group._respond_with_assignment,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_HEARTBEAT: Mapping[GroupState, ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING: ErrorCode.NONE,
        STABLE: ErrorCode.NONE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_COMMIT: Mapping[GroupState, ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.NONE,  # a member must be able to commit before it gives partitions up
        COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
        STABLE: ErrorCode.NONE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_DELETE: Mapping[GroupState, ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.NONE,
        PREPARING: ErrorCode.NON_EMPTY_GROUP,
        COMPLETING: ErrorCode.NON_EMPTY_GROUP,
        STABLE: ErrorCode.NON_EMPTY_GROUP,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
