"""Requests and rates for the console: the history, the parts of request times, and what waits.

Owns what these pages contain. The figures are of the broker that is asked. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypedDict

from base.pause import Pause
from broker.console.console import Console
from broker.console.problem import not_found
from broker.console.rates import INTERVAL_MS, SAMPLES_PER_OUTLINE, Series
from broker.groups.machine.states import GroupState
from broker.metrics.histogram import distribution
from protocol.errors import ErrorCode

Window = Literal["hour", "day"]
PARTS = ("queue_s", "local_s", "remote_s", "throttle_s", "response_queue_s", "send_s")


class Rates(TypedDict):
    """Figures over time, the oldest first: counts per second, latencies in microseconds."""

    broker: int
    end_ms: int
    step_ms: int
    series: dict[str, list[float | None]]


class RequestRow(TypedDict):
    """Requests of one kind: totals since the start, mean parts and quantiles of their times in milliseconds."""

    name: str
    count: int
    errors: dict[str, int]
    bytes_mean: float
    total_ms_mean: float
    parts_ms_mean: dict[str, float]
    p50_ms: float
    p99_ms: float
    p999_ms: float


class Purgatory(TypedDict):
    """Requests that wait for an event."""

    name: str
    waiting: int
    watched: int


class ControllerEvent(TypedDict):
    """An event that the controller has processed."""

    kind: str
    time_ms: int
    duration_ms: int
    error: str


class Requests(TypedDict):
    """What the broker that is asked has served."""

    broker: int
    requests: list[RequestRow]
    purgatories: list[Purgatory]
    is_controller: bool
    controller_events: list[ControllerEvent]
    fetch_sessions: int
    connections: int
    loop_lag_ms: dict[str, float]
    loop_idle_percent: float


async def rates(console: Console, *, window: Window, topic: str) -> Rates:
    """Return the history of this broker, or of one topic on it. Raises ProblemError."""
    history = console.rates
    named: Mapping[str, Series] = {}
    if topic:
        found = history.topic(topic)
        if topic not in console.services.metadata_cache.topics or not console.may_describe(topic):
            raise not_found(f"topic {topic!r} does not exist")
        if found is not None:
            named = dict(zip(("messages_in", "bytes_in", "bytes_out"), found, strict=True))
    else:
        named = history.figures
    is_hour = window == "hour"
    step_ms = INTERVAL_MS if is_hour else INTERVAL_MS * SAMPLES_PER_OUTLINE
    series: dict[str, list[float | None]] = {}
    for name, one in named.items():
        values = one.hour(history.index) if is_hour else one.day(history.index)
        divisor = 1 if name.endswith("_us") else step_ms / 1000
        series[name] = [None if value is None else round(value / divisor, 3) for value in values]
    return Rates(broker=console.services.broker_id, end_ms=history.recorded_ms, step_ms=step_ms, series=series)


async def requests(console: Console) -> Requests:
    """Return what this broker has served, by kind of request, and what waits."""
    services, measures = console.services, console.measures
    rows = []
    pause = services.sliced_work.pause
    for name, metrics in measures.requests.items():
        await pause()
        count = metrics.count
        if not count:
            continue
        sums = metrics.sums
        times = distribution(0, 0.0, [parts.total_s for parts in metrics.sample.values()]).quantiles
        rows.append(
            RequestRow(
                name=name,
                count=count,
                errors=_errors(metrics.errors),
                bytes_mean=round(sums.size / count, 1),
                total_ms_mean=round(1000 * sums.total_s / count, 3),
                parts_ms_mean={part.removesuffix("_s"): round(1000 * getattr(sums, part) / count, 3) for part in PARTS},
                p50_ms=round(1000 * times["0.50"], 3),
                p99_ms=round(1000 * times["0.99"], 3),
                p999_ms=round(1000 * times["0.999"], 3),
            )
        )
    lag = measures.loop_lag()
    return Requests(
        broker=services.broker_id,
        requests=sorted(rows, key=lambda row: -row["count"]),
        purgatories=await _purgatories(console),
        is_controller=services.controller.is_active,
        controller_events=[
            ControllerEvent(kind=each.kind, time_ms=each.processed_ms, duration_ms=each.duration_ms, error=each.error)
            for each in reversed(services.controller.statistics.recent)
        ],
        fetch_sessions=len(services.fetch_sessions),
        connections=console.connection_count,
        loop_lag_ms={name: round(1000 * value, 3) for name, value in lag.quantiles.items()},
        loop_idle_percent=round(measures.loop_idle_percent(), 1),
    )


async def _purgatories(console: Console) -> list[Purgatory]:
    """Return what the metrics of DelayedOperationPurgatory count. Groups have timers instead of watched keys."""
    services = console.services
    groups, pause = services.groups.inspection, services.sliced_work.pause
    members = await _counted(groups.count_members(), pause)
    rebalances = await _counted(groups.count_in_state(GroupState.PREPARING_REBALANCE), pause)
    return [
        *(
            Purgatory(name=each.name, waiting=each.delayed_count, watched=each.watched_count)
            for each in (*services.replica_manager.purgatories, services.topics.purgatory)
        ),
        Purgatory(name="Heartbeat", waiting=members, watched=members),
        Purgatory(name="Rebalance", waiting=rebalances, watched=rebalances),
    ]


async def _counted(count: Iterator[int | None], pause: Pause) -> int:
    """Return what `count` yields after its slices."""
    while (value := next(count)) is None:
        await pause()
    return value


def _errors(errors: Mapping[int, int]) -> dict[str, int]:
    return {ErrorCode(code).name: count for code, count in sorted(errors.items()) if code}
