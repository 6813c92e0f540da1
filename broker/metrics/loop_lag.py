"""How late the event loop is: what garbage collection and long computations do to everybody's latency.

Owns the measuring. Must not know what holds the loop up.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.loop.clock import Clock
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


async def watch(lag: Histogram, idle: LoopIdle, clock: Clock) -> None:
    """Measure lag and idle time until cancelled. Runs on the event loop, whose processor time it reads."""
    while True:
        due_s = clock.monotonic_s() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        now_s = clock.monotonic_s()
        lag.update(max(now_s - due_s, 0.0), now_s)
        idle.update(now_s, clock.processor_s())
