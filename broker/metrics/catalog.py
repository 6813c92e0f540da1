"""All metrics of a broker: which parts they are views on.

Owns their order. Must not know any of them, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from broker.cluster.broker_state import BrokerState
from broker.metrics.histogram import Histogram
from broker.metrics.loop_idle import LoopIdle, idle_metrics
from broker.metrics.loop_lag import lag_metric
from broker.metrics.metric import Metric
from broker.metrics.of_cluster import broker_metrics, controller_metrics
from broker.metrics.of_coordinators import group_metrics, transaction_metrics
from broker.metrics.of_network import network_metrics
from broker.metrics.of_replicas import fetcher_metrics, isr_metrics, move_metrics, partition_metrics, waiting_metrics
from broker.metrics.of_requests import request_metrics, topic_metrics
from broker.metrics.of_storage import cleaner_metrics, log_metrics
from broker.network.socket_server import SocketServer
from broker.replica.log_cleaner import LogCleaner
from broker.requests.request_metrics import RequestMetrics
from broker.requests.services import Services


def all_metrics(
    services: Services,
    sockets: SocketServer,
    *,
    state: Callable[[], BrokerState],
    started_ms: int,
    cleaner: Callable[[], LogCleaner | None],
    flush_times: Histogram,
    loop_lag: Histogram,
    loop_idle: LoopIdle,
    requests: Mapping[str, RequestMetrics],
) -> Iterator[Metric]:
    """In the order in which they are shown. `cleaner()` is None while there is none."""
    yield from broker_metrics(state, started_ms)
    yield from controller_metrics(services.controller)
    yield from partition_metrics(services.replica_manager, services.late_transactions)
    yield from fetcher_metrics(services.fetchers)
    yield from isr_metrics(services.isr_changes)
    yield from waiting_metrics(services.replica_manager, services.fetch_sessions)
    yield from move_metrics(services.directory_moves)
    yield from group_metrics(services.groups)
    yield from transaction_metrics(services.transactions)
    yield from topic_metrics(services.replica_manager.topic_metrics)
    yield from request_metrics(requests)
    yield from network_metrics(sockets)
    yield from log_metrics(services.log_manager, flush_times)
    yield from cleaner_metrics(services.log_manager, cleaner)
    yield lag_metric(loop_lag)
    yield from idle_metrics(loop_idle)
