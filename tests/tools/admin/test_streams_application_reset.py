"""kafka-streams-application-reset: its output against a broker, as Kafka's tool prints it."""

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import streams_application_reset
from tools.admin.streams_application_reset import is_internal

TIMEOUT_S = 20


class Application:
    """An application with an input topic of ten records, an intermediate topic and internal topics."""

    def __init__(self, bootstrap: str) -> None:
        self.name = f"app-{uuid.uuid4()}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.bootstrap = bootstrap
        self.input, self.intermediate = f"in-{self.name}", f"mid-{self.name}"
        self.internal = [f"{self.name}-a-changelog", f"{self.name}-b-repartition"]
        topics = [self.input, self.intermediate, *self.internal, f"{self.name}-other"]
        for created in self.admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
            created.result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(10):
            for topic in (self.input, self.intermediate):
                producer.produce(topic, b"x", partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0

    def offsets(self) -> dict[str, list[int]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name})
        names = (self.input, self.intermediate)
        found = consumer.committed([TopicPartition(name, n) for name in names for n in range(2)], TIMEOUT_S)
        consumer.close()
        return {name: [each.offset for each in found if each.topic == name] for name in names}

    def topics(self) -> set[str]:
        return {topic for topic in self.admin.list_topics(timeout=TIMEOUT_S).topics if topic.startswith(self.name)}


@pytest.fixture
def application(broker: BrokerProcess) -> Application:
    return Application(broker.bootstrap)


def test_offsets_are_reset_and_internal_topics_deleted(application: Application, run: RunTool) -> None:
    app = application
    arguments = ["--bootstrap-server", app.bootstrap, "--application-id", app.name, "--input-topics", app.input]
    arguments += ["--intermediate-topics", app.intermediate]
    lines = (
        f"Reset-offsets for input topics [{app.input}]\n"
        f"Seek-to-end for intermediate topics [{app.intermediate}]\n"
        f"Following input topics offsets will be reset to (for consumer group {app.name})\n"
        f"Topic: {app.input} Partition: 0 Offset: 0\n"
        f"Topic: {app.input} Partition: 1 Offset: 0\n"
        f"Following intermediate topics offsets will be reset to end (for consumer group {app.name})\n"
        f"Topic: {app.intermediate}\nTopic: {app.intermediate}\n"
        "Done.\n"
        f"Deleting inferred internal topics [{', '.join(app.internal)}]\n"
        "Done.\n"
    )
    dry_run = "----Dry run displays the actions which will be performed when running Streams Reset Tool----\n"
    shown = run(streams_application_reset.main, *arguments, "--dry-run")
    assert shown == Outcome(0, dry_run + lines, "")
    assert app.offsets() == {app.input: [-1001, -1001], app.intermediate: [-1001, -1001]}
    assert set(app.internal) <= app.topics()
    assert run(streams_application_reset.main, *arguments) == Outcome(0, lines, "")
    assert app.offsets() == {app.input: [0, 0], app.intermediate: [5, 5]}
    assert app.topics() == {f"{app.name}-other"}


def test_scenarios_and_missing_topics(application: Application, run: RunTool) -> None:
    app = application
    arguments = ["--bootstrap-server", app.bootstrap, "--application-id", app.name, "--input-topics"]
    assert run(streams_application_reset.main, *arguments, app.input, "--to-offset", "3").status == 0
    assert app.offsets()[app.input] == [3, 3]
    assert run(streams_application_reset.main, *arguments, app.input, "--shift-by", "-1").status == 0
    assert app.offsets()[app.input] == [2, 2]
    missing = run(streams_application_reset.main, *arguments, f"{app.input},nope", "--to-latest")
    assert missing.status == 1
    assert "Following input topics are not found, skipping them\nTopic: nope\n" in missing.stdout
    assert app.offsets()[app.input] == [5, 5]


def test_active_members_are_refused_or_removed(application: Application, run: RunTool) -> None:
    app = application
    consumer = Consumer({"bootstrap.servers": app.bootstrap, "group.id": app.name, "session.timeout.ms": 45000})
    assigned: list[object] = []
    consumer.subscribe([app.input], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        consumer.poll(0.1)
    arguments = ["--bootstrap-server", app.bootstrap, "--application-id", app.name, "--input-topics", app.input]
    refused = run(streams_application_reset.main, *arguments)
    assert (refused.status, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        f"ERROR: Consumer group '{app.name}' is still active and has following members: [rdkafka at /127.0.0.1 ("
    )
    forced = run(streams_application_reset.main, *arguments, "--force")
    assert forced.status == 0, forced.stderr
    assert forced.stdout.startswith(f"Force deleting all active members in the group: {app.name}\nReset-offsets for")
    consumer.close()


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("app-store-changelog", True),
        ("app-x-repartition", True),
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000001-topic", True),
        ("app-x-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000001-topic", True),
        ("apple-store-changelog", False),
        ("app-other", False),
        ("app", False),
    ],
)
def test_names_of_internal_topics(topic: str, expected: bool) -> None:
    assert is_internal(topic, "app") is expected


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--bootstrap-server", "h:1"], 'Missing required argument "[application-id]"'),
        (
            ["--application-id", "a", "--to-earliest", "--to-latest"],
            'Option "[to-earliest]" can\'t be used with',
        ),
        (
            ["--application-id", "a", "--bootstrap-server", "127.0.0.1:1"],
            "No broker at 127.0.0.1:1: Connection refused. Does it run at this address?",
        ),
    ],
)
def test_bad_command_lines(run: RunTool, arguments: list[str], error: str) -> None:
    outcome = run(streams_application_reset.main, *arguments)
    assert outcome.status == 1
    assert outcome.stderr.startswith(error)


def test_only_internal_topics_may_be_named(application: Application, run: RunTool) -> None:
    app = application
    arguments = ["--bootstrap-server", app.bootstrap, "--application-id", app.name, "--internal-topics"]
    refused = run(streams_application_reset.main, *arguments, app.input)
    assert refused.status == 1
    assert refused.stderr.startswith("ERROR: Invalid topic specified in the --internal-topics option.")
    deleted = run(streams_application_reset.main, *arguments, app.internal[0])
    assert (deleted.status, deleted.stderr) == (0, "")
    assert f"Deleting specified internal topics [{app.internal[0]}]\n" in deleted.stdout
    assert app.topics() == {f"{app.name}-other", app.internal[1]}
