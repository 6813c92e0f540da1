"""The joins of members: which are accepted, which get the current generation again, what starts a join phase. Pure.

Owns: the reaction to each kind of join in each state, in the tables at the end of this module. Must not know: what
happens in a join phase (`broker.groups.machine.rebalance`), or other requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from broker.groups.machine.events import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    MemberProtocol,
    Moment,
    RespondToJoin,
    StaticMemberStored,
    Ticket,
)
from broker.groups.machine.member import Member
from broker.groups.machine.rebalance import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Rebalancing
from broker.groups.machine.states import GroupState
from protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long the first join of a member stays parked: until its response the member cannot send heartbeats."""
PENDING_MEMBERS_MAX = 1_000
"""Member ids that a group keeps for clients that have not joined with them yet. Kafka sets no limit, and a client may
ask for any number of them. Of a larger group that starts, each client joins a few milliseconds after it got its id."""


class Joining(Rebalancing):
    """A group as far as joins go. `Group` adds the other requests."""

    def join(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """Add a member to the next generation. `ticket` is resolved now, or when the generation is formed."""
        member_id = request.member_id
        if self.state is DEAD:
            self._react_to_join(ON_JOIN_OF_NEW_MEMBER, request, ticket, moment)
        elif not self._accepts(member_id):
            self._reject_surplus(member_id, ticket, moment)
        elif not self._supports(request.protocol_type, request.protocols):
            self._reject_join(request, ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_without_id(request, ticket, moment)
        elif member_id in self._pending_members and request.group_instance_id is None:
            self._react_to_join(ON_JOIN_OF_NEW_MEMBER, request, ticket, moment)
        elif error := self._roster.identity_error(member_id, request.group_instance_id):
            self._reject_join(request, ticket, error)
        else:
            self._react_to_join(ON_JOIN_OF_KNOWN_MEMBER, request, ticket, moment)

    # Who may join

    def _accepts(self, member_id: str) -> bool:
        """Return whether the size limit admits this join.

        In the join phase the first joins are admitted: if the limit was lowered, members that join last are removed.
        """
        limit = self._settings.max_size
        if self.state is EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.join_ticket is not None) or self._roster.parked_count < limit
        return member is not None or len(self.members) < limit

    def _supports(self, protocol_type: str, protocols: Iterable[MemberProtocol]) -> bool:
        """Return whether a member with these protocols has one in common with all others."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self._roster.share_a_protocol(protocols)

    # New members and members that join again

    def _join_without_id(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        if self._roster.static_member(request.group_instance_id) is not None:
            self._react_to_join(ON_JOIN_OF_RETURNING_STATIC_MEMBER, request, ticket, moment)
        elif request.group_instance_id is None and request.requires_known_member_id:
            if len(self._pending_members) == PENDING_MEMBERS_MAX:  # the client of the oldest one has to begin anew
                del self._pending_members[next(iter(self._pending_members))]
            self._pending_members[request.generated_member_id] = moment.monotonic_ms + request.session_timeout_ms
            self._wake_at(self._pending_members[request.generated_member_id])
            self._effects.append(
                RespondToJoin(ticket, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.generated_member_id))
            )
        else:
            self._react_to_join(ON_JOIN_OF_NEW_MEMBER, request, ticket, moment)

    def _react_to_join(
        self,
        table: Mapping[GroupState, JoinReaction | ErrorCode],
        request: JoinRequest,
        ticket: Ticket,
        moment: Moment,
    ) -> None:
        reaction = table[self.state]
        if isinstance(reaction, ErrorCode):
            self._reject_join(request, ticket, reaction)
        else:
            reaction(self, request, ticket, moment)

    def _reject_join(self, request: JoinRequest, ticket: Ticket, error: ErrorCode) -> None:
        self._effects.append(RespondToJoin(ticket, JoinResult(error, request.member_id)))

    def _reject_surplus(self, member_id: str, ticket: Ticket, moment: Moment) -> None:
        self._effects.append(RespondToJoin(ticket, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)))
        self._pending_members.pop(member_id, None)
        if member_id in self.members:
            self._forget(self.members[member_id])
        self._complete_join_phase_if_ready(moment)

    def _park_new_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """added, parked"""
        self._has_joined_during_delay = True
        self._add_new_member(request, ticket, moment)
        self._complete_join_phase_if_ready(moment)

    def _start_first_rebalance(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """added, parked; the join phase begins with the initial delay"""
        self._add_new_member(request, ticket, moment)
        self._rebalance(moment)

    def _rebalance_with_new_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """added, parked; a join phase begins"""
        self._add_new_member(request, ticket, moment)
        self._rebalance(moment)

    def _park_known_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """parked"""
        self._park_rejoin(self.members[request.member_id], request, ticket, moment)
        self._complete_join_phase_if_ready(moment)

    def _repeat_generation_or_rebalance(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """the current generation again; with changed metadata a join phase begins"""
        member = self.members[request.member_id]
        if member.protocols == request.protocols:
            self._respond_with_current_generation(member, ticket)
        else:
            self._rejoin(member, request, ticket, moment)

    def _repeat_generation_to_follower_or_rebalance(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """the current generation again; for the leader, or with changed metadata, a join phase begins"""
        member = self.members[request.member_id]
        if member.member_id != self.leader_id and member.protocols == request.protocols:
            self._respond_with_current_generation(member, ticket)
        else:
            self._rejoin(member, request, ticket, moment)

    def _rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        self._park_rejoin(member, request, ticket, moment)
        self._rebalance(moment)

    def _respond_with_current_generation(self, member: Member, ticket: Ticket) -> None:
        self._effects.append(RespondToJoin(ticket, self._joined(member)))

    def _add_new_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        member = Member.joining(request.member_id or request.generated_member_id, request)
        self._pending_members.pop(member.member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._roster.add(member)
        self._park_join(member, ticket, moment)

    def _park_rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        if member.join_ticket is not None:  # only its last join gets the result; the client has given up the one before
            self._respond_to_parked_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._park_join(member, ticket, moment)

    def _park_join(self, member: Member, ticket: Ticket, moment: Moment) -> None:
        self._roster.park(member, ticket)
        if member.is_new:
            member.session_deadline_ms = moment.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
            self._wake_at(member.session_deadline_ms)

    # Static members that come back under a new id

    def _park_returning_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """replaces the member, parked"""
        self._replace_static_member(request, ticket, moment)
        self._complete_join_phase_if_ready(moment)

    def _rebalance_with_returning_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """replaces the member, parked; a join phase begins, as the leader may be assigning to the old id"""
        self._replace_static_member(request, ticket, moment)
        self._rebalance(moment)

    def _keep_generation_for_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """replaces the member and is stored, then the current generation; if another protocol would be chosen, a join
        phase begins"""
        outcome = self._replace_static_member(request, ticket, moment)
        if self._roster.choose_protocol() == self.protocol_name:
            self._store({member.member_id: member.assignment for member in self.members.values()}, outcome)
        else:
            self._rebalance(moment)

    def _fail_without_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """impossible: an empty group has no static members"""
        raise AssertionError(f"group {self.group_id} is {self.state.value} but has static members")

    def _replace_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> StaticMemberStored:
        member = self._roster.static_member(request.group_instance_id)
        assert member is not None
        undo = StaticMemberStored(
            ticket,
            member.member_id,
            request.generated_member_id,
            self.leader_id or UNKNOWN_MEMBER_ID,
            self.generation_id,
            request.supports_skipping_assignment,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )
        self._respond_to_parked(member, ErrorCode.FENCED_INSTANCE_ID)
        self._roster.rename(member, request.generated_member_id)
        self._park_rejoin(member, request, ticket, moment)
        return undo

    def _static_member_stored(self, outcome: StaticMemberStored, error: ErrorCode, moment: Moment) -> None:
        member = self.members.get(outcome.new_member_id)
        if member is None or member.join_ticket is not outcome.ticket:
            return  # it left, or joined once more: this ticket has been resolved
        if self.state is not STABLE or self.generation_id != outcome.generation_id:
            return  # a join phase has begun, and will resolve the ticket
        if error:
            result = JoinResult(
                error,
                UNKNOWN_MEMBER_ID,
                self.generation_id,
                self.protocol_type,
                self.protocol_name,
                outcome.old_leader_id,
            )
            self._respond_to_parked_join(member, result)
            self._roster.update(
                member, outcome.old_protocols, outcome.old_rebalance_timeout_ms, outcome.old_session_timeout_ms
            )
            self._roster.rename(member, outcome.old_member_id)
        elif outcome.supports_skipping_assignment:
            self._respond_to_parked_join(member, self._joined(member, skip_assignment=True))
        else:
            # An older client that learns it is the leader would assign, and a stable group accepts no assignment.
            self._respond_to_parked_join(
                member, self._joined(member)._replace(leader_id=outcome.old_leader_id, members=())
            )
        member.is_new = False
        self._restart_session(member, moment)


JoinReaction = Callable[[Joining, JoinRequest, Ticket, Moment], None]

ON_JOIN_OF_NEW_MEMBER: Mapping[GroupState, JoinReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: Joining._start_first_rebalance,
        PREPARING: Joining._park_new_member,
        COMPLETING: Joining._rebalance_with_new_member,
        STABLE: Joining._rebalance_with_new_member,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_JOIN_OF_KNOWN_MEMBER: Mapping[GroupState, JoinReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: Joining._park_known_member,
        COMPLETING: Joining._repeat_generation_or_rebalance,
        STABLE: Joining._repeat_generation_to_follower_or_rebalance,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_JOIN_OF_RETURNING_STATIC_MEMBER: Mapping[GroupState, JoinReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: Joining._fail_without_static_member,
        PREPARING: Joining._park_returning_static_member,
        COMPLETING: Joining._rebalance_with_returning_static_member,
        STABLE: Joining._keep_generation_for_static_member,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
