"""docs/data-centres.md: what it says of a stretched cluster and of names with several addresses.

tests/spark_jobs/test_data_centres.py runs the commands of its sections before, which mirror.
"""

from __future__ import annotations

import gc
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from milena_broker.testing import Broker, ProcessCluster
from tests.docs.console_blocks import ROOT, blocks, run
from tools.admin import topics

PAGE = ROOT / "docs" / "data-centres.md"
STRETCHED = PAGE.read_text(encoding="utf-8").partition("\n## One stretched cluster")[2].partition("\n## ")[0]
SITES = ("dc1", "dc2", "dc3")
COUNT = 60
PATIENCE_S = 30


def settings() -> Iterator[tuple[str, str]]:
    """Yield the settings of the section that are those of all sites."""
    for line in re.findall(r"```properties\n(.*?)```", STRETCHED, re.DOTALL)[0].splitlines():
        name, _, value = line.partition("=")
        if name != "broker.rack":
            yield name, value


def send(bootstrap: str, first: int) -> None:
    """Send numbers with acks=all; each of them is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    failed: list[object] = []
    for number in range(first, first + COUNT):
        producer.produce("payments", str(number), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def test_any_site_of_a_stretched_cluster_may_fail(tmp_path: Path) -> None:
    """Two brokers at each of three sites; the site with the leader of the first partition fails."""
    with ProcessCluster(6, dict(settings()), racks=SITES) as cluster:
        for commands in blocks(STRETCHED):
            printed = [run(it.line, tmp_path, {"stretched": cluster.bootstrap_servers}) for it in commands]
        replicas = re.findall(r"Replicas: ([\d,]+)", printed[1])
        assert len(replicas) == 6
        for each in replicas:
            assert {SITES[int(broker_id) % 3] for broker_id in each.split(",")} == set(SITES)
        assert printed[2] == "", "every partition can lose a site"
        send(cluster.bootstrap_servers, 0)
        site = cluster.leader_of("payments").broker_id % 3
        for broker_id in (site, site + 3):
            cluster.broker(broker_id).kill()
        send(cluster.bootstrap_servers, COUNT)
        found = sorted(int(record.value or b"") for record in cluster.consume("payments", 2 * COUNT))
        assert found == list(range(2 * COUNT))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as started:
        yield started


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python leaves those of dead addresses
def test_clients_find_the_cluster_by_the_one_address_of_a_name_that_lives(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of the three addresses belong to brokers that are dead: nothing listens there."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    look_up = socket.getaddrinfo

    def look_up_name(host: Any, service: Any, *arguments: Any, **options: Any) -> Any:
        if host != "kafka.dc1.example":
            return look_up(host, service, *arguments, **options)
        addresses = ("127.0.0.2", "127.0.0.3", "127.0.0.1")
        return [found for each in addresses for found in look_up(each, service, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up_name)
    bootstrap = f"kafka.dc1.example:{port}"
    assert topics.main(["--bootstrap-server", bootstrap, "--list"]) == 0
    assert capsys.readouterr().out == "t\n"
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    assert producer.send("t", b"found").get(PATIENCE_S).offset >= 0
    producer.close()
    gc.collect()  # of those sockets now, and not in a later test


def test_clients_find_the_cluster_by_the_one_address_of_a_list_that_lives(broker: Broker) -> None:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    servers = {"bootstrap.servers": f"127.0.0.2:{port},127.0.0.3:{port},127.0.0.1:{port}", "log_level": 0}
    assert "t" in AdminClient(servers).list_topics(timeout=PATIENCE_S).topics
    producer = Producer(servers)
    producer.produce("t", b"listed")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message.value() in (b"found", b"listed")
