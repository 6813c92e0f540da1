"""Input and output of the group machine, as plain values.

Owns: requests with more than a few fields, the results of requests that may be parked, and the effects that the shell
performs. Must not know: wire messages, futures, logs or clocks. A `Ticket` stands for the request that waits for a
result; the machine keeps and returns it without reading it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.machine.records import GroupMetadataValue
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.machine.consumer.records import Change

Ticket = object
"""A parked request. Only the shell knows its type."""

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1


class Moment(NamedTuple):
    """The time on both clocks: monotonic for deadlines, wall time for what is stored or compared between machines."""

    monotonic_ms: int
    now_ms: int


class MemberProtocol(NamedTuple):
    """One assignment strategy that a member supports, and the member's metadata for the leader under it."""

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
    """The id for a member that has none. The handler generates it, as it is random."""
    requires_known_member_id: bool
    """A dynamic member without an id gets MEMBER_ID_REQUIRED with a new id, and joins again with it (KIP-394)."""
    supports_skipping_assignment: bool
    """The client obeys `skip_assignment`, so that a returning static leader may learn that it leads (KIP-814)."""
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
    """The result of a join. `members` is empty for all but the leader."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncResult(NamedTuple):
    """The result of a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class RespondToJoin(NamedTuple):
    """Effect: resolve `ticket` with the result."""

    ticket: Ticket
    result: JoinResult


class RespondToSync(NamedTuple):
    """Effect: resolve `ticket` with the result."""

    ticket: Ticket
    result: SyncResult


class AssignmentStored(NamedTuple):
    """The leader's assignment for `generation_id` was appended; once stored, it is returned to the members."""

    generation_id: int
    assignments: Mapping[str, bytes]


class StaticMemberStored(NamedTuple):
    """A static member returned under a new id in a stable group; the old values undo that if the append fails."""

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
    """Effect: append `value` to the log, then call `Group.stored(outcome, error, moment)` with the result."""

    value: GroupMetadataValue
    outcome: StoreOutcome


class Respond(NamedTuple):
    """Resolve `ticket` with the result, or fail it with the error."""

    ticket: Ticket
    result: object


class StoreChanges(NamedTuple):
    """Effect of a group of the consumer protocol: append `changes`, and respond once they are stored.

    `ConsumerGroup.stored` is called in the same step, with the error if they cannot be appended.
    """

    changes: Sequence[Change]
    responses: Sequence[Respond]
    removed: Sequence[bytes]
    """The keys of records of the classic group that this one was."""


Effect = RespondToJoin | RespondToSync | StoreGroup
