"""Rates over windows of samples, and token buckets, as Kafka's metrics compute them.

Owns the arithmetic. Pure: times are arguments, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from math import inf

THROTTLE_MS_MAX = 600_000
"""The longest throttle. A quota of 0 would otherwise throttle for ever."""


class SampledRate:
    """Amount a second over the last windows.

    The rate is never computed over less time than all windows but one, so a client that has been silent may use in one
    burst what its quota allows for that time.
    """

    __slots__ = (
        "_amount",
        "_before",
        "_end_ms",
        "_span_ms_min",
        "_start_ms",
        "_total",
        "_window_count",
        "_window_ms",
        "used_ms",
    )

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._span_ms_min = max(window_count - 1, 1) * window_ms
        self._before: deque[tuple[int, float]] = deque()
        """Where the windows before the newest one begin, and their amounts."""
        self._start_ms = 0
        self._end_ms: float = -inf
        self._amount = 0.0
        """Of the newest window."""
        self._total = 0.0
        self.used_ms = 0
        """The begin of the window in which it was last recorded."""

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount; a negative one takes back what was recorded before."""
        if now_ms >= self._end_ms:
            self._begin_window(now_ms)
        self._amount += amount
        self._total += amount

    def use(self, amount: float, bound: float, now_ms: int) -> int:
        """Add an amount, and return `throttle_ms`."""
        if now_ms >= self._end_ms:
            self._begin_window(now_ms)
        self._amount += amount
        self._total = total = self._total + amount
        return 0 if total * 1000 <= bound * self._span_ms_min else self.throttle_ms(bound, now_ms)

    def total(self, now_ms: int) -> float:
        """Return the amount in the last windows."""
        if now_ms >= self._end_ms:
            self._forget_old(now_ms)
        return self._total

    def rate(self, now_ms: int) -> float:
        return self.total(now_ms) * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return for how long to throttle, so that the rate falls to `bound`; 0 if it is not above."""
        total = self.total(now_ms)
        span_ms = self._span_ms(now_ms)
        rate = total * 1000 / span_ms
        if rate <= bound:
            return 0
        if bound <= 0:
            return THROTTLE_MS_MAX
        return min(round((rate - bound) / bound * span_ms), THROTTLE_MS_MAX)

    def _begin_window(self, now_ms: int) -> None:
        # Windows begin at multiples of their length after the first one. If they began with what they record, as in
        # Kafka, eleven of them would often cover less than ten lengths, and a tenth more would be allowed.
        is_first = self._end_ms == -inf
        if not is_first:
            self._before.append((self._start_ms, self._amount))
        self._start_ms = now_ms if is_first else now_ms - (now_ms - self._start_ms) % self._window_ms
        self._end_ms = self._start_ms + self._window_ms
        self._amount = 0.0
        self._forget_old(now_ms)
        self.used_ms = self._start_ms

    def _forget_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._window_count * self._window_ms
        before = self._before
        while before and before[0][0] <= oldest_ms:
            before.popleft()
        if self._start_ms <= oldest_ms:
            self._amount = 0.0
        self._total = sum(amount for _, amount in before) + self._amount

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - (self._before[0][0] if self._before else self._start_ms)
        missing = max(self._window_count - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, self._span_ms_min)


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
        """Take tokens, also more than are left; a negative amount returns what was taken before."""
        self._tokens = self.tokens(bound, now_ms) - amount
        self.used_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return after how long no token is missing; 0 if none is."""
        tokens = self.tokens(bound, now_ms)
        if tokens >= 0:
            return 0
        return THROTTLE_MS_MAX if bound <= 0 else min(round(-tokens * 1000 / bound), THROTTLE_MS_MAX)
