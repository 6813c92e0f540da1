"""Transactions while brokers fail: a copy with read_committed input and output copies each record exactly once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.conftest import PARTITIONS, create_topic
from tests.cluster.copier import BATCH, Copier
from tests.cluster.load import NumberedLoad, numbers_of, read_topic
from tests.support.cluster import Cluster
from tools.client.admin_client import TRANSACTION, AdminClient
from tools.client.bootstrap import Endpoint

RECORDS = 600


def transaction_coordinator(cluster: Cluster, transactional_id: str) -> int:
    endpoints = [Endpoint("127.0.0.1", cluster.brokers[broker_id].port) for broker_id in cluster.running]
    with AdminClient(endpoints) as client:
        return client.coordinator(transactional_id, TRANSACTION)


def kill_the_coordinator(cluster: Cluster, copier: Copier, target: str, group: str) -> None:
    broker_id = transaction_coordinator(cluster, group)
    cluster.kill(broker_id)
    copier.run(copier.copied + 2 * BATCH)
    cluster.start(broker_id)


def kill_the_leader(cluster: Cluster, copier: Copier, target: str, group: str) -> None:
    leader = cluster.leader(target)
    cluster.kill(leader)
    copier.run(copier.copied + 2 * BATCH)
    cluster.start(leader)


def halt_the_coordinator(cluster: Cluster, copier: Copier, target: str, group: str) -> None:
    with cluster.halted(transaction_coordinator(cluster, group)):
        copier.run(copier.copied + 2 * BATCH)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(kill_the_coordinator, id="coordinator-killed"),
        pytest.param(kill_the_leader, id="leader-killed", marks=pytest.mark.soak),
        pytest.param(halt_the_coordinator, id="coordinator-halted", marks=pytest.mark.soak),
    ],
)
def test_copy_contains_each_record_once(
    cluster: Cluster, topic: str, group: str, failure: Callable[[Cluster, Copier, str, str], None]
) -> None:
    target = create_topic(cluster)
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, rate=2000) as load:
        load.wait_for(RECORDS)
    with Copier(cluster.bootstrap, topic, target, group, PARTITIONS) as copier:
        copier.run(2 * BATCH)
        failure(cluster, copier, target, group)
        cluster.heal(topic, target)
        total = len(numbers_of(read_topic(cluster.bootstrap, topic, PARTITIONS)))
        copier.run(total)
    copied = read_topic(cluster.bootstrap, target, PARTITIONS, isolation="read_committed")
    assert numbers_of(copied) == list(range(total))
