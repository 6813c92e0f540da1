"""All metrics of a broker: which parts they are views on.

Owns their order. Must not know any of them, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial

from base.dataclass import dataclass
from broker.cluster.broker_state import BrokerState
from broker.metrics.histogram import Histogram
from broker.metrics.host import GarbageCollections, Host
from broker.metrics.loop_idle import LoopIdle, idle_metrics
from broker.metrics.loop_lag import lag_metric
from broker.metrics.metric import Kind, Metric, Sample, Shown
from broker.metrics.registry import SAMPLES_PER_STEP
from broker.metrics.subjects.clients import client_metrics
from broker.metrics.subjects.cluster import broker_metrics, controller_metrics, session_metrics
from broker.metrics.subjects.coordinators import group_metrics, transaction_metrics
from broker.metrics.subjects.host import host_metrics, process_metrics
from broker.metrics.subjects.logins import login_metrics
from broker.metrics.subjects.network import network_metrics
from broker.metrics.subjects.peers import outgoing_metrics, queue_metrics, verification_metrics
from broker.metrics.subjects.quotas import quota_metrics
from broker.metrics.subjects.replicas import (
    fetcher_metrics,
    isr_metrics,
    move_metrics,
    partition_metrics,
    throttle_metrics,
    waiting_metrics,
)
from broker.metrics.subjects.requests import request_metrics, topic_metrics
from broker.metrics.subjects.storage import cleaner_metrics, log_metrics
from broker.network.socket_server import SocketServer
from broker.replica.log_cleaner import LogCleaner
from broker.requests.request_metrics import RequestMetrics
from broker.requests.services import Services
from controller.store.session_events import SessionEvents


@dataclass(frozen=True)
class Measured:
    """What is measured for metrics alone."""

    flush_times: Histogram
    loop_lag: Histogram
    store_latency: Histogram
    loop_idle: LoopIdle
    host: Host
    collections: GarbageCollections
    sessions: SessionEvents


def all_metrics(
    services: Services,
    sockets: SocketServer,
    *,
    state: Callable[[], BrokerState],
    started_ms: int,
    cleaner: Callable[[], LogCleaner | None],
    measured: Measured,
    requests: Mapping[str, RequestMetrics],
    waiting_requests: Callable[[], int],
) -> Iterator[Metric]:
    """In the order in which they are shown. `cleaner()` is None while there is none.

    `requests` has the metrics of requests by name; `waiting_requests()` is how many wait to be decoded.
    """
    yield from broker_metrics(state, services.broker_id, services.metadata_cache.cluster_id, started_ms)
    yield from controller_metrics(services.controller)
    yield from queue_metrics(services.control_channels)
    yield from outgoing_metrics(services.peers)
    yield from partition_metrics(services.replica_manager, services.late_transactions)
    yield from fetcher_metrics(services.fetchers, services.peers.address_of)
    yield from throttle_metrics(services.replica_manager.throttles)
    yield from isr_metrics(services.isr_changes)
    topics_awaited = services.topics.purgatory
    yield from waiting_metrics(services.replica_manager, services.fetch_sessions, topics_awaited, services.groups)
    yield from move_metrics(services.directory_moves)
    yield from group_metrics(services.groups)
    yield from transaction_metrics(services.transactions)
    yield from verification_metrics(services.verifier)
    yield from topic_metrics(services.replica_manager.topic_metrics)
    yield from request_metrics(requests)
    yield from network_metrics(sockets, waiting_requests)
    yield from login_metrics(sockets)
    yield from quota_metrics(services.enforced_quotas)
    yield from client_metrics(services.client_instances, services.clock.monotonic_ms)
    yield from log_metrics(services.log_manager, measured.flush_times)
    yield from cleaner_metrics(services.log_manager, cleaner)
    yield lag_metric(measured.loop_lag)
    yield from idle_metrics(measured.loop_idle)
    yield from session_metrics(measured.sessions, measured.store_latency)
    yield from host_metrics(measured.host)
    yield from process_metrics(measured.host, measured.collections, started_ms, services.clock.now_ms)


COUNT_INTERVAL_S = 60.0


class MetricCounts:
    """How many samples Prometheus is shown. They are counted once a minute at most: that reads every metric.

    As in Kafka, those that are attributes of an object with several are counted apart from all others.
    """

    def __init__(self, metrics: Sequence[Metric], monotonic_s: Callable[[], float]) -> None:
        self._attributes = [metric for metric in metrics if metric.attribute]
        self._others = [metric for metric in metrics if not metric.attribute]
        self._monotonic_s = monotonic_s
        self._counted_s = float("-inf")
        self._attribute_count = self._other_count = 0

    def metrics(self) -> Iterator[Metric]:
        yield Metric(
            Kind.GAUGE,
            "kafka.server:type=KafkaServer,name=yammer-metrics-count",
            "Metrics with a value, without the attributes of objects that have several; counted once a minute.",
            partial(self._read, lambda: self._other_count),
        )
        yield Metric(
            Kind.GAUGE,
            "kafka.server:type=kafka-metrics-count",
            "Attributes with a value, of objects that have several; counted once a minute.",
            partial(self._read, lambda: self._attribute_count),
            attribute="count",
        )

    def _read(self, count: Callable[[], int]) -> Iterator[Sample | None]:
        now_s = self._monotonic_s()
        if now_s - self._counted_s >= COUNT_INTERVAL_S:
            self._counted_s = now_s
            self._other_count = yield from _sample_count(self._others)
            self._attribute_count = yield from _sample_count(self._attributes)
        yield (), count() + 1  # itself


def _sample_count(metrics: Iterable[Metric]) -> Generator[None, None, int]:
    """Return the number of samples. Those of partitions are counted once for all metrics of the same partitions."""
    total = 0
    of_partitions: dict[str, int] = {}
    for metric in (metric for metric in metrics if metric.shown is not Shown.JSON):
        kind_of_object = metric.bean.partition(",")[0]
        count = of_partitions.get(kind_of_object) if metric.is_per_partition else None
        if count is None:
            count = 0
            for sample in metric.read():
                count += sample is not None
                if sample is None or count % SAMPLES_PER_STEP == 0:
                    yield None
            if metric.is_per_partition:
                of_partitions[kind_of_object] = count
        total += count
    return total
