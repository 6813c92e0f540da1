"""What the time of a request is spent on while its response is not complete.

Owns: the sum of its waits for others. Must not know what is waited for.
"""

from __future__ import annotations


class Waits:
    """The waits of one piece of work. At most one is open at a time. Times are in monotonic seconds."""

    waits_for = ""
    """What the open wait is for; empty while none is open."""
    waited_s = 0.0
    """How long the closed waits took together."""
    _since_s = 0.0

    def begin_wait(self, waits_for: str, now_s: float) -> None:
        """The work cannot go on before others do something, which `waits_for` names. Ends the wait before it."""
        self.end_wait(now_s)
        self.waits_for = waits_for
        self._since_s = now_s

    def end_wait(self, now_s: float) -> None:
        """The work goes on. Does nothing if it was not waiting."""
        if self.waits_for:
            self.waited_s += now_s - self._since_s
            self.waits_for = ""
