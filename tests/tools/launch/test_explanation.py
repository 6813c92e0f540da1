"""kafka-check --explain: one paragraph about a broker that does not start or a client that is stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.broker import BrokerProcess
from tests.support.processes import closed_port
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.launch import check, explanation

Explain = Callable[..., str]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker runs from this clone, whatever else does."""
    monkeypatch.setattr(explanation, "running_brokers", list)


def explained(outcome: Outcome, status: int = 1) -> str:
    """Return the paragraph as one line."""
    assert (outcome.status, outcome.stderr) == (status, "")
    return " ".join(outcome.stdout.split())


def settings_file(folder: Path, **changes: str) -> Path:
    path = folder / "server.properties"
    settings = {"broker.id": "7", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder / "data")}
    settings |= {key.replace("_", "."): value for key, value in changes.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def start_of(run: RunTool, path: Path, status: int = 1) -> str:
    return explained(run(check.main, "--config", str(path), "--explain"), status)


def test_start_without_an_obstacle_is_the_next_command(run: RunTool, tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    assert start_of(run, path, 0).endswith(f"Next: kafka-server-start {path}")


def test_wrong_setting_is_named(run: RunTool, tmp_path: Path) -> None:
    path = settings_file(tmp_path, num_partitions="many")
    said = start_of(run, path)
    assert "Invalid value many for configuration num.partitions" in said
    assert said.endswith(f"Correct the file. Next: kafka-server-start --check {path}")


def test_store_that_cannot_be_read_is_named(run: RunTool, tmp_path: Path) -> None:
    path = settings_file(tmp_path, listeners="SSL://127.0.0.1:0", security_inter_broker_protocol="SSL")
    path.write_text(path.read_text() + "ssl.keystore.location=/no/such\nssl.keystore.type=PEM\n")
    assert "cannot read the PEM store /no/such" in start_of(run, path)


def test_log_directory_below_a_file_is_named(run: RunTool, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = start_of(run, settings_file(tmp_path, log_dirs=str(tmp_path / "file" / "data")))
    assert f"cannot be created: {tmp_path / 'file'} is a file. Next: ls -l" in said


def test_address_and_log_directory_in_use_are_named(run: RunTool, tmp_path: Path, broker: BrokerProcess) -> None:
    said = start_of(run, settings_file(tmp_path, log_dirs=str(broker.log_dir)))
    assert f"The log directory {broker.log_dir} is in use by a broker that runs already" in said
    assert said.endswith("Next: kafka-server-stop --wait")
    said = start_of(run, settings_file(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{broker.port}"))
    assert f"The address 127.0.0.1:{broker.port} of listener PLAINTEXT is in use by another process." in said
    assert said.endswith(f"Next: ss -ltnp 'sport = :{broker.port}'")


def test_zookeeper_that_does_not_run_is_named(run: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "CONNECT_TIMEOUT_S", 0.1)
    with closed_port() as port:
        said = start_of(run, settings_file(tmp_path, zookeeper_connect=f"127.0.0.1:{port}/chroot"))
    assert f"No ZooKeeper server of zookeeper.connect=127.0.0.1:{port}/chroot accepts connections." in said


def client_of(run: RunTool, port: int, *arguments: str, status: int = 1) -> str:
    at = ("--bootstrap-server", f"127.0.0.1:{port}")
    return explained(run(check.main, *at, *arguments, "--explain"), status)


def test_closed_port_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.client.admin_client.REACH_TIMEOUT_S", 0.1)
    with closed_port() as port:
        said = client_of(run, port)
    assert said.startswith(f"No broker at 127.0.0.1:{port}: Connection refused. Does it run at this address?")
    assert said.endswith("No broker runs from this installation. Next: kafka-server-start")


def test_missing_topic_and_idle_group_are_named(run: RunTool, broker: BrokerProcess) -> None:
    client: dict[str, str | int | float | bool | None] = {"bootstrap.servers": broker.bootstrap}
    producer = confluent_kafka.Producer(client)
    producer.produce("explained", b"x")
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**client, "group.id": "explained"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("explained", 0, 0)], asynchronous=False)
    consumer.close()
    at = f"--bootstrap-server 127.0.0.1:{broker.port}"
    assert client_of(run, broker.port, "--topic", "nosuch").endswith(f"Next: kafka-topics {at} --create --topic nosuch")
    assert "The group nosuch does not exist" in client_of(run, broker.port, "--group", "nosuch")
    assert "The group explained has no members" in client_of(run, broker.port, "--group", "explained")
    assert "The brokers respond" in client_of(run, broker.port, "--topic", "explained", status=0)


def test_partition_without_leader_and_wrong_advertised_address_are_named(
    run: RunTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "CONNECT_TIMEOUT_S", 0.1)
    leaderless = MetadataResponsePartition(partition_index=0, leader_id=-1, replica_nodes=[], isr_nodes=[])
    topics = [MetadataResponseTopic(name="t", partitions=[leaderless])]
    with closed_port() as closed, ScriptedBroker(lambda request: responses.pop(0)) as broker:
        responses = [
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=3, host="127.0.0.1", port=port)], controller_id=3, topics=topics
            )
            for port in (closed, broker.port)
        ]
        said = client_of(run, broker.port, "--topic", "t")
        assert f"Broker 3 tells its clients to connect to 127.0.0.1:{closed}" in said
        assert "Set advertised.listeners" in said
        assert "1 of 1 partitions of t have no leader" in client_of(run, broker.port, "--topic", "t")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--explain",), "--explain needs --config of a broker, or --bootstrap-server of a client"),
        (("--topic", "t"), "--topic is for --explain"),
        (("--explain", "--config", "f", "--topic", "t"), 'Option "[config]" can\'t be used with option "[topic]"'),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(run: RunTool, arguments: tuple[str, ...], said: str) -> None:
    outcome = run(check.main, *arguments)
    assert outcome.status == 1
    assert outcome.stderr.splitlines()[0] == said
