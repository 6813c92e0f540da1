"""The time that a request waits for others before its response is complete.

Owns: the sum of its waits for others. Must not know what is waited for.
"""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    """Work that records what it waits for. See `Waits`."""

    def begin_wait(self, waits_for: str, now_s: float) -> None: ...

    def end_wait(self, now_s: float) -> None: ...


class Converting(Waiting, Protocol):
    """Work that also records what it converts."""

    def count_conversion(self, duration_s: float, size: int) -> None:
        """Add the time of converting records, and the bytes that were allocated to open or convert them."""


class Waits:
    """The waits of one piece of work. At most one is open at a time. Times are in monotonic seconds."""

    waits_for = ""
    """What the open wait is for; empty while none is open."""
    waited_s = 0.0
    """The total time of the ended waits."""
    _since_s = 0.0

    def begin_wait(self, waits_for: str, now_s: float) -> None:
        """Begin to wait for `waits_for`, such as replicas. Ends an open wait."""
        self.end_wait(now_s)
        self.waits_for = waits_for
        self._since_s = now_s

    def end_wait(self, now_s: float) -> None:
        """End the open wait. Has no effect if none is open."""
        if self.waits_for:
            self.waited_s += now_s - self._since_s
            self.waits_for = ""
