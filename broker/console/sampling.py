"""The periodic jobs that feed the console's histories: rates every 10 s, lags and commits of groups every minute.

Owns what is sampled. Must not know how histories are kept, or HTTP.
"""

from __future__ import annotations

from broker.console.console import Console
from broker.console.group_lags import local_progress
from broker.console.rates import GROUP_INTERVAL_MS, INTERVAL_MS, Counts
from broker.loop.periodic_jobs import Job
from broker.metrics.histogram import distribution

FIRST_SAMPLE_MS = 1_000
LATENCY_REQUESTS = ("Produce", "FetchConsumer", "FetchFollower", "Metadata", "OffsetCommit")
"""Requests whose latencies are kept over time."""


def sampling_jobs(console: Console) -> list[Job]:
    """Return the jobs that sample this broker."""
    return [
        Job("rates of the console", INTERVAL_MS, lambda: _sample_rates(console), initial_delay_ms=FIRST_SAMPLE_MS),
        Job("groups of the console", GROUP_INTERVAL_MS, lambda: _sample_groups(console), initial_delay_ms=5_000),
    ]


async def _sample_rates(console: Console) -> None:
    if not console.is_ready:
        return
    services, measures = console.services, console.measures
    topics = services.replica_manager.topic_metrics
    counts = {
        name: Counts(metrics.messages_in, metrics.bytes_in, metrics.bytes_out)
        for name, metrics in topics.by_topic.items()
    }
    others = topics.others
    counters = {
        "messages_in": others.messages_in + sum(each.messages_in for each in counts.values()),
        "bytes_in": others.bytes_in + sum(each.bytes_in for each in counts.values()),
        "bytes_out": others.bytes_out + sum(each.bytes_out for each in counts.values()),
        "requests": sum(each.count for each in measures.requests.values()),
    }
    gauges = {"loop_lag_p99_us": round(measures.loop_lag().quantiles["0.99"] * 1e6)}
    for name in LATENCY_REQUESTS:
        request = measures.requests.get(name)
        if request is not None:
            parts = [parts.total_s for parts in request.sample.values()]
            gauges[f"{name}_p99_us"] = round(distribution(0, 0.0, parts).quantiles["0.99"] * 1e6)
            counters[f"{name}_requests"] = request.count
    await console.rates.record(counts, counters, gauges, services.clock.now_ms(), console.pause)


async def _sample_groups(console: Console) -> None:
    if console.is_ready:
        console.group_history.record(await local_progress(console), console.services.clock.now_ms())
