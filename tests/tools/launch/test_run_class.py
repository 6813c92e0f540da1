"""kafka-run-class: Java names of tools."""

from importlib import import_module

import pytest

from tests.tools.conftest import RunTool
from tools.launch import run_class


@pytest.mark.parametrize(
    "name",
    [
        "kafka.Kafka",
        "kafka.admin.TopicCommand",
        "org.apache.kafka.tools.TopicCommand",
        "kafka.admin.ConfigCommand",
        "kafka.admin.ConsumerGroupCommand",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "kafka.tools.ConsoleProducer",
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka.tools.DumpLogSegments",
        "kafka.tools.GetOffsetShell",
        "org.apache.kafka.tools.GetOffsetShell",
        "kafka.admin.DeleteRecordsCommand",
        "kafka.admin.LogDirsCommand",
        "org.apache.kafka.tools.LogDirsCommand",
        "org.apache.kafka.tools.TransactionsCommand",
        "org.apache.zookeeper.ZooKeeperMain",
        "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    ],
)
def test_tools_run_by_their_java_class_name(run: RunTool, name: str) -> None:
    outcome = run(run_class.main, name, "--version")
    assert outcome.status == 0
    assert outcome.stdout.splitlines()[0] == "3.9.1 (Commit:f745dfdcee2b9851)"


@pytest.mark.parametrize("name", ["kafka.admin.NoSuchCommand", "com.example.TopicCommand", "TopicCommand"])
def test_unknown_class_is_reported(run: RunTool, name: str) -> None:
    outcome = run(run_class.main, name)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert f"Could not find or load main class {name}" in outcome.stderr


@pytest.mark.parametrize(("name", "launcher"), run_class.MISSING.items())
def test_class_of_a_missing_tool_names_what_to_use_instead(run: RunTool, name: str, launcher: str) -> None:
    outcome = run(run_class.main, name, "--help")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"{launcher} is missing: ")
    assert "Use instead: " in outcome.stderr


def test_missing_class_is_reported(run: RunTool) -> None:
    outcome = run(run_class.main)
    assert outcome.status == 1
    assert outcome.stderr.startswith("USAGE: kafka-run-class")


@pytest.mark.parametrize("module", run_class.TOOLS.values())
def test_every_class_name_has_a_module(module: str) -> None:
    name, _, function = module.partition(":")
    assert callable(getattr(import_module(name), function or "main"))
