"""kafka-topics with a real broker: flags, output, exit codes."""

import re

import pytest

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool, run_module
from tools.admin import topics
from tools.admin.topics import CommandError, parse_replica_assignment

TOPIC_ID = re.compile(r"TopicId: [A-Za-z0-9_-]{22}")
COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both.\n"
)


@pytest.fixture
def kafka_topics(broker: BrokerProcess, run: RunTool) -> RunTool:
    def run_topics(*arguments: str) -> Outcome:
        return run(topics.main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run_topics


def described(outcome: Outcome) -> str:
    assert (outcome.status, outcome.stderr) == (0, "")
    return TOPIC_ID.sub("TopicId: ID", outcome.stdout)


def test_topic_is_created_listed_altered_and_deleted(kafka_topics: RunTool) -> None:
    created = kafka_topics(
        "--create",
        "--topic",
        "life",
        "--partitions",
        "2",
        "--config",
        "retention.ms=7200000",
        "--config",
        "max.message.bytes=2000000",
    )
    assert created == Outcome(0, "Created topic life.\n", "")
    assert "life\n" in kafka_topics("--list").stdout
    assert described(kafka_topics("--describe", "--topic", "life")) == (
        "Topic: life\tTopicId: ID\tPartitionCount: 2\tReplicationFactor: 1\t"
        "Configs: retention.ms=7200000,max.message.bytes=2000000\n"
        "\tTopic: life\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: N/A\tLastKnownElr: N/A\n"
        "\tTopic: life\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: N/A\tLastKnownElr: N/A\n"
    )
    assert kafka_topics("--alter", "--topic", "life", "--partitions", "3") == Outcome(0, "", "")
    assert "PartitionCount: 3" in kafka_topics("--describe", "--topic", "life").stdout
    assert kafka_topics("--delete", "--topic", "life") == Outcome(0, "", "")
    assert "life\n" not in kafka_topics("--list").stdout


def test_defaults_of_the_broker_apply(kafka_topics: RunTool) -> None:
    assert kafka_topics("--create", "--topic", "chosen").status == 0
    assert (
        "PartitionCount: 2\tReplicationFactor: 1\tConfigs: \n" in kafka_topics("--describe", "--topic", "chosen").stdout
    )


def test_topic_is_created_with_assigned_replicas(kafka_topics: RunTool) -> None:
    assert kafka_topics("--create", "--topic", "by-hand", "--replica-assignment", "0,0,0").status == 0
    assert "PartitionCount: 3" in kafka_topics("--describe", "--topic", "by-hand").stdout


def test_topic_is_created_without_regard_to_racks(kafka_topics: RunTool) -> None:
    arguments = ("--create", "--topic", "anywhere", "--disable-rack-aware")
    assert kafka_topics(*arguments, "--partitions", "3", "--replication-factor", "1").status == 0
    assert "PartitionCount: 3" in kafka_topics("--describe", "--topic", "anywhere").stdout
    assert "needs --partitions and --replication-factor" in kafka_topics(*arguments).stdout
    outcome = kafka_topics(*arguments, "--partitions", "1", "--replication-factor", "2")
    assert "Replication factor: 2 larger than available brokers: 1." in outcome.stdout


def test_names_that_could_collide_print_a_warning(kafka_topics: RunTool) -> None:
    assert kafka_topics("--create", "--topic", "with.dot") == Outcome(
        0, COLLISION_WARNING + "Created topic with.dot.\n", ""
    )
    outcome = kafka_topics("--create", "--topic", "with_dot")
    assert outcome.status == 1
    assert "with.dot" in outcome.stdout


def test_topics_are_selected_by_regular_expression(kafka_topics: RunTool) -> None:
    for name in ("re-one", "re-two", "other-re"):
        kafka_topics("--create", "--topic", name)
    assert kafka_topics("--list", "--topic", "re-.*").stdout == "re-one\nre-two\n"
    assert kafka_topics("--list", "--topic", "re-one,other-re").stdout == "other-re\nre-one\n"
    assert kafka_topics("--delete", "--topic", "re-.*").status == 0
    assert kafka_topics("--list", "--topic", "re-.*,.*-re").stdout == "other-re\n"


def test_topic_is_described_by_id(kafka_topics: RunTool) -> None:
    kafka_topics("--create", "--topic", "by-id")
    topic_id = kafka_topics("--describe", "--topic", "by-id").stdout.split("\t")[1].removeprefix("TopicId: ")
    assert kafka_topics("--describe", "--topic-id", topic_id).stdout.startswith("Topic: by-id\t")
    unknown = kafka_topics("--describe", "--topic-id", "A" * 22)
    assert unknown.status == 1
    assert unknown.stdout == f"Error while executing topic command : TopicId '{'A' * 22}' does not exist as expected\n"
    assert kafka_topics("--describe", "--topic-id", "nonsense").status == 1


def test_filters_limit_the_description(kafka_topics: RunTool) -> None:
    kafka_topics("--create", "--topic", "plain")
    kafka_topics("--create", "--topic", "special", "--config", "cleanup.policy=compact")
    overridden = described(kafka_topics("--describe", "--topics-with-overrides"))
    assert (
        "Topic: special\tTopicId: ID\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: cleanup.policy=compact\n"
        in overridden
    )
    assert "Topic: plain" not in overridden
    assert "\tPartition:" not in overridden
    for name in ("under-replicated", "unavailable", "under-min-isr"):
        assert described(kafka_topics("--describe", f"--{name}-partitions")) == ""
    at_minimum = described(kafka_topics("--describe", "--topic", "plain", "--at-min-isr-partitions"))
    assert [line.split("\t")[2] for line in at_minimum.splitlines()] == ["Partition: 0", "Partition: 1"]


def test_if_exists_and_if_not_exists_suppress_errors(kafka_topics: RunTool) -> None:
    kafka_topics("--create", "--topic", "there")
    assert kafka_topics("--create", "--if-not-exists", "--topic", "there") == Outcome(0, "", "")
    assert kafka_topics("--delete", "--if-exists", "--topic", "not-there") == Outcome(0, "", "")
    assert kafka_topics("--describe", "--if-exists", "--topic", "not-there") == Outcome(0, "", "")
    assert kafka_topics("--alter", "--if-exists", "--topic", "not-there", "--partitions", "5") == Outcome(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--create", "--topic", "failing"), "Topic 'failing' already exists."),
        (
            ("--create", "--topic", "bad name"),
            (
                "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, "
                "'.', '_' and '-'"
            ),
        ),
        (("--create", "--topic", "new", "--config", "nosuch=1"), "Unknown topic config name: nosuch"),
        (
            ("--create", "--topic", "new", "--config", "nosuch"),
            "Invalid topic config: expected name=value, found 'nosuch'",
        ),
        (
            ("--create", "--topic", "new", "--replication-factor", "5"),
            "Replication factor: 5 larger than available brokers: 1.",
        ),
        (("--create", "--topic", "new", "--partitions", "0"), "The partitions must be greater than 0"),
        (
            ("--create", "--topic", "new", "--replication-factor", "0"),
            "The replication factor must be between 1 and 32767 inclusive",
        ),
        (
            ("--alter", "--topic", "failing", "--partitions", "1"),
            "Topic currently has 2 partitions, which is higher than the requested 1.",
        ),
        (("--describe", "--topic", "nope"), "Topic 'Optional[nope]' does not exist as expected"),
        (("--delete", "--topic", "nope"), "Topic 'Optional[nope]' does not exist as expected"),
        (("--alter", "--topic", "nope", "--partitions", "9"), "Topic 'Optional[nope]' does not exist as expected"),
    ],
)
def test_failures_are_reported(kafka_topics: RunTool, arguments: tuple[str, ...], reason: str) -> None:
    kafka_topics("--create", "--if-not-exists", "--topic", "failing")
    outcome = kafka_topics(*arguments)
    assert outcome.status == 1
    assert outcome.stdout.endswith(f"Error while executing topic command : {reason}\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--topic", "a"), "Command must include exactly one action"),
        (("--list", "--create", "--topic", "a"), "Command must include exactly one action"),
        (("--create",), 'Missing required argument "[topic]"'),
        (("--alter", "--topic", "a"), 'Missing required argument "[partitions]"'),
        (("--list", "--partitions", "1"), 'Option "[partitions]" can\'t be used with option "[list]"'),
        (("--describe", "--config", "a=1"), 'Option "[config]" can\'t be used with option "[describe]"'),
        (
            ("--create", "--topic", "a", "--replica-assignment", "0", "--partitions", "1"),
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            ("--alter", "--topic", "a", "--config", "b=c"),
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]"',
        ),
        (("--alter", "--topic", "a", "--partitions", "2", "--delete-config", "b"), "--delete-config was removed"),
        (("--describe", "--nosuch"), "nosuch is not a recognized option"),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(topics.main, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(text)


def test_bootstrap_server_is_required(run: RunTool) -> None:
    outcome = run(topics.main, "--list")
    assert outcome.status == 1
    assert outcome.stderr.startswith('Missing required argument "[bootstrap-server]"')


def test_tool_runs_as_a_process(broker: BrokerProcess) -> None:
    outcome = run_module("admin.topics", "--broker-list", broker.bootstrap, "--describe", "--topic", "nope")
    assert outcome.status == 1
    assert outcome.stdout == "Error while executing topic command : Topic 'Optional[nope]' does not exist as expected\n"
    assert "ERROR java.lang.IllegalArgumentException: Topic 'Optional[nope]' does not exist" in outcome.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0:0", "Partition replica lists may not contain duplicate entries: 0"),
        ("0:1,2", "Partition 1 has different replication factor: [2]"),
        ("a:b", "Invalid replica assignment 'a:b'"),
        ("", "Invalid replica assignment ''"),
    ],
)
def test_invalid_replica_assignments_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(CommandError) as failure:
        parse_replica_assignment(text)
    assert str(failure.value).startswith(reason)


def test_replica_assignment_is_parsed() -> None:
    assert parse_replica_assignment("0:1,1:2") == [[0, 1], [1, 2]]
