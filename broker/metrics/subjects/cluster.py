"""Metrics of the controller, and of the broker as one member of the cluster.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from base.compiled import form
from broker.cluster.broker_state import BrokerState
from broker.metrics.histogram import Histogram, distribution
from broker.metrics.metric import Distribution, Kind, Metric, Sample, Shown, alone
from config.versions import KAFKA_COMMIT_ID, KAFKA_VERSION
from controller.controller import Controller
from controller.machine.settings import EventTimes
from controller.store.session_events import SessionEvents
from milena_broker import __version__

CONTROLLER_SUMS = (
    ("OfflinePartitionsCount", "Partitions without a leader."),
    ("PreferredReplicaImbalanceCount", "Partitions whose leader is not their preferred replica."),
)
"""Gauges that visit all partitions."""
PARTITIONS_PER_TURN = 500
CONTROLLER_GAUGES = (
    ("ActiveControllerCount", "1 on the controller, 0 on other brokers; the sum over a healthy cluster is 1."),
    ("ActiveBrokerCount", "Registered brokers."),
    ("GlobalTopicCount", "Topics of the cluster."),
    ("GlobalPartitionCount", "Partitions of the cluster."),
    ("TopicsToDeleteCount", "Topics that are to be deleted."),
    ("ReplicasToDeleteCount", "Replicas that are to be deleted."),
    ("TopicsIneligibleToDeleteCount", "Topics that cannot be deleted now."),
    ("ReplicasIneligibleToDeleteCount", "Replicas that cannot be deleted now."),
)
"""Of the whole cluster, and 0 where another broker is controller."""

NOT_IN_THIS_MODE = (
    ("FencedBrokerCount", "0: brokers are fenced in KRaft mode only."),
    ("ZkMigrationState", "0: metadata is not migrated to KRaft."),
)
CONTROLLER_STATES: Mapping[str, int] = MappingProxyType(
    {
        "ControllerChange": 1,
        "LeaderElection": 2,
        "TopicChange": 3,
        "TopicDeletion": 4,
        "PartitionReassignment": 5,
        "AutoLeaderBalance": 6,
        "ManualLeaderBalance": 7,
        "ControlledShutdown": 8,
        "IsrChange": 9,
        "LeaderAndIsrResponseReceived": 10,
        "LogDirChange": 11,
        "ControllerShutdown": 12,
        "UncleanLeaderElectionEnable": 13,
        "TopicUncleanLeaderElectionEnable": 14,
        "ListPartitionReassignment": 15,
        "UpdateFeatures": 17,
    }
)
"""Kafka's numbers, by the statistic of events. Those that Kafka times only; 16 is not timed."""
NEVER_TIMED: Mapping[str, str] = MappingProxyType(
    {
        "ControllerShutdown": "0: the end of a controller is not timed, as in Kafka.",
    }
)
"""The statistics that no event has, and their texts."""
SESSION_EVENTS = (
    ("Disconnects", "disconnects", "Connections lost."),
    ("Expires", "expires", "Sessions expired."),
    ("SyncConnects", "sync_connects", "Connections made."),
    ("AuthFailures", "auth_failures", "Logins refused."),
    ("ReadOnlyConnects", "read_only_connects", "Connections to a server that cannot write."),
    ("SaslAuthentications", "sasl_authentications", "Logins by SASL."),
)
"""Kafka's name, the count, and the text."""


def controller_metrics(controller: Controller) -> Iterator[Metric]:
    for name, text in CONTROLLER_GAUGES:
        bean = f"kafka.controller:type=KafkaController,name={name}"
        yield Metric(Kind.GAUGE, bean, text, _controller_gauge(controller, name))
    for name, text in CONTROLLER_SUMS:
        bean = f"kafka.controller:type=KafkaController,name={name}"
        yield Metric(Kind.GAUGE, bean, text, partial(_controller_sum, controller, name))
    yield Metric(
        Kind.GAUGE,
        "kafka.controller:type=ControllerEventManager,name=EventQueueSize",
        "Events that wait for the controller.",
        _controller_gauge(controller, "EventQueueSize"),
    )
    statistics = controller.statistics
    yield Metric(
        Kind.GAUGE,
        "kafka.controller:type=KafkaController,name=ControllerState",
        "The kind of event that the controller processes, as Kafka numbers them; 0 between events.",
        alone(lambda: CONTROLLER_STATES.get(statistics.present, 0)),
    )
    for name, text in NOT_IN_THIS_MODE:
        yield Metric(Kind.GAUGE, f"kafka.controller:type=KafkaController,name={name}", text, alone(lambda: 0))
    yield Metric(
        Kind.HISTOGRAM,
        "kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs",
        "Time that events waited for the controller.",
        alone(lambda: event_times(statistics.queue_time)),
    )
    yield Metric(
        Kind.METER,
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        "Leaders elected that were not in sync: records may be lost.",
        alone(lambda: statistics.unclean_leader_elections),
    )
    for event in sorted(CONTROLLER_STATES):
        bean = f"kafka.controller:type=ControllerStats,name={event}RateAndTimeMs"
        text = NEVER_TIMED.get(event, f"Time that the controller spent on events of the kind {event}.")
        yield Metric(Kind.TIMER, bean, text, _event_times(statistics.by_event, event))


