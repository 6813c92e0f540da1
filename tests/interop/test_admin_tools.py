"""Kafka's own administration tools print the same with Milena as with Apache Kafka."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.interop.conftest import RunKafkaTool, Server, StartServer, create_topic

CONFIGS = "kafka.admin.ConfigCommand"
TOPIC = "administered"
DESCRIBED_MAX = 20


@pytest.fixture(scope="module")
def administered(server: Server) -> Server:
    """The server of all tests, with the topic."""
    create_topic(server.bootstrap, TOPIC)
    return server


RunTool = Callable[..., list[str]]


@pytest.fixture
def run(run_kafka_tool: RunKafkaTool) -> RunTool:
    """Return the output of a tool, without blank lines and trailing blanks."""

    def lines(server: Server, main: str, *arguments: str) -> list[str]:
        printed = run_kafka_tool(main, "--bootstrap-server", server.bootstrap, *arguments)
        return [line.rstrip() for line in printed if line.strip()]

    return lines


@pytest.mark.parametrize(
    ("entity", "settings", "completed", "described"),
    [
        (
            ["--entity-type", "topics", "--entity-name", TOPIC],
            "retention.ms=7200000,cleanup.policy=[compact,delete]",
            f"Completed updating config for topic {TOPIC}.",
            [
                f"Dynamic configs for topic {TOPIC} are:",
                (
                    "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
                    "cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}"
                ),
                ("  retention.ms=7200000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7200000}"),
            ],
        ),
        (
            ["--entity-type", "brokers", "--entity-name", "0"],
            "log.cleaner.threads=2",
            "Completed updating config for broker 0.",
            [
                "Dynamic configs for broker 0 are:",
                (
                    "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
                    "DEFAULT_CONFIG:log.cleaner.threads=1}"
                ),
            ],
        ),
        (
            ["--entity-type", "users", "--entity-name", "alice"],
            "producer_byte_rate=1048576,consumer_byte_rate=2097152",
            "Completed updating config for user alice.",
            ["Quota configs for user-principal 'alice' are consumer_byte_rate=2097152.0, producer_byte_rate=1048576.0"],
        ),
        (
            ["--entity-type", "users", "--entity-name", "bob"],
            "SCRAM-SHA-512=[password=secret]",
            "Completed updating config for user bob.",
            ["SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=4096"],
        ),
        (
            ["--entity-type", "ips", "--entity-default"],
            "connection_creation_rate=100000",
            "Completed updating default config for ips in the cluster.",
            ["Quota configs for the default ip are connection_creation_rate=100000.0"],
        ),
    ],
    ids=["topic", "broker", "user", "credential", "address"],
)
def test_settings_tool_prints_the_same_as_with_kafka(
    run: RunTool, administered: Server, entity: list[str], settings: str, completed: str, described: list[str]
) -> None:
    assert run(administered, CONFIGS, "--alter", *entity, "--add-config", settings) == [completed]
    for _ in range(DESCRIBED_MAX):  # Kafka's broker applies a change some time after it has responded
        printed = run(administered, CONFIGS, "--describe", *entity)
        if printed == described:
            break
    assert printed == described


def test_delete_records_tool_prints_the_same_as_with_kafka(run: RunTool, administered: Server, tmp_path: Path) -> None:
    wanted = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": -1}]}
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps(wanted))
    assert run(administered, "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(offsets)) == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {TOPIC}-0\tlow_watermark: 0",
    ]


def test_log_directories_tool_prints_the_same_as_with_kafka(run: RunTool, administered: Server) -> None:
    *_, described = run(administered, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", TOPIC)
    partition = {"partition": f"{TOPIC}-0", "size": 0, "offsetLag": 0, "isFuture": False}
    directory = {"partitions": [partition], "error": None, "logDir": str(administered.log_dir)}
    assert json.loads(described) == {"version": 1, "brokers": [{"broker": 0, "logDirs": [directory]}]}


def test_election_tool_prints_the_same_as_with_kafka(run: RunTool, administered: Server) -> None:
    arguments = ("--election-type", "PREFERRED", "--topic", TOPIC, "--partition", "0")
    assert run(administered, "org.apache.kafka.tools.LeaderElectionCommand", *arguments) == [
        f"Valid replica already elected for partitions {TOPIC}-0"
    ]


def test_reassignment_tool_prints_the_same_as_with_kafka(run: RunTool, administered: Server, tmp_path: Path) -> None:
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    in_place = {"topic": TOPIC, "partition": 0, "replicas": [0], "log_dirs": [str(administered.log_dir)]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [in_place]}))
    assert run(administered, tool, "--execute", "--reassignment-json-file", str(plan))[-2:] == [
        f"Successfully started partition reassignment for {TOPIC}-0",
        f"Successfully started moving log directory to {administered.log_dir} for replica {TOPIC}-0 with broker 0",
    ]
    assert run(administered, tool, "--list") == ["No partition reassignments found."]


def test_reassignment_tool_moves_a_log_to_another_directory(
    run: RunTool, start_server: StartServer, tmp_path: Path
) -> None:
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    directories = [tmp_path / "first", tmp_path / "second"]
    with start_server({"log.dirs": ",".join(map(str, directories))}) as server:
        create_topic(server.bootstrap, TOPIC)
        producer = Producer({"bootstrap.servers": server.bootstrap})
        values = [str(number).encode() for number in range(1000)]
        for value in values:
            producer.produce(TOPIC, value)
        producer.flush()
        (here,) = (path.parent for path in tmp_path.glob(f"*/{TOPIC}-0"))
        there = next(path for path in directories if path != here)
        plan = tmp_path / "plan.json"
        moved = {"topic": TOPIC, "partition": 0, "replicas": [0], "log_dirs": [str(there)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        assert run(server, tool, "--execute", "--reassignment-json-file", str(plan))[-1] == (
            f"Successfully started moving log directory to {there} for replica {TOPIC}-0 with broker 0"
        )
        completed = f"Reassignment of replica {TOPIC}-0-0 completed successfully."
        deadline = time.monotonic() + 60
        while completed not in (verified := run(server, tool, "--verify", "--reassignment-json-file", str(plan))):
            assert time.monotonic() < deadline, verified
        *_, described = run(server, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", TOPIC)
        found = {
            directory["logDir"]: [(one["offsetLag"], one["isFuture"]) for one in directory["partitions"]]
            for directory in json.loads(described)["brokers"][0]["logDirs"]
        }
        assert found == {str(here): [], str(there): [(0, False)]}
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "mover"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        assert [message.value() for message in consumer.consume(len(values), 30)] == values
        consumer.close()
