"""Share groups (KIP-932) in a cluster: the share consumers of Java 4.1 and librdkafka, while leaders move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from broker.cluster.metadata_cache import MetadataCache
from broker.share.machine.records import ShareKey, text_of
from tests.broker.coordination.test_moved_coordinators import coordinator_of
from tests.interop.conftest import RunJava
from tests.support.in_process import LISTENER
from tests.support.in_process_cluster import InProcessCluster, running_cluster
from tests.support.loop_thread import LoopThread, loop_thread
from tests.support.waiting import wait_until

BROKERS = (1, 2, 3)
SETTINGS = {
    "group.coordinator.rebalance.protocols": "classic,share",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "50",
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "3",
    "replica.fetch.wait.max.ms": "20",
    "replica.lag.time.max.ms": "2000",
}
PATIENCE_S = 30


class Running:
    """A cluster in a thread of its own."""

    def __init__(self, thread: LoopThread, cluster: InProcessCluster) -> None:
        self.thread, self.cluster = thread, cluster

    @property
    def metadata(self) -> MetadataCache:
        return self.cluster.services(min(self.cluster.brokers)).metadata_cache

    @property
    def bootstrap(self) -> str:
        return ",".join("{}:{}".format(*each.endpoints[LISTENER]) for each in self.metadata.brokers.values())

    def coordinator(self, key: str, key_type: int) -> int:
        return self.thread.run(coordinator_of(self.cluster, key, key_type))

    def stop(self, broker_id: int) -> None:
        self.thread.run(self.cluster.stop(broker_id))

    def start(self, broker_id: int) -> None:
        self.thread.run(self.cluster.start(broker_id))
        self.thread.run(self.cluster.see_each_other())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        loop_thread() as thread,
        thread.entered(running_cluster(tmp_path_factory.mktemp("share"), BROKERS, SETTINGS)) as cluster,
    ):
        yield Running(thread, cluster)


def create(running: Running, name: str, partitions: int) -> None:
    """Create a topic, and a group of its name that begins with the first record."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, partitions, len(BROKERS))])[name].result(PATIENCE_S)
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def fill(running: Running, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


def test_share_consumers_of_java(running: Running, run_java: RunJava) -> None:
    create(running, "java", 1)
    fill(running, "java", range(9))
    assert run_java("ShareGroup", running.bootstrap, "java", "java", 9, version="4.1.0") == [
        "first: 9, delivery 1",
        "stored: yes",
        "again: [1, 4, 7], delivery 2",
        "described: Stable, [[java-0]]",
        "listed: Share Empty",
        "begins at: [9]",
        "moved to: [1]",
        "after the move: [1, 2, 3, 4, 5, 6, 7, 8]",
        "forgotten: []",
        "left: 0",
    ]


def test_members_go_on_while_leaders_and_coordinators_move(running: Running) -> None:
    topic = "moves"
    create(running, topic, 3)
    consumer = ShareConsumer(
        {"bootstrap.servers": running.bootstrap, "group.id": topic, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    accepted: Counter[int] = Counter()
    written = 0

    def read_all() -> bool:
        got = [message for message in consumer.poll(0.1) or () if message.error() is None]
        for message in got:
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        stored = consumer.commit_sync() if got else {}
        failed = {(each.topic, each.partition) for each, error in stored.items() if error is not None}
        accepted.update(int(m.value() or b"") for m in got if (m.topic(), m.partition()) not in failed)
        return len(accepted) == written

    def roles() -> Iterator[int]:
        yield running.metadata.leader_of(topic, 0)
        state = ShareKey(topic, running.metadata.topics[topic].topic_id, 0)
        yield running.coordinator(text_of(state), 2)
        yield running.coordinator(topic, 0)

    for broker_id in roles():
        fill(running, topic, range(written, written := written + 20))
        wait_until(read_all, f"{written} records before a move", interval_s=0)
        running.stop(broker_id)
        fill(running, topic, range(written, written := written + 20))
        wait_until(read_all, f"{written} records after a move", interval_s=0)
        running.start(broker_id)
    consumer.close()
    assert set(accepted.values()) == {1}, "nothing that was acknowledged is delivered again"
