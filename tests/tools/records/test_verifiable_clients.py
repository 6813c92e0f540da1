"""kafka-verifiable-producer and kafka-verifiable-consumer with a real broker: their events, limits and exit."""

from __future__ import annotations

import json
import re
import signal
import threading
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.forked_programs import running_program
from tests.support.processes import closed_port
from tests.tools.conftest import RunTool
from tools.records import verifiable_consumer, verifiable_producer
from tools.records.verifiable_consumer import VerifiableConsumer
from tools.records.verifiable_producer import VerifiableProducer

TIMEOUT_S = 30
Event = dict[str, Any]


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z]", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def events(text: str) -> list[Event]:
    """Return the events of an output without their times."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(list(event)[:2] == ["timestamp", "name"] for event in found)
    assert all(event.pop("timestamp") > 1e12 for event in found)
    return found


def test_producer_reports_each_number_and_the_sum(run: RunTool, broker: BrokerProcess, topic: str) -> None:
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", "4", "--value-prefix", "7")
    outcome = run(verifiable_producer.main, *arguments, "--repeating-keys", "2", "--throughput", "1000")
    assert outcome.status == 0
    first, *sent, shutdown, total = events(outcome.stdout)
    assert first == {"name": "startup_complete"}
    assert {event["name"] for event in sent} == {"producer_send_success"}
    assert list(sent[0]) == ["name", "key", "value", "offset", "topic", "partition"], "the order of Kafka's tool"
    assert sorted((event["value"], event["key"]) for event in sent) == [
        ("7.0", "0"),
        ("7.1", "1"),
        ("7.2", "0"),
        ("7.3", "1"),
    ]
    assert shutdown == {"name": "shutdown_complete"}
    assert list(total) == ["name", "sent", "acked", "target_throughput", "avg_throughput"]
    assert (total["sent"], total["acked"], total["target_throughput"]) == (4, 4, 1000)


def test_consumer_reports_what_it_consumes_and_commits(run: RunTool, broker: BrokerProcess, topic: str) -> None:
    common = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", "3")
    run(verifiable_producer.main, *common, "--repeating-keys", "1")
    outcome = run(verifiable_consumer.main, *common, "--group-id", topic, "--verbose")
    assert outcome.status == 0
    found = events(outcome.stdout)
    assert found[0] == {"name": "startup_complete"}
    both = [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert found[1] == {"name": "partitions_assigned", "partitions": both}
    assert found[-2:] == [{"name": "partitions_revoked", "partitions": both}, {"name": "shutdown_complete"}]
    records = [event for event in found if event["name"] == "record_data"]
    assert [(event["key"], event["value"], event["offset"]) for event in records] == [
        ("0", "0", 0),
        ("0", "1", 1),
        ("0", "2", 2),
    ]
    consumed = [event for event in found if event["name"] == "records_consumed"]
    assert sum(event["count"] for event in consumed) == 3
    assert consumed[-1]["partitions"][0]["maxOffset"] == 2
    committed = [event for event in found if event["name"] == "offsets_committed"]
    assert committed[-1]["success"]
    assert committed[-1]["offsets"] == [{"topic": topic, "partition": records[0]["partition"], "offset": 3}]


def test_failed_sends_are_reported(run: RunTool, tmp_path: Any) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("delivery.timeout.ms=200\n")
    with closed_port() as port:
        arguments = ("--bootstrap-server", f"127.0.0.1:{port}", "--topic", "t", "--max-messages", "1")
        outcome = run(verifiable_producer.main, *arguments, "--producer.config", str(config))
    assert outcome.status == 0
    _, failed, _, total = events(outcome.stdout)
    assert list(failed) == ["name", "key", "value", "topic", "exception", "message"]
    assert (failed["name"], failed["key"], failed["value"]) == ("producer_send_error", None, "0")
    assert (total["sent"], total["acked"]) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("tool", ["records.verifiable_producer", "records.verifiable_consumer"])
def test_signal_ends_the_tool_with_its_last_lines(
    broker: BrokerProcess, topic: str, tool: str, number: signal.Signals
) -> None:
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    arguments += ["--throughput", "100"] if tool == "records.verifiable_producer" else ["--group-id", topic]
    with running_program(f"tools.{tool}", arguments) as (process, output):
        assert '"startup_complete"' in output.readline()
        output.readline()
        process.send_signal(number)
        rest = output.read()
        assert process.wait(TIMEOUT_S) == 0
    assert "shutdown_complete" in [event["name"] for event in events(rest)[-2:]]


def test_both_run_inside_a_program(broker: BrokerProcess, topic: str) -> None:
    produced: list[str] = []
    consumed: list[Event] = []
    producer = VerifiableProducer(
        {"bootstrap.servers": broker.bootstrap}, topic, lambda name, _: produced.append(name), messages_max=50
    )
    producer.run()
    assert (producer.sent, producer.acknowledged) == (50, 50)

    def emit(name: str, values: Event) -> None:
        consumed.append({"name": name, **values})
        if sum(event.get("count", 0) for event in consumed) == 50:
            consumer.stop()

    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = VerifiableConsumer(settings, topic, emit)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    thread.join(TIMEOUT_S)
    assert consumer.consumed == 50
    assert consumed[-1]["name"] == "shutdown_complete"


@pytest.mark.parametrize("module", [verifiable_producer, verifiable_consumer])
def test_usage_alone_is_no_failure(run: RunTool, module: Any) -> None:
    for arguments in ((), ("--help",)):
        outcome = run(module.main, *arguments)
        assert (outcome.status, outcome.stderr) == (0, "")
        assert "--topic <TOPIC>" in outcome.stdout


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (verifiable_producer, ("--topic", "t"), 'Missing required argument "[bootstrap-server]"'),
        (
            verifiable_producer,
            ("--topic", "t", "--bootstrap-server", "h:1", "--acks", "2"),
            "Cannot parse argument '2' of option acks: expected 0, 1, -1",
        ),
        (
            verifiable_consumer,
            ("--topic", "t", "--bootstrap-server", "h:1"),
            'Missing required argument "[group-id]"',
        ),
        (
            verifiable_consumer,
            ("--topic", "t", "--bootstrap-server", "h:1", "--group-id", "g", "--reset-policy", "first"),
            "Cannot parse argument 'first' of option reset-policy",
        ),
    ],
)
def test_invalid_command_lines_are_rejected(
    run: RunTool, module: Any, arguments: tuple[str, ...], message: str
) -> None:
    outcome = run(module.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message)
