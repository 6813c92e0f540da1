"""How late the event loop is: what garbage collection and long computations do to the latency of all clients.

Owns the measuring. Must not know what holds the loop up.
"""

from __future__ import annotations

import asyncio
from typing import Final

from base.clock import Clock
from broker.metrics.histogram import Histogram
from broker.metrics.loop_idle import LoopIdle
from broker.metrics.metric import Kind, Metric, alone

INTERVAL_S: Final = 0.1


def lag_metric(lag: Histogram) -> Metric:
    return Metric(
        Kind.HISTOGRAM,
        "",
        "Delay of the event loop, measured ten times a second.",
        alone(lag.distribution),
        own_name="kafka_python_event_loop_lag_seconds",
    )


class Turns:
    """When the event loop last measured its lag, and when the next measurement is due. Pure: times are arguments."""

    def __init__(self, now_s: float) -> None:
        self._due_s = now_s + INTERVAL_S
        self._lag_s = 0.0

    def turn(self, now_s: float) -> float:
        """Record a measurement and return the lag in seconds. The next one is due after `INTERVAL_S`."""
        self._lag_s = max(now_s - self._due_s, 0.0)
        self._due_s = now_s + INTERVAL_S
        return self._lag_s

    def lag_s(self, now_s: float) -> float:
        """Return the larger of the last lag and the delay of the measurement that is due.

        After a stall the loop may serve a request before it measures.
        """
        return max(self._lag_s, now_s - self._due_s)


async def watch(lag: Histogram, idle: LoopIdle, clock: Clock, turns: Turns) -> None:
    """Measure lag and idle time until cancelled. Runs on the event loop, whose processor time it reads."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        now_s = clock.monotonic_s()
        lag.update(turns.turn(now_s), now_s)
        idle.update(now_s, clock.processor_s())
