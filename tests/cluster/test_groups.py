"""Consumer groups while brokers fail: positions are kept, and every record is consumed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.errors import KafkaError
from tests.cluster.conftest import PARTITIONS
from tests.cluster.group_reader import CONSUMED, GroupReader
from tests.cluster.load import CONSUMER_SETTINGS, NumberedLoad, read_topic
from tests.support.cluster import Cluster
from tests.support.waiting import wait_until
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import Endpoint

DEADLINE_S = 60.0
DUPLICATES_MAX = 1_000
"""Of a rolling restart of consumers (RV-6)."""
OFFSETS_TOPIC = "__consumer_offsets"


def coordinator(cluster: Cluster, group: str) -> int:
    """Return the id of the group's coordinator: the leader of its partition of the offsets topic."""
    endpoints = [Endpoint("127.0.0.1", cluster.brokers[broker_id].port) for broker_id in cluster.running]
    with AdminClient(endpoints) as client:
        return client.coordinator(group)


def wait_for_another_coordinator(cluster: Cluster, group: str, broker_id: int) -> None:
    """Wait until the group has another coordinator: records that the reader had fetched before prove nothing."""

    def has_moved() -> bool:
        try:
            return coordinator(cluster, group) != broker_id
        except KafkaError:  # none is available yet
            return False

    cluster.wait_until(has_moved, f"another broker than {broker_id} coordinates {group}")


def kill_the_coordinator(cluster: Cluster, group: str, reader: GroupReader) -> None:
    broker_id = coordinator(cluster, group)
    cluster.kill(broker_id)
    reader.wait_for(100)
    wait_for_another_coordinator(cluster, group, broker_id)
    cluster.start(broker_id)


def halt_the_coordinator(cluster: Cluster, group: str, reader: GroupReader) -> None:
    broker_id = coordinator(cluster, group)
    with cluster.halted(broker_id):
        reader.wait_for(100)
        wait_for_another_coordinator(cluster, group, broker_id)


def stop_the_coordinator(cluster: Cluster, group: str, reader: GroupReader) -> None:
    cluster.restart(coordinator(cluster, group))


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(kill_the_coordinator, id="coordinator-killed"),
        pytest.param(halt_the_coordinator, id="coordinator-halted"),
        pytest.param(stop_the_coordinator, id="coordinator-stopped"),
    ],
)
def test_positions_are_kept_and_everything_is_consumed(
    cluster: Cluster, topic: str, group: str, failure: Callable[[Cluster, str, GroupReader], None]
) -> None:
    with GroupReader(cluster.bootstrap, group, topic) as reader:
        with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
            reader.wait_for(50)
            failure(cluster, group, reader)
            cluster.heal(topic, OFFSETS_TOPIC)
            reader.wait_for(50)
        reader.wait_for_all(load.acknowledged)
    assert reader.went_back == []
    assert committed_offsets(cluster, group, topic) == {
        partition: len(pairs) for partition, pairs in read_topic(cluster.bootstrap, topic, PARTITIONS).items()
    }


def test_rolled_producers_and_consumers_lose_nothing(cluster: Cluster, topic: str, group: str) -> None:
    """Each of two members, and the producer, are replaced by others one after another, under load."""
    running, left = [GroupReader(cluster.bootstrap, group, topic) for _ in range(2)], []
    acknowledged: dict[int, tuple[int, int]] = {}
    with ExitStack() as stack:
        for reader in running:
            stack.enter_context(reader)
        for _ in range(2):
            with NumberedLoad(cluster.bootstrap, topic, PARTITIONS, first=len(acknowledged)) as load:
                leaving = running.pop(0)
                leaving.__exit__()
                left.append(leaving)
                running.append(stack.enter_context(GroupReader(cluster.bootstrap, group, topic)))
                running[-1].wait_for(20)
            acknowledged |= load.acknowledged
        wait_until(
            lambda: {number for it in (*left, *running) for number in it.numbers} >= acknowledged.keys(),
            CONSUMED,
            timeout_s=DEADLINE_S,
            interval_s=0.05,
        )
    numbers = [number for it in (*left, *running) for number in it.numbers]
    assert set(numbers) == acknowledged.keys()
    assert len(numbers) - len(acknowledged) <= DUPLICATES_MAX
    assert not [text for it in (*left, *running) for text in it.went_back]


def committed_offsets(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({**CONSUMER_SETTINGS, "bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        # A partition without a commit has a negative offset.
        return {found.partition: max(found.offset, 0) for found in consumer.committed(wanted, timeout=DEADLINE_S)}
    finally:
        consumer.close()
