"""Metrics of the coordinators of groups and of transactions.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from broker.groups.coordinator import GroupCoordinator
from broker.groups.states import GroupState
from broker.metrics.metric import Kind, Metric, alone
from broker.transactions.coordinator import TransactionCoordinator

GROUPS = "kafka.server:type=group-coordinator-metrics"
TRANSACTIONS = "kafka.server:type=transaction-coordinator-metrics"


def group_metrics(groups: GroupCoordinator) -> Iterator[Metric]:
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name="
    yield Metric(
        Kind.GAUGE,
        f"{manager}NumGroups",
        "Consumer groups coordinated here.",
        alone(lambda: sum(groups.count_by_state().values())),
    )
    for state in GroupState:
        text = f"Consumer groups in the state {state.value}."
        yield Metric(Kind.GAUGE, f"{manager}NumGroups{state.value}", text, _in_state(groups, state))
    yield Metric(Kind.GAUGE, f"{manager}NumOffsets", "Committed offsets kept here.", alone(groups.offset_count))
    counts: tuple[tuple[str, str, Callable[[], int]], ...] = (
        ("offset-commit-count", "Offsets committed since the start.", lambda: groups.commit_count),
        ("offset-expiration-count", "Offsets expired since the start.", lambda: groups.expiration_count),
        ("offset-deletion-count", "Offsets deleted since the start.", lambda: groups.deletion_count),
        (
            "group-completed-rebalance-count",
            "Rebalances completed since the start.",
            lambda: groups.completed_rebalance_count,
        ),
    )
    for attribute, text, count in counts:
        yield Metric(Kind.GAUGE, GROUPS, text, alone(count), attribute=attribute)
    yield from _load_metrics(GROUPS, groups.load_times_ms)


def transaction_metrics(transactions: TransactionCoordinator) -> Iterator[Metric]:
    manager = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="
    yield Metric(
        Kind.GAUGE,
        f"{manager}UnknownDestinationQueueSize",
        "Decided transactions with markers that no leader has taken yet.",
        alone(lambda: transactions.unsent_count),
    )
    yield Metric(
        Kind.GAUGE,
        f"{manager}LogAppendRetryQueueSize",
        "Decided transactions with all markers, whose completion could not be appended yet.",
        alone(lambda: transactions.append_retry_count),
    )
    yield from _load_metrics(TRANSACTIONS, transactions.load_times_ms)


def _load_metrics(bean: str, times_ms: Collection[int]) -> Iterator[Metric]:
    yield Metric(
        Kind.GAUGE,
        bean,
        "The longest of the last loads of a partition, in milliseconds; NaN before the first.",
        alone(lambda: max(times_ms, default=math.nan)),
        attribute="partition-load-time-max",
    )
    yield Metric(
        Kind.GAUGE,
        bean,
        "The mean of the last loads of a partition, in milliseconds; NaN before the first.",
        alone(lambda: sum(times_ms) / len(times_ms) if times_ms else math.nan),
        attribute="partition-load-time-avg",
    )


def _in_state(groups: GroupCoordinator, state: GroupState) -> Callable[[], list[tuple[tuple[str, ...], int]]]:
    return lambda: [((), groups.count_by_state()[state])]
