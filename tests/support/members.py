"""A consumer group with one member, for tests of which the protocol of joining is not the subject.

Owns the requests of joining. Must not know what the test does with the member.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.in_process import InProcessBroker

VERSION = 3
"""Of both requests; the last one of JoinGroup that assigns the member id in the first response."""


class Member(NamedTuple):
    member_id: str
    generation_id: int


async def join_alone(
    broker: InProcessBroker,
    group: str,
    *,
    session_timeout_ms: int = 60_000,
    metadata: bytes = b"",
    assignment: bytes = b"",
) -> Member:
    """Join a group as its only member, and give it `assignment`. Requires that the broker coordinates the group."""
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    joined = await broker.ask(join, VERSION)
    assert not joined.error_code
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    )
    synced = await broker.ask(sync, VERSION)
    assert (synced.error_code, synced.assignment) == (0, assignment)
    return Member(joined.member_id, joined.generation_id)
