"""The quick starts of Kafka's documentation, typed as printed: of 0.8, 2.x and 3.9.

Only addresses and ports are replaced, so that the tests run beside other servers. Where a quick start runs ZooKeeper,
the broker's file needs the setting `zookeeper.connect`, which Kafka's sample has and Milena's has not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.terminal import Terminal

STARTED = ("This is my first event", "This is my second event")


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_quick_start_of_3_9(terminal: Terminal) -> None:
    cluster_id = terminal.type("bin/kafka-storage.sh random-uuid")[0]
    terminal.type(
        f"KAFKA_CLUSTER_ID={cluster_id}; "
        "bin/kafka-storage.sh format --standalone -t $KAFKA_CLUSTER_ID -c config/kraft/reconfig-server.properties"
    )
    with terminal.running("bin/kafka-server-start.sh config/kraft/reconfig-server.properties"):
        assert terminal.type(
            "bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092"
        ) == ["Created topic quickstart-events."]
        described = terminal.type(
            "bin/kafka-topics.sh --describe --topic quickstart-events --bootstrap-server localhost:9092"
        )
        assert described[0].startswith("Topic: quickstart-events\tTopicId: ")
        assert described[1].startswith("\tTopic: quickstart-events\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1")
        terminal.type(
            "bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092", STARTED
        )
        consumer = (
            "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092"
        )
        assert terminal.type_and_interrupt(consumer, 2) == list(STARTED)
        assert terminal.type("bin/kafka-cluster.sh cluster-id --bootstrap-server localhost:9092") == [
            f"Cluster ID: {cluster_id}"
        ]


def test_quick_start_of_2_x(terminal: Terminal) -> None:
    with terminal.running("bin/kafka-server-start.sh config/server.properties"):
        terminal.type(
            "bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --replication-factor 1 --partitions 1 "
            "--topic test"
        )
        assert terminal.type("bin/kafka-topics.sh --list --bootstrap-server localhost:9092") == ["test"]
        sent = ["This is a message", "This is another message"]
        terminal.type("bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test", sent)
        consumer = "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic test --from-beginning"
        assert terminal.type_and_interrupt(consumer, 2) == sent


def test_quick_start_of_0_8(terminal: Terminal, tmp_path: Path) -> None:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        terminal.addresses["localhost:2181"] = zookeeper.connect
        with terminal.running(
            "bin/kafka-server-start.sh config/server.properties", f"zookeeper.connect={zookeeper.connect}"
        ):
            created = terminal.type(
                "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 "
                "--topic test"
            )
            assert created == ['Created topic "test".']
            assert terminal.type("bin/kafka-topics.sh --list --zookeeper localhost:2181") == ["test"]
            sent = ["This is a message", "This is another message"]
            terminal.type("bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test", sent)
            consumer = "bin/kafka-console-consumer.sh --zookeeper localhost:2181 --topic test --from-beginning"
            assert terminal.type_and_interrupt(consumer, 2) == sent
            described = terminal.type("bin/kafka-topics.sh --describe --zookeeper localhost:2181 --topic test")
            assert described == [
                "Topic:test\tPartitionCount:1\tReplicationFactor:1\tConfigs:",
                "\tTopic: test\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0",
            ]
