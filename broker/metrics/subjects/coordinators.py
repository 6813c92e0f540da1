"""Metrics of the coordinators of groups and of transactions.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial

from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.states import GroupState
from broker.metrics.metric import Kind, Metric, Value, alone, counted, gauges
from broker.transactions.coordinator import TransactionCoordinator

GROUPS = "kafka.server:type=group-coordinator-metrics"
TRANSACTIONS = "kafka.server:type=transaction-coordinator-metrics"


def group_metrics(groups: GroupCoordinator) -> Iterator[Metric]:
    inspection = groups.inspection
    counts_of_groups: tuple[tuple[str, str, Callable[[], Iterator[int | None]]], ...] = (
        ("NumOffsets", "Committed offsets kept here.", inspection.count_offsets),
        *(
            (
                f"NumGroups{state.value}",
                f"Consumer groups in the state {state.value}.",
                partial(inspection.count_in_state, state),
            )
            for state in GroupState
        ),
    )
    manager = "kafka.coordinator.group:type=GroupMetadataManager"
    yield from gauges(manager, (("NumGroups", "Consumer groups coordinated here.", inspection.group_count),), alone)
    yield from gauges(manager, counts_of_groups, counted)
    counts: tuple[tuple[str, str, Callable[[], int]], ...] = (
        ("offset-commit-count", "Offsets committed since the start.", lambda: groups.offsets.commit_count),
        ("offset-expiration-count", "Offsets expired since the start.", lambda: groups.removal.expiration_count),
        ("offset-deletion-count", "Offsets deleted since the start.", lambda: groups.removal.deletion_count),
        (
            "group-completed-rebalance-count",
            "Rebalances completed since the start.",
            lambda: groups.runner.completed_rebalance_count,
        ),
    )
    for attribute, text, count in counts:
        yield Metric(Kind.GAUGE, GROUPS, text, alone(count), attribute=attribute)
        rate = attribute.removesuffix("count") + "rate"
        per_second = text.replace(" since the start", " per second")
        yield Metric(Kind.RATE, GROUPS, per_second, alone(count), attribute=rate)
    yield from _load_metrics(GROUPS, groups.partitions.load_times_ms)


def transaction_metrics(transactions: TransactionCoordinator) -> Iterator[Metric]:
    waiting = (
        (
            "UnknownDestinationQueueSize",
            "Parts of decided transactions, one for each leader, whose markers no leader has taken yet.",
            lambda: transactions.markers.waiting_count,
        ),
        (
            "LogAppendRetryQueueSize",
            "Decided transactions with all markers, whose completion could not be appended yet.",
            lambda: transactions.runner.append_retry_count,
        ),
    )
    yield from gauges("kafka.coordinator.transaction:type=TransactionMarkerChannelManager", waiting, alone)
    yield from _load_metrics(TRANSACTIONS, transactions.partitions.load_times_ms)


def _load_metrics(bean: str, times_ms: Collection[int]) -> Iterator[Metric]:
    facts: tuple[tuple[str, str, Callable[[], Value]], ...] = (
        ("max", "longest", lambda: max(times_ms, default=math.nan)),
        ("avg", "mean", lambda: sum(times_ms) / len(times_ms) if times_ms else math.nan),
    )
    for name, measure, fact in facts:
        text = f"The {measure} of the last loads of a partition, in milliseconds; NaN before the first."
        yield Metric(Kind.GAUGE, bean, text, alone(fact), attribute=f"partition-load-time-{name}")
