"""One member of a group, as the machine keeps it.

Owns: the member's protocols, timeouts, assignment, deadline and parked requests. Must not know: states or generations;
`broker.groups.machine.rebalance`, `joins`, `group` and `roster` change it.
"""

from __future__ import annotations

from broker.groups.machine.events import JoinRequest, MemberProtocol, Ticket
from broker.groups.machine.records import MemberMetadata

NEVER = 1 << 62
"""A deadline that is never reached."""


class Member:
    """What a member sent when it joined, its assignment, and its parked requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[MemberProtocol, ...],
        *,
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.set_timeouts(rebalance_timeout_ms, session_timeout_ms)
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = is_new
        """It has not received a response yet, so it does not know its id and cannot send heartbeats."""
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.session_deadline_ms = NEVER

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> Member:
        """Create a member from its first join."""
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )

    @classmethod
    def restored(cls, stored: MemberMetadata, protocol_name: str | None) -> Member:
        """Restore a member of a loaded generation. Only its metadata under the chosen protocol was stored."""
        return cls(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            (MemberProtocol(protocol_name or "", stored.subscription),),
            assignment=stored.assignment,
        )

    def set_timeouts(self, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Set both timeouts. A rebalance timeout that is not positive is replaced by the session timeout.

        Version 0 of requests and records has only the session timeout; newer clients may send any number.
        """
        self.rebalance_timeout_ms = rebalance_timeout_ms if rebalance_timeout_ms > 0 else session_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    @property
    def is_parked(self) -> bool:
        """Whether it waits for a response: it sends no heartbeats then, and its session does not expire."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata under one protocol; empty if it does not support that one."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the candidate that it prefers. All candidates are among its protocols."""
        return next(name for name, _ in self.protocols if name in candidates)

    def to_stored(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        """Return the member as its group's record stores it."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )
