"""One consumer group of the classic protocol: members, generations, and what is due when. Pure.

Owns: every decision about membership. Requests and the passing of time go in, answers, parked tickets and effects come
out; `take_effects` hands over the effects, which the shell performs in order (store, answer). Must not know: futures,
timers, logs, wire messages, where ids come from, or committed offsets.

Theory of operation. A rebalance has two phases. In the join phase (PreparingRebalance) the members' joins are parked
until all are back or time is up; the answers open generation n+1. In the sync phase (CompletingRebalance) the syncs are
parked until the leader's assignment is in the log; the answers carry it and the group is Stable. What every request
gets in every state is written in the tables at the end of this module; docs/groups.md is generated from them.

Deadlines are kept here, not armed one by one: `wake_at_ms` is the time at which the shell has to call `advance` at the
latest. Heartbeats and commits push a member's deadline back without touching it, so `advance` may find nothing due.

Invariants:
* The generation never decreases, and rises exactly once per completed join phase.
* A ticket is answered exactly once: with its answer, or with an error when its request is replaced or its member goes.
* A member parked in a join exists only in PreparingRebalance, or in Stable while its new id is being stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from broker.groups.events import (
    UNKNOWN_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    AssignmentStored,
    Effect,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    MemberProtocol,
    Moment,
    StaticMemberStored,
    StoreGroup,
    StoreOutcome,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from broker.groups.member import NEVER, Member
from broker.groups.records import GroupMetadataValue
from broker.groups.roster import Roster
from broker.groups.states import VALID_PREVIOUS, GroupState
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.errors import ErrorCode, Malformed

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long the join of a member that never got an answer stays parked: it cannot show with heartbeats that it lives."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings that decide about membership."""

    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 3000