def broker_metrics(
    state: Callable[[], BrokerState], broker_id: int, cluster_id: str, started_ms: int
) -> Iterator[Metric]:
    """`started_ms`: wall-clock time of the start."""
    yield Metric(
        Kind.GAUGE,
        "kafka.server:type=KafkaServer,name=ClusterId",
        "The id of the cluster.",
        alone(lambda: cluster_id),
        shown=Shown.JSON,
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.server:type=KafkaServer,name=BrokerState",
        "0 not running, 1 starting, 2 loading logs, 3 running, 6 moving leadership away before a stop, 7 stopping.",
        alone(lambda: int(state())),
    )
    yield Metric(
        Kind.GAUGE,
        "",
        "The release of Kafka with which this broker is compatible, as a label; the value is always 1.",
        lambda: [((KAFKA_VERSION, KAFKA_COMMIT_ID), 1)],
        ("version", "commit_id"),
        own_name="kafka_server_app_info",
    )
    yield Metric(
        Kind.GAUGE,
        "",
        "The version of Milena, and whether its hot loops are compiled, as labels; the value is always 1.",
        lambda: [((__version__, form()), 1)],
        ("version", "hot_loops"),
        own_name="milena_build_info",
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.server:type=app-info",
        "When the broker was started, in milliseconds since the epoch.",
        alone(lambda: started_ms),
        attribute="start-time-ms",
    )
    build = (
        ("version", "The release of Kafka with which this broker is compatible.", KAFKA_VERSION),
        ("commit-id", "The commit of that release.", KAFKA_COMMIT_ID),
        ("start-time-ms", "When the broker was started, in milliseconds since the epoch.", started_ms),
    )
    for attribute, text, value in build:
        yield Metric(
            Kind.GAUGE,
            "kafka.server:type=app-info",
            text,
            lambda value=value: [((str(broker_id),), value)],  # type: ignore[misc]
            ("id",),
            attribute,
            shown=Shown.JSON,
        )
    for direction, of_this in (("read", "read_bytes"), ("write", "write_bytes")):
        bean = f"kafka.server:type=KafkaServer,name=linux-disk-{direction}-bytes"
        yield Metric(Kind.GAUGE, bean, f"Bytes of disk {direction}s by this process.", _disk_bytes(of_this))


def session_metrics(sessions: SessionEvents, latency: Histogram) -> Iterator[Metric]:
    """Return the metrics of the metadata store. The embedded store has a session that never ends."""
    for bean in ("kafka.server:type=SessionExpireListener", "kafka.security:type=AclAuthorizer"):
        yield Metric(
            Kind.GAUGE,
            f"{bean},name=SessionState",
            "The state of the session with the metadata store.",
            alone(lambda: sessions.state),
            shown=Shown.JSON,
        )
        for name, count, text in SESSION_EVENTS:
            yield Metric(
                Kind.METER, f"{bean},name=ZooKeeper{name}PerSec", text, alone(partial(getattr, sessions, count))
            )
    yield Metric(
        Kind.HISTOGRAM,
        "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs",
        "Time until the metadata store responds.",
        alone(latency.distribution),
    )


def _controller_gauge(controller: Controller, name: str) -> Callable[[], list[Sample]]:
    return lambda: [((), controller.gauges().get(name, _none)())]


def _controller_sum(controller: Controller, name: str) -> Iterator[Sample | None]:
    total = 0
    for number, value in enumerate(controller.sums().get(name, _nothing)()):
        if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
            yield None
        total += value
    yield (), total


def _nothing() -> Iterator[int]:
    """Of the cluster, where another broker is controller."""
    return iter(())


def _none() -> int:
    """Of the cluster, where another broker is controller."""
    return 0


def event_times(times: EventTimes) -> Distribution:
    """Return the processing times of events in milliseconds."""
    return distribution(times.count, times.total_ms, times.latest_ms)


def _event_times(by_event: dict[str, EventTimes], event: str) -> Callable[[], list[Sample]]:
    return lambda: [((), event_times(by_event.get(event, EventTimes())))]


def _disk_bytes(field: str) -> Callable[[], Iterator[Sample]]:
    def read() -> Iterator[Sample]:
        try:
            with open(f"/proc/{os.getpid()}/io") as file:
                lines = dict(line.split(":") for line in file)
        except OSError:
            return  # another system than Linux, or a container that hides it
        yield (), int(lines[field])

    return read
