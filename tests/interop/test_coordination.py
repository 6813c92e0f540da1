"""Brokers of Apache Kafka 3.9.1 with the coordination server in ZooKeeper's place, through kills and its restart."""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.support.apache_kafka import ApacheKafkaProcess
from tests.support.coordination import coordination_in_memory
from tests.support.parts import skip_when_unavailable
from tests.support.waiting import wait_until

TIMEOUT_S = 30.0
RECORDS = 300
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "controlled.shutdown.retry.backoff.ms": "100",
}

until = partial(wait_until, timeout_s=TIMEOUT_S)


@pytest.mark.soak
def test_brokers_of_kafka_use_the_coordination_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with coordination_in_memory() as server, skip_when_unavailable():
        brokers = [
            ApacheKafkaProcess(
                tmp_path / f"{number}", server.connect, broker_id=number, broker_count=number + 1, overrides=SETTINGS
            )
            for number in range(2)
        ]
        try:
            for broker in brokers:
                broker.start()
            nodes = KazooClient(server.connect)
            nodes.start()
            bootstrap = ",".join(broker.bootstrap for broker in brokers)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic("numbers", 4)])["numbers"].result(TIMEOUT_S)
            _produce(bootstrap, range(RECORDS))

            server.stop()
            _produce(bootstrap, range(RECORDS, 2 * RECORDS))  # brokers serve without it, but would give no producer ids
            server.start()
            controller = json.loads(nodes.get("/controller")[0])["brokerid"]
            assert sorted(nodes.get_children("/brokers/ids")) == ["0", "1"], "their sessions have survived"

            brokers[controller].kill()
            until(lambda: nodes.get_children("/brokers/ids") == [str(1 - controller)])
            until(lambda: _leaders(nodes) == {1 - controller})
            _produce(bootstrap, range(2 * RECORDS, 3 * RECORDS))
            brokers[controller].start()
            assert json.loads(nodes.get("/controller")[0])["brokerid"] == 1 - controller
            admin = AdminClient({"bootstrap.servers": bootstrap})  # the first one knows the former controller
            admin.create_topics([NewTopic("after", 2)])["after"].result(TIMEOUT_S)
            admin.delete_topics(["after"])["after"].result(TIMEOUT_S)
            until(lambda: nodes.exists("/brokers/topics/after") is None)
            assert _consume(bootstrap, 3 * RECORDS) == list(range(3 * RECORDS))
            nodes.stop()
            nodes.close()
        finally:
            for broker in reversed(brokers):
                broker.stop()
    assert "does not have" not in caplog.text, "Kafka asks for nothing that the server refuses"


def _leaders(nodes: KazooClient) -> set[int]:
    paths = [f"/brokers/topics/numbers/partitions/{index}/state" for index in range(4)]
    return {json.loads(nodes.get(path)[0])["leader"] for path in paths}


def _produce(bootstrap: str, numbers: range) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in numbers:
        producer.produce("numbers", str(number), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def _consume(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["numbers"])
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [int(message.value()) for message in consumer.consume(count, 0.5) if not message.error()]
    consumer.close()
    return sorted(found)
