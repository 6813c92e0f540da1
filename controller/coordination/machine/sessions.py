"""The sessions of clients, and when each one expires.

Owns ids, passwords, timeouts and deadlines. Must not know connections or nodes.

A session outlives its connection, and a restart of the server: it expires when its client has sent nothing for its
timeout. If the server itself has not run for a while, because its process was halted, requests of living clients wait
in their sockets: so that time counts for no session.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest
from typing import Final, NamedTuple

from base.dataclass import dataclass

PASSWORD_BYTES: Final = 16
_IDS_PER_MS_BITS: Final = 16


class StoredSession(NamedTuple):
    """What must survive a restart of the server."""

    id: int
    password: bytes
    timeout_ms: int


@dataclass(slots=True)
class Session:
    id: int
    password: bytes
    timeout_ms: int
    deadline_ms: int


class Timeouts(NamedTuple):
    """How long sessions may be, and how often `expired` is called."""

    tick_ms: int
    min_ms: int
    max_ms: int


class Sessions:
    """Times are monotonic milliseconds."""

    def __init__(self, stored: Iterable[StoredSession], last_id: int, timeouts: Timeouts, now_ms: int) -> None:
        self._sessions = {it.id: Session(it.id, it.password, it.timeout_ms, now_ms + it.timeout_ms) for it in stored}
        self.last_id = last_id
        """The highest id that was ever given."""
        self._timeouts = timeouts
        self._checked_ms = now_ms
        self._changed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def begin(self, timeout_ms: int, password: bytes, now_ms: int, wall_ms: int) -> Session:
        """Create a session. Ids rise, also if the wall clock was set back."""
        self.last_id = max(self.last_id + 1, wall_ms << _IDS_PER_MS_BITS)
        timeout_ms = self.negotiated(timeout_ms)
        session = self._sessions[self.last_id] = Session(self.last_id, password, timeout_ms, now_ms + timeout_ms)
        self._changed[session.id] = None
        return session

    def resume(self, session_id: int, password: bytes | None, timeout_ms: int, now_ms: int) -> Session | None:
        """Return the session that a client continues, None if it has expired or the password is not its own."""
        session = self._sessions.get(session_id)
        if session is None or password is None or not compare_digest(password, session.password):
            return None
        timeout_ms = self.negotiated(timeout_ms)
        if timeout_ms != session.timeout_ms:
            session.timeout_ms = timeout_ms
            self._changed[session_id] = None
        self.touch(session, now_ms)
        return session

    def negotiated(self, timeout_ms: int) -> int:
        return min(max(timeout_ms, self._timeouts.min_ms), self._timeouts.max_ms)

    def touch(self, session: Session, now_ms: int) -> None:
        """Count the timeout from now: the client has sent something."""
        session.deadline_ms = now_ms + session.timeout_ms

    def end(self, session_id: int) -> None:
        del self._sessions[session_id]
        self._changed[session_id] = None

    def expired(self, now_ms: int) -> list[int]:
        """Return the sessions whose time is over. Expects a call every tick."""
        halted_ms = now_ms - self._checked_ms - self._timeouts.tick_ms
        self._checked_ms = now_ms
        if halted_ms > self._timeouts.tick_ms:
            for session in self._sessions.values():
                session.deadline_ms += halted_ms
        return [session.id for session in self._sessions.values() if session.deadline_ms <= now_ms]

    def take_changed(self) -> list[tuple[int, StoredSession | None]]:
        """Return each session that began, changed or ended since the last call, None if it has ended."""
        changed: list[tuple[int, StoredSession | None]] = []
        for session_id in self._changed:
            session = self._sessions.get(session_id)
            stored = None if session is None else StoredSession(session.id, session.password, session.timeout_ms)
            changed.append((session_id, stored))
        self._changed.clear()
        return changed
