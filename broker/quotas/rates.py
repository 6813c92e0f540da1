"""Rates over windows of samples, and token buckets, as Kafka's metrics compute them.

Owns the arithmetic. Pure: times are arguments, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque

THROTTLE_MS_MAX = 600_000
"""The longest throttle. A quota of 0 would otherwise throttle for ever."""


class SampledRate:
    """Amount a second over the last windows.

    The rate is never computed over less time than all windows but one, so a client that has been silent may use in one
    burst what its quota allows for that time.
    """

    __slots__ = ("_samples", "_window_count", "_window_ms", "used_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()  # [start in ms, amount]
        self.used_ms = 0
        """When it was last recorded."""

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount; a negative one takes back what was recorded before."""
        self.used_ms = now_ms
        if not self._samples:
            self._samples.append([now_ms, 0.0])
        elif (age_ms := now_ms - int(self._samples[-1][0])) >= self._window_ms:
            # Samples begin at multiples of a window after the first one. If they began with what they record, as in
            # Kafka, eleven of them would often cover less than ten windows, and a tenth more would be allowed.
            self._samples.append([now_ms - age_ms % self._window_ms, 0.0])
        self._samples[-1][1] += amount
        self._purge(now_ms)

    def total(self, now_ms: int) -> float:
        """Return the amount in the last windows."""
        self._purge(now_ms)
        return sum(amount for _, amount in self._samples)

    def rate(self, now_ms: int) -> float:
        self._purge(now_ms)
        return sum(amount for _, amount in self._samples) * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return for how long to throttle, so that the rate falls to `bound`; 0 if it is not above."""
        rate = self.rate(now_ms)
        if rate <= bound:
            return 0
        if bound <= 0:
            return THROTTLE_MS_MAX
        return min(round((rate - bound) / bound * self._span_ms(now_ms)), THROTTLE_MS_MAX)

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._window_count * self._window_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            self._samples.popleft()

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - int(self._samples[0][0]) if self._samples else 0
        missing = max(self._window_count - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, self._window_ms)


class TokenBucket:
    """Tokens that refill at the rate of a quota; it holds what the quota allows for all windows."""

    __slots__ = ("_tokens", "_updated_ms", "_windows_s", "used_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._windows_s = window_count * window_ms / 1000
        self._tokens: float | None = None
        self._updated_ms = 0
        self.used_ms = 0
        """When it was last recorded."""

    def tokens(self, bound: float, now_ms: int) -> float:
        """Return the tokens that are left; negative if more were taken."""
        burst = bound * self._windows_s
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + bound * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, bound: float, now_ms: int) -> None:
        """Take tokens, also more than are left."""
        self._tokens = self.tokens(bound, now_ms) - amount
        self.used_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return after how long no token is missing; 0 if none is."""
        tokens = self.tokens(bound, now_ms)
        if tokens >= 0:
            return 0
        return THROTTLE_MS_MAX if bound <= 0 else min(round(-tokens * 1000 / bound), THROTTLE_MS_MAX)
