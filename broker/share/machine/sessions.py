"""Share sessions: which partitions each member of a share group fetches here (KIP-932). Pure.

Owns: the sessions, their epochs and their number. Must not know: what is delivered in a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
PLACES_MAX: Final = 20_000
_EPOCH_MAX: Final = (1 << 31) - 1

Place = tuple[UUID, int]
"""A topic's id and a partition."""


class ShareSession:
    """The session of one member."""

    __slots__ = ("epoch", "group_id", "member_id", "places")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = INITIAL_EPOCH
        self.places: dict[Place, None] = {}

    def add(self, place: Place) -> None:
        """Add a partition. Raises KafkaError(INVALID_REQUEST) if there are too many."""
        if len(self.places) >= PLACES_MAX and place not in self.places:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {PLACES_MAX} partitions in a share session.")
        self.places[place] = None

    def forget(self, place: Place) -> None:
        """Remove a partition."""
        self.places.pop(place, None)

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

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(list(self._sessions.values()))

    def open(self, group_id: str, member_id: str) -> tuple[ShareSession, ShareSession | None]:
        """Begin a session in place of the one that the member may have; return both.

        Raises KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        before = self._sessions.pop((group_id, member_id), None)
        if len(self._sessions) >= self._count_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id)
        session.advance()
        return session, before

    def require(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a request, which expects the next one from now on.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch or epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.advance()
        return session

    def close(self, session: ShareSession) -> bool:
        """End a session; return whether it was open."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        return True