class Group:
    """One group. Every public method is one event; call `take_effects` and look at `wake_at_ms` after each."""

    def __init__(self, group_id: str, settings: GroupSettings, moment: Moment) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_timestamp_ms = moment.now_ms
        """When the state was entered (wall time); NO_TIMESTAMP when loaded from a record that does not say."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that members of a consumer group subscribe to; None when that is not known."""
        self.wake_at_ms = NEVER
        self._settings = settings
        self._roster = Roster()
        self._pending_members: dict[str, int] = {}
        """Ids given to members that have not come back with them yet, and until when they may."""
        self._awaiting_sync: set[Member] = set()
        self._join_deadline_ms = NEVER
        self._sync_deadline_ms = NEVER
        self._first_join_limit_ms: int | None = None
        """Set while the join phase waits for more first members: when this waiting ends at the latest."""
        self._has_late_first_member = False
        self._effects: list[Effect] = []

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue, settings: GroupSettings, moment: Moment) -> Group:
        """A group as its last record says. Timers run once `resume` is called.

        Raises Malformed when two members have the same id.
        """
        group = cls(group_id, settings, moment)
        group.generation_id = value.generation_id
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        group.state_timestamp_ms = value.state_timestamp_ms
        roster = group._roster
        for stored in value.members:
            if stored.member_id in roster.members or roster.static_member(stored.group_instance_id) is not None:
                raise Malformed(f"group {group_id}: member {stored.member_id} is there twice")
            roster.add(Member.restored(stored, value.protocol_name))
        if roster.members:
            group.state = STABLE
        if value.leader_id in roster.members:
            roster.leader_id = value.leader_id
        group.subscribed_topics = group._find_subscribed_topics()
        return group

    # Events

    def join(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """A member asks to be part of the next generation; `ticket` is answered now or when that is formed."""
        member_id = request.member_id
        if self.state is DEAD:
            self._react_to_join(ON_JOIN_OF_NEW_MEMBER, request, ticket, moment)
        elif not self._accepts(member_id):
            self._refuse_surplus(member_id, ticket, moment)
        elif not self._supports(request.protocol_type, request.protocols):
            self._refuse_join(request, ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_without_id(request, ticket, moment)
        elif member_id in self._pending_members and request.group_instance_id is None:
            self._react_to_join(ON_JOIN_OF_NEW_MEMBER, request, ticket, moment)
        elif error := self._roster.identity_error(member_id, request.group_instance_id):
            self._refuse_join(request, ticket, error)
        else:
            self._react_to_join(ON_JOIN_OF_KNOWN_MEMBER, request, ticket, moment)

    def sync(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """A member asks for its assignment, the leader brings all of them; `ticket` is answered now or when they are
        stored."""
        reaction = self._sync_error(request) or ON_SYNC[self.state]
        if isinstance(reaction, ErrorCode):
            self._answer_sync(ticket, SyncAnswer(reaction))
        else:
            reaction(self, request, ticket, moment)

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, moment: Moment) -> ErrorCode:
        """A member is alive. REBALANCE_IN_PROGRESS asks it to join again."""
        if self.state is DEAD:
            return ON_HEARTBEAT[DEAD]
        if error := self._member_error(member_id, group_instance_id, generation_id):
            return error
        self._restart_session(self.members[member_id], moment)
        return ON_HEARTBEAT[self.state]

    def commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        moment: Moment,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Whether this member may commit offsets now.

        Without member and generation this is an administrator or a consumer that assigns partitions itself, and only a
        group without members is theirs; transactional producers before KIP-447 could not name a member either.
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

    def leave(self, member_id: str, group_instance_id: str | None, moment: Moment) -> ErrorCode:
        """A member goes, or an administrator removes a static one by its instance id alone. Takes effect at once."""
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
        """Time has passed: expire what is due, and say in `wake_at_ms` when to look again."""
        now_ms = moment.monotonic_ms
        for member_id in [each for each, deadline in self._pending_members.items() if deadline <= now_ms]:
            del self._pending_members[member_id]
        for member in [each for each in self.members.values() if each.session_deadline_ms <= now_ms]:
            # Removing one may have completed the join phase, which answered this one or dropped it.
            if member.member_id in self.members and member.session_deadline_ms <= now_ms:
                self._expire_session(member, moment)
        if self._join_deadline_ms <= now_ms:
            self._join_phase_is_over(moment)
        elif self._sync_deadline_ms <= now_ms:
            self._sync_phase_is_over(moment)
        self._complete_join_phase_if_ready(moment)
        deadlines = [member.session_deadline_ms for member in self.members.values()]
        self.wake_at_ms = min(
            self._join_deadline_ms, self._sync_deadline_ms, *deadlines, *self._pending_members.values()
        )

    def stored(self, outcome: StoreOutcome, error: ErrorCode, moment: Moment) -> None:
        """A `StoreGroup` effect was performed. The group may have moved on meanwhile, which makes the result void."""
        if isinstance(outcome, AssignmentStored):
            self._assignment_stored(outcome, error, moment)
        elif isinstance(outcome, StaticMemberStored):
            self._static_member_stored(outcome, error, moment)

    def resume(self, moment: Moment) -> None:
        """Loading is over: sessions run from now on, and a group above the size limit rebalances to lose the excess."""
        for member in self.members.values():
            if member.session_deadline_ms == NEVER:  # else it has shown itself already
                self._restart_session(member, moment)
        if len(self.members) > self._settings.max_size:
            self._rebalance(moment)

    def resign(self) -> None:
        """Another broker coordinates this group now: everyone who waits is sent there."""
        self._die(ErrorCode.NOT_COORDINATOR)

    def delete(self) -> ErrorCode:
        """Remove the group, unless it is in use."""
        error = ON_DELETE[self.state]
        if not error:
            self._die(ErrorCode.UNKNOWN_MEMBER_ID)
        return error

    # What others ask

    def take_effects(self) -> list[Effect]:
        """What there is to do since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def members(self) -> Mapping[str, Member]:
        """By member id, in order of arrival."""
        return self._roster.members

    @property
    def leader_id(self) -> str | None:
        """The member that assigns; None while there are none."""
        return self._roster.leader_id

    @property
    def is_unused(self) -> bool:
        """Nobody is in it or about to be: without offsets there is no reason to keep it."""
        return self.state is EMPTY and not self._pending_members

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may be reading the topic; assumed when their subscriptions are not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def current_members(self) -> tuple[JoinedMember, ...]:
        """The members with what they said under the chosen protocol."""
        name = self.protocol_name
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(name))
            for member in self.members.values()
        )

    # Who may do what

    def _accepts(self, member_id: str) -> bool:
        """Whether the size limit lets this join in. In the join phase those who come first count, so that a group above
        the limit (it was lowered) loses whoever comes last."""
        limit = self._settings.max_size
        if self.state is EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.join_ticket is not None) or self._roster.parked_count < limit
        return member is not None or len(self.members) < limit

    def _supports(self, protocol_type: str, protocols: Iterable[MemberProtocol]) -> bool:
        """Whether a member with these protocols can work with the others."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self._roster.share_a_protocol(protocols)

    def _member_error(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        if error := self._roster.identity_error(member_id, group_instance_id):
            return error
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.NONE  # the table has the answer
        if error := self._member_error(request.member_id, request.group_instance_id, request.generation_id):
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # Joining

    def _join_without_id(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        if self._roster.static_member(request.group_instance_id) is not None:
            self._react_to_join(ON_JOIN_OF_RETURNING_STATIC_MEMBER, request, ticket, moment)
        elif request.group_instance_id is None and request.requires_known_member_id:
            self._pending_members[request.generated_member_id] = moment.monotonic_ms + request.session_timeout_ms
            self._wake_at(self._pending_members[request.generated_member_id])
            self._effects.append(
                AnswerJoin(ticket, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, request.generated_member_id))
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
            self._refuse_join(request, ticket, reaction)
        else:
            reaction(self, request, ticket, moment)

    def _refuse_join(self, request: JoinRequest, ticket: Ticket, error: ErrorCode) -> None:
        self._effects.append(AnswerJoin(ticket, JoinAnswer(error, request.member_id)))

    def _refuse_surplus(self, member_id: str, ticket: Ticket, moment: Moment) -> None:
        self._effects.append(AnswerJoin(ticket, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)))
        self._pending_members.pop(member_id, None)
        if member_id in self.members:
            self._forget(self.members[member_id])
        self._complete_join_phase_if_ready(moment)

    def _park_new_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """let in, parked"""
        self._has_late_first_member = True
        self._let_in_joining(request, ticket, moment)
        self._complete_join_phase_if_ready(moment)

    def _start_with_first_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """let in, parked; the join phase begins with the initial delay"""
        self._let_in_joining(request, ticket, moment)
        self._rebalance(moment)

    def _rebalance_with_new_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """let in, parked; a join phase begins"""
        self._let_in_joining(request, ticket, moment)
        self._rebalance(moment)

    def _park_known_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """parked"""
        self._park_rejoin(self.members[request.member_id], request, ticket, moment)
        self._complete_join_phase_if_ready(moment)

    def _repeat_or_rebalance(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """the current generation again; with changed metadata a join phase begins"""
        member = self.members[request.member_id]
        if member.protocols == request.protocols:
            self._answer_current_generation(member, ticket)
        else:
            self._rejoin(member, request, ticket, moment)

    def _follow_or_rebalance(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """the current generation again; for the leader, or with changed metadata, a join phase begins"""
        member = self.members[request.member_id]
        if member.member_id != self.leader_id and member.protocols == request.protocols:
            self._answer_current_generation(member, ticket)
        else:
            self._rejoin(member, request, ticket, moment)

    def _rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        self._park_rejoin(member, request, ticket, moment)
        self._rebalance(moment)

    def _answer_current_generation(self, member: Member, ticket: Ticket) -> None:
        self._effects.append(AnswerJoin(ticket, self._joined(member)))

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinAnswer:
        is_leader = member.member_id == self.leader_id
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or UNKNOWN_MEMBER_ID,
            skip_assignment and is_leader,
            self.current_members() if is_leader else (),
        )

    def _let_in_joining(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        member = Member.joining(request.member_id or request.generated_member_id, request)
        self._pending_members.pop(member.member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._roster.add(member)
        self._park_join(member, ticket, moment)

    def _park_rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        if member.join_ticket is not None:  # only its last join counts; nobody reads the answer to the one before
            self._answer_parked_join(member, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._park_join(member, ticket, moment)

    def _park_join(self, member: Member, ticket: Ticket, moment: Moment) -> None:
        self._roster.park(member, ticket)
        if member.is_new:
            member.session_deadline_ms = moment.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
            self._wake_at(member.session_deadline_ms)

    # Static members that come back under a new id

    def _park_returning_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """takes over the member, parked"""
        self._take_over(request, ticket, moment)
        self._complete_join_phase_if_ready(moment)

    def _rebalance_with_returning_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """takes over the member, parked; a join phase begins, as the leader may be assigning to the old id"""
        self._take_over(request, ticket, moment)
        self._rebalance(moment)

    def _keep_generation_for_static_member(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """takes over the member and is stored, then the current generation; if another protocol would be chosen, a join
        phase begins"""
        outcome = self._take_over(request, ticket, moment)
        if self._roster.choose_protocol() == self.protocol_name:
            self._store({member.member_id: member.assignment for member in self.members.values()}, outcome)
        else:
            self._rebalance(moment)

    def _impossible(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """cannot be: there is no static member"""
        raise AssertionError(f"group {self.group_id} is {self.state.value} but has static members")

    def _take_over(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> StaticMemberStored:
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
        self._answer_parked(member, ErrorCode.FENCED_INSTANCE_ID)
        self._roster.rename(member, request.generated_member_id)
        self._park_rejoin(member, request, ticket, moment)
        return undo

    def _static_member_stored(self, outcome: StaticMemberStored, error: ErrorCode, moment: Moment) -> None:
        member = self.members.get(outcome.new_member_id)
        if member is None or member.join_ticket is not outcome.ticket:
            return  # it left, or came back once more: this ticket has been answered
        if self.state is not STABLE or self.generation_id != outcome.generation_id:
            return  # a join phase has begun, and will answer
        if error:
            answer = JoinAnswer(
                error,
                UNKNOWN_MEMBER_ID,
                self.generation_id,
                self.protocol_type,
                self.protocol_name,
                outcome.old_leader_id,
            )
            self._answer_parked_join(member, answer)
            self._roster.update(
                member, outcome.old_protocols, outcome.old_rebalance_timeout_ms, outcome.old_session_timeout_ms
            )
            self._roster.rename(member, outcome.old_member_id)
        elif outcome.supports_skipping_assignment:
            self._answer_parked_join(member, self._joined(member, skip_assignment=True))
        else:
            # An older client that is told it leads would assign, and a stable group takes no assignments.
            self._answer_parked_join(member, self._joined(member)._replace(leader_id=outcome.old_leader_id, members=()))
        member.is_new = False
        self._restart_session(member, moment)

    # The join phase

    def _rebalance(self, moment: Moment) -> None:
        """Begin a join phase, unless one is on."""
        if PREPARING is self.state or self.state not in VALID_PREVIOUS[PREPARING]:
            return
        if self.state is COMPLETING:
            self._give_up_assignment(ErrorCode.REBALANCE_IN_PROGRESS, moment)
        self._awaiting_sync.clear()
        self._sync_deadline_ms = NEVER
        if self.state is EMPTY:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._first_join_limit_ms = moment.monotonic_ms + max(delay_ms, self._roster.rebalance_timeout_ms())
            self._has_late_first_member = False
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

    def _join_phase_is_over(self, moment: Moment) -> None:
        now_ms, limit_ms = moment.monotonic_ms, self._first_join_limit_ms
        if limit_ms is not None and self._has_late_first_member and now_ms < limit_ms:
            self._has_late_first_member = False
            self._join_deadline_ms = min(now_ms + self._settings.initial_rebalance_delay_ms, limit_ms)
        else:
            self._complete_join_phase(moment)

    def _complete_join_phase(self, moment: Moment) -> None:
        for member in self._roster.not_back():
            if member.group_instance_id is None:
                self._forget(member)
        if self.members and not self._roster.keep_or_elect_leader():
            # Only static members, none of them back: their sessions decide.
            self._join_deadline_ms = moment.monotonic_ms + self._roster.rebalance_timeout_ms()
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
                self._answer_parked_join(member, self._joined(member))
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

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        return (
            self._roster.subscribed_topics(self.protocol_name) if self.protocol_type == CONSUMER_PROTOCOL_TYPE else None
        )

    # The sync phase

    def _park_sync(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """parked; the leader's assignment is stored, then everyone is answered and the group is Stable"""
        member = self.members[request.member_id]
        if member.sync_ticket is not None:  # as with joins, only the last one counts
            self._answer_parked_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        self._has_synced(member)
        if member.member_id == self.leader_id:
            assignments = {each: request.assignments.get(each, b"") for each in self.members}
            self._store(assignments, AssignmentStored(self.generation_id, assignments))

    def _answer_assignment(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """the current assignment"""
        member = self.members[request.member_id]
        self._has_synced(member)
        self._restart_session(member, moment)
        self._answer_sync(ticket, SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment))

    def _has_synced(self, member: Member) -> None:
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
                self._answer_parked_sync(
                    member, SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
                )
                self._restart_session(member, moment)
        self._enter(STABLE, moment)

    def _give_up_assignment(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self._answer_parked_sync(member, SyncAnswer(error))
                self._restart_session(member, moment)

    def _sync_phase_is_over(self, moment: Moment) -> None:
        """Those who took part in the join phase and then never asked for their assignment go."""
        self._sync_deadline_ms = NEVER
        for member in [each for each in self.members.values() if each in self._awaiting_sync]:
            self._forget(member)
        self._rebalance(moment)

    # Going

    def _expire_session(self, member: Member, moment: Moment) -> None:
        if member.is_parked and not member.is_new:
            member.session_deadline_ms = NEVER  # restarted with the answer that it waits for
        else:
            self._remove(member, moment)

    def _remove(self, member: Member, moment: Moment) -> None:
        self._forget(member)
        AFTER_REMOVAL[self.state](self, moment)

    def _stay(self, moment: Moment) -> None:
        """nothing"""

    def _wait_for_one_less(self, moment: Moment) -> None:
        """the join phase ends if it waited for this member alone"""
        self._complete_join_phase_if_ready(moment)

    def _rebalance_without(self, moment: Moment) -> None:
        """a join phase begins"""
        self._rebalance(moment)

    def _forget(self, member: Member) -> None:
        """Drop a member. Whoever is parked for it is told that it is no member, so that a live client joins again."""
        self._answer_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._awaiting_sync.discard(member)
        self._roster.remove(member)

    def _die(self, error: ErrorCode) -> None:
        self._pending_members.clear()
        for member in self.members.values():
            self._answer_parked(member, error)
        self._roster = Roster()
        self._join_deadline_ms = self._sync_deadline_ms = self.wake_at_ms = NEVER
        self.state = DEAD

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

    def _answer_parked(self, member: Member, error: ErrorCode) -> None:
        if member.join_ticket is not None:
            self._answer_parked_join(member, JoinAnswer(error, member.member_id))
        if member.sync_ticket is not None:
            self._answer_parked_sync(member, SyncAnswer(error))

    def _answer_parked_join(self, member: Member, answer: JoinAnswer) -> None:
        self._effects.append(AnswerJoin(self._roster.unpark(member), answer))

    def _answer_parked_sync(self, member: Member, answer: SyncAnswer) -> None:
        self._effects.append(AnswerSync(member.sync_ticket, answer))
        member.sync_ticket = None

    def _answer_sync(self, ticket: Ticket, answer: SyncAnswer) -> None:
        self._effects.append(AnswerSync(ticket, answer))

    def _store(self, assignments: Mapping[str, bytes], outcome: StoreOutcome) -> None:
        """Ask for the group as it is now, but with these assignments, to be stored."""
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


JoinReaction = Callable[[Group, JoinRequest, Ticket, Moment], None]
SyncReaction = Callable[[Group, SyncRequest, Ticket, Moment], None]

ON_JOIN_OF_NEW_MEMBER: Mapping[GroupState, JoinReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: Group._start_with_first_member,
        PREPARING: Group._park_new_member,
        COMPLETING: Group._rebalance_with_new_member,
        STABLE: Group._rebalance_with_new_member,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_JOIN_OF_KNOWN_MEMBER: Mapping[GroupState, JoinReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: Group._park_known_member,
        COMPLETING: Group._repeat_or_rebalance,
        STABLE: Group._follow_or_rebalance,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_JOIN_OF_RETURNING_STATIC_MEMBER: Mapping[GroupState, JoinReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: Group._impossible,
        PREPARING: Group._park_returning_static_member,
        COMPLETING: Group._rebalance_with_returning_static_member,
        STABLE: Group._keep_generation_for_static_member,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
ON_SYNC: Mapping[GroupState, SyncReaction | ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING: Group._park_sync,
        STABLE: Group._answer_assignment,
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
AFTER_REMOVAL: Mapping[GroupState, Callable[[Group, Moment], None]] = MappingProxyType(
    {
        EMPTY: Group._stay,
        PREPARING: Group._wait_for_one_less,
        COMPLETING: Group._rebalance_without,
        STABLE: Group._rebalance_without,
        DEAD: Group._stay,
    }
)
