"""A source of two brokers, one of which goes away and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.connect.mirror import source_task
from tests.spark_jobs.connect.mirror.flows import DEADLINE_S, Flow, produce
from tests.support.broker import BrokerProcess
from tests.support.in_process import LISTENER
from tests.support.in_process_cluster import InProcessCluster, running_cluster
from tests.support.loop_thread import LoopThread, loop_thread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with loop_thread() as found:
        yield found


@pytest.fixture
def cluster(loop: LoopThread, tmp_path: Path) -> Iterator[InProcessCluster]:
    with loop.entered(running_cluster(tmp_path)) as found:
        yield found


def test_a_partition_without_a_leader_is_named_once_and_others_are_copied(
    loop: LoopThread,
    cluster: InProcessCluster,
    target: BrokerProcess,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_task, "STATISTICS_MS", 100)
    host, port = loop.call(lambda: cluster.services(1).metadata_cache.brokers[1].endpoints[LISTENER])
    bootstrap = f"{host}:{port}"
    with Flow(bootstrap, target.bootstrap) as flow:
        topic = flow.name("orders")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 2, replica_assignment=[[1], [2]])])[topic].result(DEADLINE_S)
        produce(bootstrap, topic, [b"of the other"], partition=1)
        loop.run(cluster.stop(2))
        produce(bootstrap, topic, [b"of the first"], partition=0)
        with flow.copying() as task:
            assert [record.value for record in task.copy(1)] == [b"of the first"]
            task.run(lambda: f"{topic}-1 has no leader: the task copies its other" in caplog.text, "it is reported")
            produce(bootstrap, topic, [b"later"], partition=0)
            assert [record.value for record in task.copy(1)] == [b"later"]
            loop.run(cluster.start(2))
            assert [record.value for record in task.copy(1)] == [b"of the other"]
        assert caplog.text.count(f"{topic}-1 has no leader: the task") == 1
        assert caplog.text.count(f"{topic}-1 has no leader at {flow.source_alias}") == 1
