"""`--zookeeper`: the commands of Kafka's older quick starts, with the output of those days."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from controller.zookeeper.security import ZooKeeperSecurity
from tests.support.broker import BrokerProcess
from tests.support.certificates import Stores
from tests.support.parts import skip_when_unavailable
from tests.support.processes import closed_port
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.conftest import Outcome, RunTool, run_module
from tools.admin import acls, configs, consumer_groups, leader_election, reassign_partitions, topics
from tools.legacy import preferred_replica_election
from tools.records import console_consumer
from tools.zookeeper.znode_trees import TreeUnavailableError

DEPRECATED = "WARNING: --zookeeper is deprecated. Use --bootstrap-server instead to specify a broker to connect to.\n"
CONSUMERS_MAX = 20
"""The first ones may end before the broker has its groups' topic, so that none of them becomes a member."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address, with chroot, at which one broker is registered."""
    folder = tmp_path_factory.mktemp("legacy")
    with skip_when_unavailable(), ZooKeeperProcess(folder / "zookeeper") as server:
        address = f"{server.connect}/kafka"
        with BrokerProcess(folder / "broker", {"zookeeper.connect": address}):
            yield address


def test_topics_are_printed_in_the_older_form(run: RunTool, zookeeper: str) -> None:
    at = ["--zookeeper", zookeeper]
    arguments = ["--create", "--replication-factor", "1", "--partitions", "1", "--topic", "test"]
    assert run(topics.main, *at, *arguments) == Outcome(0, 'Created topic "test".\n', DEPRECATED)
    assert run(topics.main, "--list", *at) == Outcome(0, "test\n", DEPRECATED)
    described = run(topics.main, "--describe", *at, "--topic", "test")
    assert described.stdout == (
        "Topic:test\tPartitionCount:1\tReplicationFactor:1\tConfigs:\n"
        "\tTopic: test\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\n"
    )
    altered = run(topics.main, "--alter", *at, "--topic", "test", "--partitions", "3")
    assert altered.stdout == (
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected\nAdding partitions succeeded!\n"
    )
    configured = run(topics.main, "--alter", *at, "--topic", "test", "--config", "retention.ms=1000")
    assert configured.stdout.endswith('Updated config for topic "test".\n')
    assert "Configs:retention.ms=1000\n" in run(topics.main, "--describe", *at, "--topic", "test").stdout
    removed = run(topics.main, "--alter", *at, "--topic", "test", "--delete-config", "retention.ms")
    assert removed.status == 0
    assert "Configs:\n" in run(topics.main, "--describe", *at, "--topic", "test").stdout
    deleted = run(topics.main, "--delete", *at, "--topic", "test")
    assert deleted.stdout == (
        "Topic test is marked for deletion.\n"
        "Note: This will have no impact if delete.topic.enable is not set to true.\n"
    )


def test_topic_whose_deletion_waits_is_listed_as_marked(run: RunTool, zookeeper: str) -> None:
    at = ["--zookeeper", zookeeper]
    for name, broker_id in (("waits", "0:77"), ("stays", "0")):
        assert run(topics.main, *at, "--create", "--topic", name, "--replica-assignment", broker_id).status == 0
    assert run(topics.main, *at, "--delete", "--topic", "waits").status == 0
    assert run(topics.main, "--list", *at, "--topic", "waits|stays").stdout == "stays\nwaits - marked for deletion\n"
    assert run(topics.main, "--list", *at, "--topic", "wait.*").stdout == "waits - marked for deletion\n"


