"""kafka-reassign-partitions with one broker, whose replicas can only move between its log directories, and its errors.

The texts are those that Apache Kafka's tool printed with the same files. tests/cluster moves replicas between brokers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import configs, reassign_partitions

TIMEOUT_S = 20
USAGE = "This tool helps to move topic partitions"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with two log directories."""
    folder = tmp_path_factory.mktemp("reassign")
    with BrokerProcess(folder, {"log.dirs": f"{folder}/one,{folder}/two"}) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z]", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce(name, str(number).encode(), partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture
def reassign(broker: BrokerProcess, run: RunTool, tmp_path: Path) -> RunTool:
    """Runs the tool with a plan as the last argument: a list of partitions, the text of a file, or None."""

    def run_reassign(*arguments: str, plan: object = None) -> Outcome:
        given = ["--bootstrap-server", broker.bootstrap, *arguments]
        if plan is not None:
            path = tmp_path / "plan.json"
            path.write_text(plan if isinstance(plan, str) else json.dumps({"version": 1, "partitions": plan}))
            given += ["--reassignment-json-file", str(path)]
        return run(reassign_partitions.main, *given)

    return run_reassign


def partition(topic: str, index: int, *replicas: int, log_dirs: list[str] | None = None) -> dict[str, object]:
    found: dict[str, object] = {"topic": topic, "partition": index, "replicas": list(replicas)}
    return found if log_dirs is None else {**found, "log_dirs": log_dirs}


def folder_of(broker: BrokerProcess, topic: str, index: int) -> str:
    (found,) = (path for path in broker.folder.glob(f"*/{topic}-{index}"))
    return str(found.parent)


def test_generate_prints_the_current_and_a_proposed_placement(reassign: RunTool, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    outcome = reassign("--generate", "--topics-to-move-json-file", str(path), "--broker-list", "0")
    placement = ",".join(
        f'{{"topic":"{topic}","partition":{index},"replicas":[0],"log_dirs":["any"]}}' for index in (0, 1)
    )
    shown = f'{{"version":1,"partitions":[{placement}]}}'
    assert outcome == Outcome(
        0,
        f"Current partition replica assignment\n{shown}\n\nProposed partition reassignment configuration\n{shown}\n",
        "",
    )


def test_plan_that_changes_nothing_completes_at_once(reassign: RunTool, topic: str) -> None:
    plan = [partition(topic, 0, 0)]
    shown = f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":[0],"log_dirs":["any"]}}]}}'
    assert reassign("--execute", plan=plan).stdout == (
        f"Current partition replica assignment\n\n{shown}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        f"Successfully started partition reassignment for {topic}-0\n"
    )
    assert reassign("--verify", plan=plan).stdout == (
        f"Status of partition reassignment:\nReassignment of partition {topic}-0 is completed.\n\n"
        f"Clearing broker-level throttles on broker 0\nClearing topic-level throttles on topic {topic}\n"
    )
    assert reassign("--list").stdout == "No partition reassignments found.\n"
    assert reassign("--cancel", "--preserve-throttles", plan=plan).stdout == (
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n"
    )


def test_replica_moves_to_another_directory(broker: BrokerProcess, reassign: RunTool, topic: str) -> None:
    source = folder_of(broker, topic, 0)
    (target,) = {str(broker.folder / "one"), str(broker.folder / "two")} - {source}
    plan = [partition(topic, 0, 0, log_dirs=[target])]
    not_moved = reassign("--verify", "--preserve-throttles", plan=plan).stdout
    assert not_moved.endswith(
        f"Partition {topic}-0 on broker 0 is not being moved from log dir {source} to {target}.\n"
    )
    assert reassign("--execute", plan=plan).stdout.endswith(
        f"Successfully started partition reassignment for {topic}-0\n"
        f"Successfully started log directory move for: {topic}-0-0\n"
    )
    deadline = time.monotonic() + TIMEOUT_S
    while "completed successfully" not in (shown := reassign("--verify", "--preserve-throttles", plan=plan).stdout):
        assert time.monotonic() < deadline
        assert f"Reassignment of replica {topic}-0-0 is still in progress." in shown
    assert shown.endswith(f"Reassignment of replica {topic}-0-0 completed successfully.\n")
    assert folder_of(broker, topic, 0) == target


def test_unknown_directory_is_reported(reassign: RunTool, topic: str) -> None:
    outcome = reassign("--execute", plan=[partition(topic, 0, 0, log_dirs=["/nope"])])
    assert outcome.status == 1
    assert outcome.stdout.splitlines()[-1].startswith("Error: org.apache.kafka.common.errors.LogDirNotFoundException")


def test_throttles_are_set_and_cleared(broker: BrokerProcess, reassign: RunTool, run: RunTool, topic: str) -> None:
    plan = [partition(topic, 0, 0), partition(topic, 1, 0)]
    outcome = reassign("--execute", "--throttle", "1000", "--replica-alter-log-dirs-throttle", "2000", plan=plan)
    assert outcome.stdout.splitlines()[5:] == [
        (
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        ),
        "The inter-broker throttle limit was set to 1000 B/s",
        "The replica-alter-dir throttle limit was set to 2000 B/s",
        f"Successfully started partition reassignments for {topic}-0,{topic}-1",
    ]

    def described(*entity: str) -> str:
        return run(configs.main, "--bootstrap-server", broker.bootstrap, "--describe", *entity).stdout

    of_topic, of_broker = described("--topic", topic), described("--broker", "0")
    assert "leader.replication.throttled.replicas=0:0,1:0 " in of_topic
    assert "follower.replication.throttled.replicas= " in of_topic
    assert "leader.replication.throttled.rate=1000 sensitive=false" in of_broker
    assert "follower.replication.throttled.rate=1000 sensitive=false" in of_broker
    reassign("--verify", "--preserve-throttles", plan=plan)
    assert described("--broker", "0") == of_broker
    assert reassign("--verify", plan=plan).stdout.endswith(
        f"Clearing broker-level throttles on broker 0\nClearing topic-level throttles on topic {topic}\n"
    )
    assert "throttled" not in described("--topic", topic)
    assert "throttled" not in described("--broker", "0")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("x", "Error: The reassignment JSON is invalid: Expecting value: line 1 column 1 (char 0)"),
        ([], "Error: Partition reassignment list cannot be empty"),
        ([partition("nope", 0, 9)], "Error: Unknown broker id 9"),
        (
            [partition("nope", 0, 0)],
            "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Topic nope not found.",
        ),
    ],
)
def test_impossible_plans_are_reported(reassign: RunTool, plan: object, message: str) -> None:
    assert reassign("--execute", plan=plan) == Outcome(1, f"{message}\n", "")


