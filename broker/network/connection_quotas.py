"""Limits on open connections and on the rate of new ones: per broker, per listener and per address.

Owns the counts, the rates, and the listeners that wait for room. Pure: the time is an argument, in milliseconds of a
monotonic clock. Must not know sockets.

The inter-broker listener is protected if it is not the only one: the broker-wide limits do not apply to it, so that
many clients cannot cut the brokers off from each other. For each connection that it accepts above the limit, another
listener closes one (`is_exceeded`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import field

from base.dataclass import dataclass

UNLIMITED = 2**31 - 1
ADDRESSES_MAX = 10_000
"""The most addresses whose rates are kept; all are dropped when there are more."""
THROTTLE_TIMES_MAX = 1000
"""How many delays a mean covers at most."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """`listener.name.<name>.max.connections` and `listener.name.<name>.max.connection.creation.rate`."""

    connections_max: int = UNLIMITED
    creation_rate_max: int = UNLIMITED


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one broker, named like their properties. Rates are connections a second; addresses are numeric."""

    connections_max: int = UNLIMITED
    creation_rate_max: int = UNLIMITED
    per_ip_max: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected_listener: str | None = None
    """The inter-broker listener if it is not the only one, else None."""
    window_count: int = 11
    window_ms: int = 1000


class CreationRate:
    """Connections a second over the last windows, including the present one.

    As in Kafka's quotas, the rate is never computed over less time than all windows but one. So a burst after silence
    may use what the rate allows for that time.
    """

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[list[int]] = deque()  # [start, connections]

    def record(self, rate_max: int, now_ms: int) -> int:
        """Count one connection; return for how many ms to delay it to keep to `rate_max`, at most one window."""
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

    def take_back(self) -> None:
        """Uncount the last connection, which was not served."""
        if self._windows:
            self._windows[-1][1] -= 1


class ThrottleTimes:
    """The delays of connections above a rate, over the last windows, including the present one."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._length_ms = window_count * window_ms
        self._delays: deque[tuple[int, int]] = deque(maxlen=THROTTLE_TIMES_MAX)  # time, delay

    def record(self, delay_ms: int, now_ms: int) -> None:
        """Record that a connection is delayed."""
        self._delays.append((now_ms, delay_ms))

    def mean_ms(self, now_ms: int) -> float:
        """Return the mean delay; 0 if no connection was delayed."""
        while self._delays and self._delays[0][0] <= now_ms - self._length_ms:
            self._delays.popleft()
        return sum(delay_ms for _, delay_ms in self._delays) / len(self._delays) if self._delays else 0.0


class ConnectionQuotas:
    """Counts the connections of one broker against its limits."""

    def __init__(self, limits: ConnectionLimits, address_rate: Callable[[str], float | None]) -> None:
        """`address_rate(host)` returns how many connections a second an address may open; None: any number."""
        self._limits = limits
        self._address_rate = address_rate
        self._count_by_listener: Counter[str] = Counter()
        self.turned_away_count = 0
        """Of connections above the rate of their address, which are not served but still open."""
        self._count_by_host: Counter[str] = Counter()
        self._rate = self._new_rate()
        self._rate_by_listener: dict[str, CreationRate] = {}
        self._rate_by_address: dict[str, CreationRate] = {}
        self._waiting: list[Callable[[], None]] = []

    @property
    def count(self) -> int:
        """Of connections that are served."""
        return self._count_by_listener.total()

    @property
    def open_count(self) -> int:
        """Of connections that hold a descriptor."""
        return self.count + self.turned_away_count

    @property
    def is_exceeded(self) -> bool:
        """Whether a listener that is not protected has to close a connection."""
        return self.count > self._limits.connections_max

    def reconfigure(self, limits: ConnectionLimits) -> None:
        """Apply new limits from the next connection on; open connections stay open."""
        self._limits = limits
        self._wake()

    def has_room(self, listener: str) -> bool:
        """Return whether `listener` may accept one more connection."""
        if self._count_by_listener[listener] >= self._limits_of(listener).connections_max:
            return False
        return self.is_protected(listener) or self.count < self._limits.connections_max

    def is_protected(self, listener: str) -> bool:
        """Return whether `listener` is exempt from the broker-wide limits."""
        return listener == self._limits.protected_listener

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a connection is closed or the limits change."""
        self._waiting.append(callback)

    def record_creation(self, listener: str, now_ms: int) -> int:
        """Count a new connection; return for how many milliseconds to delay it and the next ones."""
        rate = self._rate_by_listener.get(listener)
        if rate is None:
            rate = self._rate_by_listener[listener] = self._new_rate()
        delay_ms = rate.record(self._limits_of(listener).creation_rate_max, now_ms)
        if not self.is_protected(listener):
            delay_ms = max(delay_ms, self._rate.record(self._limits.creation_rate_max, now_ms))
        return delay_ms

    def record_address(self, host: str, now_ms: int) -> int:
        """Count a new connection of an address; return for how many ms to delay its end if the rate is exceeded.

        A connection above the rate is not served, and not counted.
        """
        rate_max = self._address_rate(host)
        if rate_max is None:
            return 0
        rate = self._rate_by_address.get(host)
        if rate is None:
            if len(self._rate_by_address) >= ADDRESSES_MAX:
                self._rate_by_address.clear()
            rate = self._rate_by_address[host] = self._new_rate()
        delay_ms = rate.record(int(rate_max), now_ms)
        if delay_ms:
            rate.take_back()
        return delay_ms

    def turn_away(self) -> None:
        """Count a connection that is not served but stays open for a while."""
        self.turned_away_count += 1

    def close_turned_away(self) -> None:
        """Uncount it."""
        self.turned_away_count -= 1

    def open(self, listener: str, host: str) -> bool:
        """Count a connection from `host`. Returns False, and counts nothing, if the address is at its limit."""
        if self._count_by_host[host] >= self._limits.per_ip_overrides.get(host, self._limits.per_ip_max):
            return False
        self._count_by_listener[listener] += 1
        self._count_by_host[host] += 1
        return True

    def close(self, listener: str, host: str) -> None:
        """Uncount a closed connection."""
        self._count_by_listener[listener] -= 1
        self._count_by_host[host] -= 1
        if not self._count_by_host[host]:
            del self._count_by_host[host]
        self._wake()

    def new_throttle_times(self) -> ThrottleTimes:
        """Return the delays of a new listener."""
        return ThrottleTimes(self._limits.window_count, self._limits.window_ms)

    def _limits_of(self, listener: str) -> ListenerLimits:
        return self._limits.by_listener.get(listener, ListenerLimits())

    def _new_rate(self) -> CreationRate:
        return CreationRate(self._limits.window_count, self._limits.window_ms)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