def test_configurations_in_zookeeper_reach_the_running_broker(run: RunTool, zookeeper: str) -> None:
    at = ["--zookeeper", zookeeper]
    create = ["--create", "--replication-factor", "1", "--partitions", "1", "--topic", "configured"]
    assert run(topics.main, *at, *create).status == 0
    topic = ["--entity-type", "topics", "--entity-name", "configured"]
    altered = run(configs.main, *at, "--alter", "--add-config", "retention.ms=3600000", *topic)
    assert altered == Outcome(0, 'Updated config for topic: "configured".\n', DEPRECATED)
    described = run(configs.main, *at, "--describe", *topic)
    assert described == Outcome(0, "Configs for topics:configured are retention.ms=3600000\n", DEPRECATED)
    header = run(topics.main, *at, "--describe", "--topic", "configured").stdout.splitlines()[0]
    assert header.endswith("Configs:retention.ms=3600000")
    refused = run(configs.main, *at, "--alter", "--add-config", "background.threads=4", "--broker", "0")
    assert (refused.status, refused.stdout) == (1, "")
    assert "broker 0 is running" in refused.stderr
    stopped = run(configs.main, *at, "--alter", "--add-config", "background.threads=4", "--broker", "7")
    assert stopped.status == 0, stopped.stderr


def test_partitions_and_replicas_must_be_named_as_before(run: RunTool, zookeeper: str) -> None:
    outcome = run(topics.main, "--zookeeper", zookeeper, "--create", "--topic", "x", "--partitions", "1")
    assert outcome.status == 1
    assert outcome.stderr.startswith('Missing required argument "[replication-factor]"\n')


def test_reassignments_are_printed_in_the_older_form(run: RunTool, zookeeper: str, tmp_path: Path) -> None:
    at = ["--zookeeper", zookeeper]
    run(topics.main, *at, "--create", "--replication-factor", "1", "--partitions", "1", "--topic", "moved")
    (broker,) = (
        line.partition("Leader: ")[2].split("\t")[0]
        for line in run(topics.main, *at, "--describe", "--topic", "moved").stdout.splitlines()[1:]
    )
    plan = f'{{"version":1,"partitions":[{{"topic":"moved","partition":0,"replicas":[{broker}]}}]}}'
    file = tmp_path / "plan.json"
    file.write_text(plan)
    named = (*at, "--reassignment-json-file", str(file))
    started = run(reassign_partitions.main, "--execute", *named)
    assert started.stdout.endswith(f"Successfully started reassignment of partitions {plan}\n")
    verified = run(reassign_partitions.main, "--verify", *named)
    assert verified.stdout.splitlines()[1] == "Reassignment of partition [moved,0] completed successfully"
    file.write_text(plan.replace(f"[{broker}]", "[77]"))
    failed = run(reassign_partitions.main, "--verify", "--preserve-throttles", *named)
    assert failed.stdout.splitlines()[1] == "Reassignment of partition [moved,0] failed"


def test_preferred_replicas_are_elected_in_the_older_form(run: RunTool, zookeeper: str, tmp_path: Path) -> None:
    at = ["--zookeeper", zookeeper]
    run(topics.main, *at, "--create", "--replication-factor", "1", "--partitions", "2", "--topic", "elected")
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "elected", "partition": 1}]}')
    started = "Successfully started preferred replica election for partitions Set("
    outcome = run(preferred_replica_election.main, *at, "--path-to-json-file", str(file))
    assert (outcome.status, outcome.stdout) == (0, f"{started}[elected,1])\n")
    every = run(preferred_replica_election.main, *at)
    assert every.stdout.startswith(started)
    assert "[elected,0], [elected,1]" in every.stdout
    file.write_text('{"partitions": [{"topic": "nope", "partition": 0}]}')
    unknown = run(preferred_replica_election.main, *at, "--path-to-json-file", str(file))
    assert (unknown.status, unknown.stdout) == (1, f"{started})\n")
    assert "Preferred replica election of partition [nope,0] failed: " in unknown.stderr


def test_records_and_groups_are_reached_through_zookeeper(run: RunTool, zookeeper: str) -> None:
    at = ["--zookeeper", zookeeper]
    run(topics.main, *at, "--create", "--replication-factor", "1", "--partitions", "1", "--topic", "lines")
    consumer = ["records.console_consumer", *at, "--topic", "lines", "--from-beginning", "--timeout-ms", "500"]
    for _ in range(CONSUMERS_MAX):
        consumed = run_module(*consumer, "--group", "readers")
        assert "Processed a total of 0 messages" in consumed.stderr
        assert consumed.stderr.startswith(DEPRECATED)
        listed = run(consumer_groups.main, *at, "--list")
        if listed.stdout:
            break
    assert listed == Outcome(0, "readers\n", DEPRECATED)
    elected = run(leader_election.main, *at, "--election-type", "preferred", "--topic", "lines", "--partition", "0")
    assert elected == Outcome(0, "Valid replica already elected for partitions lines-0\n", DEPRECATED)
    older = run(preferred_replica_election.main, *at)
    assert older.status == 0
    assert "kafka-leader-election --election-type preferred" in older.stderr


