"""docs/security.md: a running cluster is secured in phases, while a producer writes to it without a pause."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.load import NumberedLoad, assert_exactly_once, read_topic
from tests.docs.console_blocks import ROOT, blocks, run
from tests.support.broker import BrokerProcess
from tests.support.coordination import coordination_in_memory
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Secure a running cluster")[2].partition("\n## ")[0]
ADMIN_FILE = re.findall(r"# (secured/admin\.properties)\n(.*?) *```", PAGE, re.DOTALL)[0]
TOPIC, PARTITIONS, BROKERS = "orders", 2, 2
PATIENCE_S = 60.0
SETTINGS = {
    "default.replication.factor": str(BROKERS),
    "replica.fetch.wait.max.ms": "100",
    "controlled.shutdown.retry.backoff.ms": "200",
    "auto.create.topics.enable": "false",
}


def properties_of(phase: int) -> dict[str, str]:
    """Return the settings that the page shows for a phase."""
    (text,) = re.findall(rf"# phase {phase}\n(.*?) *```", SECTION, re.DOTALL)
    lines = text.replace("\\\n", " ").splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


class PhasedCluster:
    """Two brokers, whose settings change phase by phase."""

    def __init__(self, folder: Path, connect: str) -> None:
        self.folder = folder
        ports = free_ports(2 * BROKERS)
        self.ports = [*zip(ports[::2], ports[1::2], strict=True)]
        """Of each broker: the port of its open and of its secured listener."""
        own = {**SETTINGS, "zookeeper.connect": connect}
        self._brokers = [
            BrokerProcess(
                folder / f"broker-{number}",
                {**own, "listeners": f"PLAINTEXT://localhost:{port}"},
                port=port,
                broker_id=number,
            )
            for number, (port, _) in enumerate(self.ports)
        ]

    def bootstrap(self, listener: int) -> str:
        return ",".join(f"localhost:{ports[listener]}" for ports in self.ports)

    def __enter__(self) -> Self:
        for broker in self._brokers:
            broker.spawn()
        for broker in self._brokers:
            broker.wait_until_ready()
        return self

    def __exit__(self, *exception: object) -> None:
        for broker in self._brokers:
            broker.stop()

    def command(self, line: str) -> str:
        return run(self._placed(line, 0), self.folder, {})

    def _placed(self, text: str, broker: int) -> str:
        """Replace the addresses and the folder of the page by those of a broker."""
        plain, secured = self.ports[broker]
        text = text.replace("host1:9092", f"localhost:{plain}").replace("host1:9093", f"localhost:{secured}")
        return re.sub("^secured/", f"{self.folder}/secured/", text)

    def roll(self, phase: int, login: Mapping[str, Any]) -> None:
        """Restart each broker with the settings of a phase, after which it serves this login; wait for its replicas."""
        for number, broker in enumerate(self._brokers):
            broker.overrides.update({name: self._placed(value, number) for name, value in properties_of(phase).items()})
            broker.stop()
            broker.spawn()
            self.wait_until_in_sync({"bootstrap.servers": f"localhost:{self.ports[number][1]}", **login})

    def wait_until_in_sync(self, client: Mapping[str, Any]) -> None:
        admin = AdminClient({**client, "log_level": 0, "reconnect.backoff.max.ms": 200})
        wait_until(lambda: _is_in_sync(admin), "all replicas are in sync", timeout_s=PATIENCE_S)


def _is_in_sync(admin: AdminClient) -> bool:
    try:
        metadata = admin.list_topics(TOPIC, timeout=2)
    except KafkaException:
        return False
    partitions = metadata.topics[TOPIC].partitions.values()
    return len(partitions) == PARTITIONS and all(len(each.isrs) == BROKERS for each in partitions)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PhasedCluster]:
    with coordination_in_memory() as coordination, PhasedCluster(tmp_path, coordination.connect) as running:
        yield running


def login(folder: Path, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(folder / "secured" / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_cluster_is_secured_in_phases_without_a_pause(cluster: PhasedCluster) -> None:
    folder = cluster.folder
    certificates, add_user, add_acls = blocks(SECTION)
    admin, alice = login(folder, "PLAIN", "admin", "change-me"), login(folder, "SCRAM-SHA-512", "alice", "alice-secret")
    cluster.command(certificates[0].line)
    name, content = ADMIN_FILE
    (folder / name).write_text("".join(f"{line.strip()}\n" for line in content.splitlines()))
    client = AdminClient({"bootstrap.servers": cluster.bootstrap(0)})
    client.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS), NewTopic("other", 1, BROKERS)])[TOPIC].result(
        PATIENCE_S
    )
    cluster.wait_until_in_sync({"bootstrap.servers": cluster.bootstrap(0)})

    with NumberedLoad(cluster.bootstrap(0), TOPIC, PARTITIONS) as before:
        cluster.roll(1, admin)
        before.wait_for(50)
        cluster.command(add_user[0].line)
    with NumberedLoad(cluster.bootstrap(1), TOPIC, PARTITIONS, first=before.sent, settings=alice) as after:
        cluster.roll(3, admin)
        after.wait_for(50)
        cluster.command(add_acls[0].line)
        after.wait_for(50)
        cluster.roll(4, admin)
        after.wait_for(50)
    after.acknowledged |= before.acknowledged
    group = {**alice, "group.id": "orders-app"}
    assert_exactly_once(after, read_topic(cluster.bootstrap(1), TOPIC, PARTITIONS, settings=group))

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.ports[0][0]), 5)
    refused: list[object] = []
    producer = Producer({**alice, "bootstrap.servers": cluster.bootstrap(1)})
    producer.produce("other", b"1", on_delivery=lambda error, _: refused.append(error.name()))
    producer.flush(PATIENCE_S)
    assert refused == ["TOPIC_AUTHORIZATION_FAILED"]