def test_plans_of_one_broker_move_nothing_or_are_impossible(reassign: RunTool, topic: str) -> None:
    assert reassign("--balance") == Outcome(0, "Nothing has to be moved.\n", "")
    outcome = reassign("--raise-replication-factor", "2")
    assert outcome == Outcome(1, "Error: Replication factor: 2 larger than available brokers: 1.\n", "")
    outcome = reassign("--decommission", "0")
    assert outcome.status == 1
    assert "has 1 replicas, and only 0 brokers would stay" in outcome.stdout
    assert reassign("--decommission", "7") == Outcome(1, "Error: Unknown broker id 7\n", "")
    assert "expected ids as in 0,1,2" in reassign("--decommission", "x").stdout
    assert "expected at least 1" in reassign("--raise-replication-factor", "0").stdout
    assert "expected at least 1 partition" in reassign("--balance", "--batch-size", "0").stdout


def test_throttle_of_nothing_is_refused(reassign: RunTool, topic: str) -> None:
    outcome = reassign("--execute", "--throttle", "0", plan=[partition(topic, 0, 0)])
    assert (outcome.status, "A throttle of 0 would stop the move" in outcome.stdout) == (1, True)


def test_missing_partition_is_reported(reassign: RunTool, topic: str) -> None:
    assert reassign("--execute", plan=[partition(topic, 7, 0)]) == Outcome(
        1,
        "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
        f"Unable to find partition: {topic}-7\n",
        "",
    )
    assert reassign("--verify", "--preserve-throttles", plan=[partition("nope", 0, 1, 2)]).stdout == (
        "Status of partition reassignment:\n"
        "There is no active reassignment of partition nope-0, but replica set is  rather than 1,2.\n\n"
    )


def test_missing_file_is_reported(reassign: RunTool) -> None:
    outcome = reassign("--verify", "--reassignment-json-file", "nonexist.json")
    assert outcome == Outcome(1, "Error: Unable to read file nonexist.json: No such file or directory\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (("--list", "--verify"), "Command must include exactly one action: --generate, --execute, --verify, --cancel"),
        (("--execute",), 'Missing required argument "[reassignment-json-file]"'),
        (("--generate", "--broker-list", "0"), 'Missing required argument "[topics-to-move-json-file]"'),
        (("--list", "--throttle", "5"), 'Option "[throttle]" can\'t be used with action "[list]"'),
        (
            ("--verify", "--reassignment-json-file", "f", "--additional"),
            'Option "[additional]" can\'t be used with action "[verify]"',
        ),
    ],
)
def test_invalid_command_lines_are_rejected(reassign: RunTool, arguments: tuple[str, ...], message: str) -> None:
    outcome = reassign(*arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message)
    assert USAGE in outcome.stderr


def test_brokers_are_required(run: RunTool) -> None:
    outcome = run(reassign_partitions.main, "--list")
    assert outcome.stderr.startswith("Please specify --bootstrap-server\n")