def test_a_port_at_the_end_holds_for_all_hosts(run: RunTool, zookeeper: str) -> None:
    host_and_port, _, chroot = zookeeper.partition("/")
    host, _, port = host_and_port.partition(":")
    outcome = run(topics.main, "--zookeeper", f"{host},{host}:{port}/{chroot}", "--list")
    assert outcome.status == 0


def test_an_ensemble_that_is_not_there_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.zookeeper.znode_trees.REACH_TIMEOUT_S", 0.3)
    with closed_port() as port:
        outcome = run(topics.main, "--zookeeper", f"127.0.0.1:{port}", "--list")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert len(outcome.stderr.splitlines()) == 2  # with the warning about --zookeeper
    assert f"Unable to connect to ZooKeeper 127.0.0.1:{port}" in outcome.stderr
    assert outcome.stderr.endswith("If there is none, use --bootstrap-server\n")


def test_an_ensemble_without_brokers_is_named(run: RunTool, zookeeper: str) -> None:
    outcome = run(topics.main, "--zookeeper", zookeeper.partition("/")[0], "--list")
    assert outcome.status == 1
    assert "No brokers can be read from ZooKeeper" in outcome.stderr


@pytest.mark.parametrize("address", ["", "h:x", ",", "/chroot"])
def test_malformed_addresses_are_named(run: RunTool, address: str) -> None:
    outcome = run(topics.main, "--zookeeper", address, "--list")
    assert outcome.status == 1
    assert f"Invalid zookeeper '{address}': expected host:port,host:port/chroot" in outcome.stderr


def test_both_addresses_are_refused(run: RunTool, tmp_path: Path) -> None:
    outcome = run(topics.main, "--zookeeper", "z:1", "--bootstrap-server", "b:1", "--list")
    assert outcome.status == 1
    assert outcome.stderr.startswith('Option "[zookeeper]" can\'t be used with option "[bootstrap-server]"')


WITH_ZOOKEEPER = (
    acls, configs, console_consumer, consumer_groups, leader_election, preferred_replica_election, reassign_partitions,
    topics,
)  # fmt: skip


@pytest.mark.parametrize("tool", WITH_ZOOKEEPER, ids=lambda tool: tool.__name__)
def test_tools_with_zookeeper_take_its_tls_settings(tool: ModuleType) -> None:
    options = tool._command_line().parse(["--zookeeper", "z:1", "--zk-tls-config-file", "tls.properties"])
    assert options.zk_tls_config_file == "tls.properties"


def test_tls_settings_reach_the_connection(run: RunTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    used: list[ZooKeeperSecurity] = []

    def open_zookeeper(address: str, security: ZooKeeperSecurity) -> NoReturn:
        used.append(security)
        raise TreeUnavailableError(address)

    monkeypatch.setattr("tools.zookeeper.znode_trees.open_zookeeper", open_zookeeper)
    settings = tmp_path / "tls.properties"
    settings.write_text(
        f"zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.type=PEM\n"
        f"zookeeper.ssl.truststore.location={Stores(tmp_path / 'stores').ca}\n"
    )
    for file in ([], ["--zk-tls-config-file", str(settings)]):
        assert run(topics.main, "--zookeeper", "z:1", *file, "--list").status == 1
    assert [security.tls is not None for security in used] == [False, True]


def test_unreadable_tls_settings_are_named(run: RunTool) -> None:
    outcome = run(topics.main, "--zookeeper", "z:1", "--zk-tls-config-file", "missing.properties", "--list")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "Cannot read missing.properties: No such file or directory" in outcome.stderr
