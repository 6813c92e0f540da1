"""How many connections may be open and how fast new ones may come: of the broker, of a listener, of an address.

Owns the counts and rates, and who waits for room. Pure: the time is an argument, in milliseconds of any clock that only
rises. Must not know sockets.

The listener that brokers use among themselves is protected when there are others: the broker's own limits do not stop
it, so that a crowd of clients cannot take the cluster apart. What it takes beyond the limit, another listener gives
back (`is_exceeded`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """`listener.name.<name>.max.connections` and `listener.name.<name>.max.connection.creation.rate`."""

    connections_max: int = UNLIMITED
    creation_rate_max: int = UNLIMITED


@dataclass(frozen=True)
class ConnectionLimits:
    """By the names of their properties; rates are connections a second. Addresses are numeric."""

    connections_max: int = UNLIMITED
    creation_rate_max: int = UNLIMITED
    per_ip_max: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected_listener: str | None = None
    """The one between brokers, when it is not the only one."""
    window_count: int = 11
    window_ms: int = 1000


class CreationRate:
    """Connections a second, over the last windows, the present one included.

    As in Kafka's quotas, less time than all windows but one is never taken for the span: a burst after silence is
    allowed what the rate gives in that time.
    """

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[list[int]] = deque()  # [start, connections]

    def record(self, rate_max: int, now_ms: int) -> int:
        """Count one connection; for how long (ms, one window at the most) to delay it to come back to `rate_max`."""
        start_ms = now_ms - now_ms % self._window_ms
        if not self._windows or self._windows[-1][0] != start_ms:
            self._windows.append([start_ms, 0])
        self._windows[-1][1] += 1
        while self._windows[0][0] <= start_ms - self._window_count * self._window_ms:
            self._windows.popleft()
        if rate_max >= UNLIMITED:
            return 0
        span_ms = max(now_ms - self._windows[0][0], (self._window_count - 1) * self._window_ms, self._window_ms)
        excess = sum(count for _, count in self._windows) - rate_max * span_ms / 1000
        if excess <= 0:
            return 0
        return min(math.ceil(excess * 1000 / rate_max) if rate_max else self._window_ms, self._window_ms)


class ConnectionQuotas:
    """Counts the connections of one broker against its limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._count_by_listener: Counter[str] = Counter()
        self._count_by_host: Counter[str] = Counter()
        self._rate = self._new_rate()
        self._rate_by_listener: dict[str, CreationRate] = {}
        self._waiting: list[Callable[[], None]] = []

    @property
    def count(self) -> int:
        return self._count_by_listener.total()

    @property
    def is_exceeded(self) -> bool:
        """Whether a listener that is not protected has to give a connection back."""
        return self.count > self._limits.connections_max

    def reconfigure(self, limits: ConnectionLimits) -> None:
        """Applies from the next connection on; those that are open stay."""
        self._limits = limits
        self._wake()

    def has_room(self, listener: str) -> bool:
        """Whether `listener` may accept one more connection."""
        if self._count_by_listener[listener] >= self._limits_of(listener).connections_max:
            return False
        return self.is_protected(listener) or self.count < self._limits.connections_max

    def is_protected(self, listener: str) -> bool:
        """Whether the broker's own limits do not hold for it."""
        return listener == self._limits.protected_listener

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a connection has closed or the limits have changed."""
        self._waiting.append(callback)

    def record_creation(self, listener: str, now_ms: int) -> int:
        """A connection came in; for how many milliseconds it, and those behind it, have to wait."""
        rate = self._rate_by_listener.get(listener)
        if rate is None:
            rate = self._rate_by_listener[listener] = self._new_rate()
        delay_ms = rate.record(self._limits_of(listener).creation_rate_max, now_ms)
        if not self.is_protected(listener):
            delay_ms = max(delay_ms, self._rate.record(self._limits.creation_rate_max, now_ms))
        return delay_ms

    def open(self, listener: str, host: str) -> bool:
        """Count a connection from `host`, False when its address has as many as it may (and nothing is counted)."""
        if self._count_by_host[host] >= self._limits.per_ip_overrides.get(host, self._limits.per_ip_max):
            return False
        self._count_by_listener[listener] += 1
        self._count_by_host[host] += 1
        return True

    def close(self, listener: str, host: str) -> None:
        """A counted connection is gone."""
        self._count_by_listener[listener] -= 1
        self._count_by_host[host] -= 1
        if not self._count_by_host[host]:
            del self._count_by_host[host]
        self._wake()

    def _limits_of(self, listener: str) -> ListenerLimits:
        return self._limits.by_listener.get(listener, ListenerLimits())

    def _new_rate(self) -> CreationRate:
        return CreationRate(self._limits.window_count, self._limits.window_ms)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
