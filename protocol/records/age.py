"""How long ago a record was produced, as far as its timestamp says so.

Owns which timestamps say nothing. Must not know where records are.
"""

from typing import Final

EARLIEST_MS: Final = 100_000_000_000
"""March 1973. Negative values, and times in seconds that a producer takes for milliseconds, are below it."""
AHEAD_MAX_MS: Final = 86_400_000
"""How far the clock of a producer may be ahead. Times in microseconds and nanoseconds are beyond it."""


def age_ms(timestamp_ms: int, now_ms: int) -> int | None:
    """Return the age of a record; None if its timestamp is none, or no plausible time of its production."""
    if not EARLIEST_MS <= timestamp_ms <= now_ms + AHEAD_MAX_MS:
        return None
    return max(now_ms - timestamp_ms, 0)
