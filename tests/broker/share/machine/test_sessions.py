"""Share sessions, and how many partitions they have together."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.share.machine import sessions as module
from broker.share.machine.sessions import ShareSessions
from protocol.errors import ErrorCode, KafkaError

TOPIC_ID = UUID(int=7)


def test_a_session_that_has_ended_takes_no_room_for_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another connection may end it while a request adds partitions to it."""
    monkeypatch.setattr(module, "ALL_PLACES_MAX", 1)
    sessions = ShareSessions(1)
    ended = sessions.open("group", "ann", "connection")
    ended.add((TOPIC_ID, 0))
    assert sessions.close(ended) == [(TOPIC_ID, 0)]
    with pytest.raises(KafkaError) as refused:
        ended.add((TOPIC_ID, 1))
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.open("group", "ann", "another connection").add((TOPIC_ID, 1))


def test_a_group_has_sessions_until_its_last_one_ends() -> None:
    sessions = ShareSessions(3)
    ann, bob = (sessions.open("group", member, "connection") for member in ("ann", "bob"))
    other = sessions.open("another", "ann", "connection")
    sessions.close(ann)
    sessions.close(ann)
    assert sessions.are_of_group("group")
    sessions.close(bob)
    assert not sessions.are_of_group("group")
    assert sessions.are_of_group("another")
    sessions.close(other)
    assert len(sessions) == 0
