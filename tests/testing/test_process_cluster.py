"""Clusters whose brokers have a process each: kills, halts, isolation, and the end of all processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena_broker.testing import BrokerError, ClusterBroker, ProcessCluster
from tests.support.processes import is_running
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0
SETTINGS = {"zookeeper.session.timeout.ms": 1500, "replica.lag.time.max.ms": 1000}

until = partial(wait_until, timeout_s=PATIENCE_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(3, SETTINGS) as started:
        yield started


@pytest.fixture
def topic(cluster: ProcessCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of three replicas on three running brokers."""
    cluster.create_topic(request.node.name, 1, configs={"min.insync.replicas": 2})
    yield request.node.name
    for number in range(3):
        if not cluster.broker(number).is_running:
            cluster.start_broker(number)


def produce(bootstrap: str, topic: str, count: int) -> list[object]:
    """Produce numbers with acks=all, and return the errors."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, "message.timeout.ms": 20_000})
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return failed


def test_killed_leader_has_a_successor_at_once_and_comes_back(cluster: ProcessCluster, topic: str) -> None:
    assert produce(cluster.bootstrap_servers, topic, 20) == []
    killed = cluster.leader_of(topic)
    killed.kill()
    assert not killed.is_running
    assert cluster.leader_of(topic) is not killed
    assert produce(cluster.bootstrap_servers, topic, 20) == []
    address = killed.bootstrap_server
    killed.restart()
    assert killed.bootstrap_server == address
    assert len(cluster.consume(topic, 40)) == 40


def test_stopped_broker_moves_its_leaderships_first(cluster: ProcessCluster, topic: str) -> None:
    stopped = cluster.leader_of(topic)
    cluster.stop_broker(stopped.broker_id)
    with pytest.raises(BrokerError, match=f"broker {stopped.broker_id} is not running"):
        stopped.slow_disk()
    assert cluster.produce(topic, ["x"]) == 1
    cluster.start_broker(stopped.broker_id)
    with pytest.raises(BrokerError, match=f"broker {stopped.broker_id} is running"):
        stopped.start()


def test_paused_leader_loses_its_session(cluster: ProcessCluster, topic: str) -> None:
    paused = cluster.leader_of(topic)
    with paused.pause():
        assert cluster.leader_of(topic) is not paused
        with pytest.raises(BrokerError, match="is paused"):
            paused.slow_disk()
    until(lambda: produce(paused.bootstrap_server, topic, 1) == [])


def test_isolated_leader_acknowledges_nothing_and_is_replaced(cluster: ProcessCluster, topic: str) -> None:
    isolated = cluster.leader_of(topic)
    others = ",".join(broker.bootstrap_server for broker in map(cluster.broker, range(3)) if broker is not isolated)
    with cluster.isolate(isolated.broker_id):
        producer = Producer(
            {"bootstrap.servers": isolated.bootstrap_server, "acks": "all", "log_level": 0, "message.timeout.ms": 500}
        )
        failed: list[object] = []
        producer.produce(topic, "lost", on_delivery=lambda error, _: failed.append(error))
        until(lambda: cluster.leader_of(topic) is not isolated)
        assert produce(others, topic, 5) == []
        producer.flush(PATIENCE_S)
        assert failed[0] is not None, "two in-sync replicas are required"
    assert len(cluster.consume(topic, 5)) >= 5


def test_a_slow_disk_is_that_of_one_broker(cluster: ProcessCluster, topic: str) -> None:
    with cluster.leader_of(topic).slow_disk(1.0):
        assert cluster.produce(topic, ["x"]) == 1


def test_cluster_restarts_over_its_data_with_its_addresses(cluster: ProcessCluster, topic: str) -> None:
    cluster.produce(topic, ["kept"])
    before = cluster.bootstrap_servers
    cluster.kill()
    cluster.restart()
    assert cluster.bootstrap_servers == before
    assert [record.value for record in cluster.consume(topic, 1)] == [b"kept"]


def test_racks_are_a_sequence_of_names() -> None:
    with pytest.raises(TypeError, match="racks is 'abc': expected a sequence of names"):
        ProcessCluster(3, racks="abc")


def test_unknown_brokers_are_named(cluster: ProcessCluster) -> None:
    with pytest.raises(BrokerError, match="there is no broker 3, expected 0 to 2"):
        cluster.broker(3)


def test_a_wrong_setting_is_reported_and_leaves_no_process() -> None:
    cluster = ProcessCluster(2, {"num.partitions": "x"})
    with pytest.raises(BrokerError, match=r"num\.partitions"):
        cluster.start()
    assert not any(cluster.broker(number).is_running for number in range(2))


PARENT = """
import os, signal
from milena_broker.testing import ProcessCluster

cluster = ProcessCluster(2).start()
print(cluster.folder, cluster.pid, *(cluster.broker(number).pid for number in range(2)), flush=True)
cluster.broker(1).pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_all_processes_are_gone_with_their_parent() -> None:
    parent = subprocess.run(
        [sys.executable, "-P", "-c", PARENT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    folder, *pids = parent.stdout.split()
    assert len(pids) == 3
    until(lambda: not Path(folder).exists() and not any(is_running(int(pid)) for pid in pids))


def test_brokers_are_objects_of_the_package(cluster: ProcessCluster) -> None:
    assert isinstance(cluster.broker(0), ClusterBroker)
    assert cluster.broker(0).log.exists()
