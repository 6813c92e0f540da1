"""Share sessions: which partitions each member of a share group fetches here (KIP-932). Pure.

Owns: the sessions, their epochs, their number and that of their partitions, and which connection each belongs to. Must
not know: what is delivered in a session, or what a connection is.

A record that a member has acquired belongs to the member's session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
PLACES_MAX: Final = 20_000
"""Partitions of one session."""
ALL_PLACES_MAX: Final = 500_000
"""Partitions of all sessions: a hundred megabytes or so."""
_EPOCH_MAX: Final = (1 << 31) - 1

Place = tuple[UUID, int]
"""A topic's id and a partition."""


class ShareSession:
    """The session of one member."""

    __slots__ = ("_sessions", "connection", "epoch", "group_id", "member_id", "places")

    def __init__(self, sessions: ShareSessions, group_id: str, member_id: str, connection: object) -> None:
        self._sessions = sessions
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = INITIAL_EPOCH
        self.places: dict[Place, None] = {}

    def __str__(self) -> str:
        return self.member_id

    @property
    def is_open(self) -> bool:
        return self._sessions.is_open(self)

    def add(self, place: Place) -> None:
        """Add a partition.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND if the session has ended, INVALID_REQUEST or
        SHARE_SESSION_LIMIT_REACHED if there are too many partitions.
        """
        if place in self.places:
            return
        if not self.is_open:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if len(self.places) >= PLACES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {PLACES_MAX} partitions in a share session.")
        self._sessions.count_place()
        self.places[place] = None

    def forget(self, place: Place) -> None:
        """Remove a partition."""
        if place in self.places:
            del self.places[place]
            self._sessions.uncount_places(1)

    def postpone(self, place: Place) -> None:
        """Let the other partitions come first the next time."""
        if place in self.places:
            del self.places[place]
            self.places[place] = None

    def advance(self) -> None:
        """Expect the next epoch."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class ShareSessions:
    """The sessions of one broker."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[object, dict[ShareSession, None]] = {}
        self._counts: Counter[str] = Counter()
        """How many sessions a group has, if it has any."""
        self._place_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(list(self._sessions.values()))

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return the session of a member."""
        return self._sessions.get((group_id, member_id))

    def is_open(self, session: ShareSession) -> bool:
        return self.find(session.group_id, session.member_id) is session

    def open(self, group_id: str, member_id: str, connection: object) -> ShareSession:
        """Begin a session of a member that has none. Raises KafkaError: SHARE_SESSION_LIMIT_REACHED."""
        assert self.find(group_id, member_id) is None
        if len(self._sessions) >= self._count_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = ShareSession(self, group_id, member_id, connection)
        self._by_connection.setdefault(connection, {})[session] = None
        self._counts[group_id] += 1
        session.advance()
        return session

    def require(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a request, which expects the next one from now on.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.find(group_id, member_id)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch or epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.advance()
        return session

    def close(self, session: ShareSession) -> list[Place]:
        """End a session; return its partitions, none if it was closed before."""
        if not self.is_open(session):
            return []
        del self._sessions[session.group_id, session.member_id]
        of_connection = self._by_connection[session.connection]
        del of_connection[session]
        if not of_connection:
            del self._by_connection[session.connection]
        self._counts[session.group_id] -= 1
        if not self._counts[session.group_id]:
            del self._counts[session.group_id]
        places = list(session.places)
        self.uncount_places(len(places))
        session.places.clear()
        return places

    def are_of_group(self, group_id: str) -> bool:
        """Return whether a member of a group has a session."""
        return group_id in self._counts

    def of_connection(self, connection: object) -> list[ShareSession]:
        """Return the sessions that were opened on a connection, and are open."""
        return list(self._by_connection.get(connection, ()))

    def count_place(self) -> None:
        """Count one more partition of a session. Raises KafkaError: SHARE_SESSION_LIMIT_REACHED."""
        if self._place_count >= ALL_PLACES_MAX:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._place_count += 1

    def uncount_places(self, count: int) -> None:
        """Count fewer partitions of sessions."""
        self._place_count -= count
