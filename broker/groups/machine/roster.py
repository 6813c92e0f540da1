"""The members of a group and what follows from them: instance ids, leader, protocols in common, timeouts.

Owns: what must agree with the members at any time. Must not know: states, generations, time or responses.

Members are added or updated only with a protocol in common with the others.

Invariants, which `check` tests:
* Each member is listed under its member id.
* Each static member is found by its instance id.
* `_supporters[name]` is the number of members that list protocol `name`.
* `parked_count` is the number of parked joins.
* At least one protocol is listed by all members.
* The leader is a member, unless the group has no members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from broker.groups.machine.events import MemberProtocol, Ticket
from broker.groups.machine.member import Member
from broker.groups.machine.subscription import subscribed_topics
from protocol.errors import ErrorCode


class Roster:
    """The members of one group."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        """By member id, in order of arrival."""
        self.leader_id: str | None = None
        self.parked_count = 0
        self._static_member_ids: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()

    # Lookup

    def static_member(self, group_instance_id: str | None) -> Member | None:
        """Return the member with this instance id."""
        member_id = self._static_member_ids.get(group_instance_id) if group_instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check the ids in a member's request. FENCED_INSTANCE_ID: the instance id belongs to a newer member."""
        if group_instance_id is not None:
            static_member = self.static_member(group_instance_id)
            if static_member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static_member.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def members_not_rejoined(self) -> list[Member]:
        """Return the members whose join is not parked."""
        return [member for member in self.members.values() if member.join_ticket is None]

    # Protocols, topics and timeouts

    def share_a_protocol(self, protocols: Iterable[MemberProtocol]) -> bool:
        """Return whether every member supports one of these protocols."""
        size = len(self.members)
        return any(self._supporters[name] == size for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Return the protocol with most votes among those that all support; the first member's order breaks ties."""
        size = len(self.members)
        candidates = frozenset(name for name, count in self._supporters.items() if count == size)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """Return the topics that the members subscribe to; None if a subscription cannot be decoded."""
        topics: set[str] = set()
        for metadata in {member.metadata(protocol_name) for member in self.members.values()}:
            subscribed = subscribed_topics(metadata)
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of a member, in milliseconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Changes

    def add(self, member: Member) -> None:
        """Add a member. The first one becomes the leader."""
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_member_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._supporters.update(_names(member.protocols))

    def remove(self, member: Member) -> None:
        """Remove a member without parked requests. If it was the leader, the member that arrived first becomes it."""
        assert not member.is_parked
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self._static_member_ids[member.group_instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        self._supporters.subtract(_names(member.protocols))

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member another member id; its position and its role stay."""
        old_member_id = member.member_id
        self.members = {new_member_id if key == old_member_id else key: value for key, value in self.members.items()}
        member.member_id = new_member_id
        assert member.group_instance_id is not None
        self._static_member_ids[member.group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id

    def update(
        self,
        member: Member,
        protocols: tuple[MemberProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Apply the protocols and timeouts of a member's latest join."""
        self._supporters.subtract(_names(member.protocols))
        self._supporters.update(_names(protocols))
        member.protocols = protocols
        member.set_timeouts(rebalance_timeout_ms, session_timeout_ms)

    def park(self, member: Member, ticket: Ticket) -> None:
        """Park a member's join."""
        assert member.join_ticket is None
        member.join_ticket = ticket
        self.parked_count += 1

    def unpark(self, member: Member) -> Ticket:
        """Remove a member's parked join, and return its ticket."""
        ticket = member.join_ticket
        assert ticket is not None
        member.join_ticket = None
        self.parked_count -= 1
        return ticket

    def keep_or_elect_leader(self) -> bool:
        """Keep the leader if its join is parked, otherwise elect the first member whose join is; False if none is."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is None or leader.join_ticket is None:
            leader = next((member for member in self.members.values() if member.join_ticket is not None), None)
        if leader is not None:
            self.leader_id = leader.member_id
        return leader is not None

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        members = self.members
        assert all(it.member_id == key for key, it in members.items()), "Each member is listed under its member id"
        static_ids = {it.group_instance_id: it.member_id for it in members.values() if it.group_instance_id is not None}
        assert self._static_member_ids == static_ids, "Each static member is found by its instance id"
        supporters = Counter(name for member in members.values() for name in _names(member.protocols))
        assert self._supporters == supporters, "`_supporters[name]` is the number of members that list protocol `name`"
        parked_count = sum(member.join_ticket is not None for member in members.values())
        assert self.parked_count == parked_count, "`parked_count` is the number of parked joins"
        assert not members or len(members) in supporters.values(), "At least one protocol is listed by all members"
        assert self.leader_id in (members or (None,)), "The leader is a member, unless the group has no members"


def _names(protocols: Iterable[MemberProtocol]) -> set[str]:
    return {name for name, _ in protocols}
