"""What goes into the group machine and what comes out of it, as plain values.

Owns: the requests that carry more than a name, the answers to those that may be parked, and the effects that the shell
performs. Must not know: wire messages, futures, logs or clocks. A `Ticket` stands for whoever waits for an answer; the
machine keeps and returns it without looking at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.groups.records import GroupMetadataValue
from protocol.errors import ErrorCode

Ticket = object
"""Whoever waits: the shell's business alone."""

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1


class Moment(NamedTuple):
    """Now, on both clocks: deadlines are monotonic, what is stored or compared between machines is wall time."""

    monotonic_ms: int
    now_ms: int


class MemberProtocol(NamedTuple):
    """One assignment strategy that a member can use, and what it wants its leader to know under it."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A JoinGroup of any version, defaults filled in."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    generated_member_id: str
    """The id to give to a member that has none. Made at the edge, as it is random."""
    requires_known_member_id: bool
    """A dynamic member without an id is told one and has to come again with it (KIP-394)."""
    supports_skipping_assignment: bool
    """The client obeys `skip_assignment`, so that a static leader that is back can be told the truth (KIP-814)."""
    reason: str = ""


class SyncRequest(NamedTuple):
    """A SyncGroup of any version. The leader sends an assignment for each member id, the others none."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a join. `members` is empty for all but the leader."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncResult(NamedTuple):
    """The answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class RespondToJoin(NamedTuple):
    """Effect: whoever holds `ticket` gets its answer now."""

    ticket: Ticket
    result: JoinResult


class RespondToSync(NamedTuple):
    """Effect: whoever holds `ticket` gets its answer now."""

    ticket: Ticket
    result: SyncResult


class AssignmentStored(NamedTuple):
    """The leader's assignment for `generation_id` went to the log; what remains is to hand it out."""

    generation_id: int
    assignments: Mapping[str, bytes]


class StaticMemberStored(NamedTuple):
    """A static member came back under a new id in a stable group; the old values are how to undo that."""

    ticket: Ticket
    old_member_id: str
    new_member_id: str
    old_leader_id: str
    generation_id: int
    supports_skipping_assignment: bool
    old_protocols: tuple[MemberProtocol, ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


StoreOutcome = AssignmentStored | StaticMemberStored | None


class StoreGroup(NamedTuple):
    """Effect: append `value` to the log, then call `Group.stored(outcome, error, moment)` with how that went."""

    value: GroupMetadataValue
    outcome: StoreOutcome


Effect = RespondToJoin | RespondToSync | StoreGroup
