"""Pauses between attempts to reach an identity provider.

Owns how they grow. Pure. Must not know what is attempted.
"""

from __future__ import annotations

from base.dataclass import dataclass

DOUBLINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class RetryPauses:
    """The pause after the first failure in a row, and the longest one: each is twice as long as the one before."""

    first_ms: int = 100
    longest_ms: int = 10_000

    def after(self, failure_count: int) -> int:
        """Return how many milliseconds to wait after so many failures in a row; 0 without a failure."""
        if not failure_count:
            return 0
        return max(1, min(self.first_ms << min(failure_count - 1, DOUBLINGS_MAX), self.longest_ms))
