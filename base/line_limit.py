"""A limit for log lines that a peer or a disk could cause without end.

Owns how many lines an interval admits. Must not know the lines, or the time, which is an argument.
"""


class LineLimit:
    """Admits a few log lines in each interval, and counts the suppressed ones. Pure; times are in seconds."""

    def __init__(self, interval_s: float, lines_max: int = 1) -> None:
        self._interval_s = interval_s
        self._lines_max = lines_max
        self._lines = 0
        self._next_s = float("-inf")
        self._suppressed = 0

    def admit(self, now_s: float) -> int | None:
        """Return how many lines were suppressed since the last one; None if this one is suppressed too."""
        if now_s >= self._next_s:
            self._lines = 0
            self._next_s = now_s + self._interval_s
        if self._lines == self._lines_max:
            self._suppressed += 1
            return None
        self._lines += 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
