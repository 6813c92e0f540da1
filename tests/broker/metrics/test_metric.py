"""Names of metrics: what Prometheus calls what Kafka calls otherwise."""

import re

import pytest

from broker.cluster.broker_state import BrokerState
from broker.metrics.metric import Kind, Metric, alone
from broker.metrics.registry import Registry
from broker.metrics.subjects.cluster import broker_metrics, controller_metrics
from controller.machine.events import Event
from tests.controller.scripted_cluster import ScriptedCluster


def metric(bean: str, kind: Kind = Kind.GAUGE, attribute: str = "", tags: tuple[str, ...] = ()) -> Metric:
    return Metric(kind, bean, "Text.", alone(lambda: 0), tags, attribute)


@pytest.mark.parametrize(
    ("kind", "bean", "attribute", "name"),
    [
        (
            Kind.GAUGE,
            "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
            "",
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            Kind.METER,
            "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
            "",
            "kafka_controller_controllerstats_uncleanleaderelections",
        ),
        (
            Kind.GAUGE,
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
            "",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
        ),
        (
            Kind.GAUGE,
            "kafka.server:type=group-coordinator-metrics",
            "offset-commit-count",
            "kafka_server_group_coordinator_metrics_offset_commit_count",
        ),
    ],
)
def test_a_prometheus_name_follows_from_the_object_name(kind: Kind, bean: str, attribute: str, name: str) -> None:
    assert metric(bean, kind, attribute).prometheus_name == name


def test_labels_keep_their_case_and_lose_their_dashes() -> None:
    assert metric("kafka.a:type=B", tags=("broker-id", "logDirectory")).label_names == ("broker_id", "logDirectory")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(AssertionError, match="kafka_a_b"):
        Registry([metric("kafka.a:type=B"), metric("kafka.a:type=b")], lambda: 0.0)


TIMED_EVENTS = [
    "AutoLeaderBalance",
    "ControlledShutdown",
    "ControllerChange",
    "ControllerShutdown",
    "IsrChange",
    "LeaderAndIsrResponseReceived",
    "LeaderElection",
    "ListPartitionReassignment",
    "LogDirChange",
    "ManualLeaderBalance",
    "PartitionReassignment",
    "TopicChange",
    "TopicDeletion",
    "TopicUncleanLeaderElectionEnable",
    "UncleanLeaderElectionEnable",
    "UpdateFeatures",
]
"""The timers of Kafka 3.9.1's ControllerStats, without their suffix."""


async def test_controller_has_the_timers_of_kafka_and_of_every_event() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1")
    metrics = controller_metrics(cluster.controller)
    timers = {metric.bean.rpartition("=")[2] for metric in metrics if metric.kind is Kind.TIMER}
    assert timers == {f"{event}RateAndTimeMs" for event in TIMED_EVENTS}
    assert {kind.statistic for kind in Event.__subclasses__()} - {""} <= set(TIMED_EVENTS)
    await cluster.close()


def test_text_of_broker_state_names_every_state() -> None:
    metrics = broker_metrics(lambda: BrokerState.RUNNING, 1, "cluster", 0)
    text = next(metric.help for metric in metrics if metric.bean.endswith("name=BrokerState"))
    assert [int(number) for number in re.findall(r"\d+", text)] == [state.value for state in BrokerState]
