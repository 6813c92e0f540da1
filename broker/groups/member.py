"""One member of a group, as the machine keeps it.

Owns what was said and is due, nothing else. Must not know states or generations: `group` and `roster` change it.
"""

from __future__ import annotations

from broker.groups.events import JoinRequest, MemberProtocol, Ticket
from broker.groups.records import MemberMetadata

NEVER = 1 << 62
"""A deadline that does not come."""


class Member:
    """What a member said when it joined, what it was assigned, and which of its requests are parked."""

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
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = is_new
        """It never got an result, so it does not know its id and cannot send heartbeats yet."""
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.session_deadline_ms = NEVER

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> Member:
        """A member that asks to be let in."""
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
        """A member of a loaded generation. Only what it said under the chosen protocol was kept."""
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

    @property
    def is_parked(self) -> bool:
        """It waits for us, so its silence is no sign of death."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it said under one protocol; empty when it does not know that one."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """The candidate that it likes best. All candidates are among its protocols."""
        return next(name for name, _ in self.protocols if name in candidates)

    def to_stored(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
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
