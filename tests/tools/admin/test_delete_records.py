"""kafka-delete-records with a real broker: deletions, output and errors."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin import delete_records, get_offsets
from tools.admin.delete_records import InvalidOffsetsError, parse_offsets

TIMEOUT_S = 20
STARTED = "Executing records delete operation\nRecords delete operation completed:\n"
OUT_OF_RANGE = (
    "org.apache.kafka.common.errors.OffsetOutOfRangeException: "
    "The requested offset is not within the range of offsets maintained by the server."
)
UNKNOWN = (
    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition."
)


def deletion(topic: str, partition: int, offset: int) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "offset": offset}


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """Two partitions with ten records each."""
    name = re.sub(r"[^a-z]", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(2):
        for number in range(10):
            producer.produce(name, str(number).encode(), partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture
def delete(broker: BrokerProcess, run: RunTool, tmp_path: Path) -> RunTool:
    def run_delete(*deletions: dict[str, object]) -> Outcome:
        path = tmp_path / "del.json"
        path.write_text(json.dumps({"partitions": deletions, "version": 1}))
        return run(delete_records.main, "--bootstrap-server", broker.bootstrap, "--offset-json-file", str(path))

    return run_delete


def test_records_below_an_offset_are_deleted(broker: BrokerProcess, run: RunTool, delete: RunTool, topic: str) -> None:
    outcome = delete(deletion(topic, 0, 3), deletion(topic, 1, -1))
    assert outcome.status == 0
    assert outcome.stderr == ""
    assert outcome.stdout.startswith(STARTED)
    assert sorted(outcome.stdout.splitlines()[2:]) == [
        f"partition: {topic}-0\tlow_watermark: 3",
        f"partition: {topic}-1\tlow_watermark: 10",
    ]
    offsets = run(get_offsets.main, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--time", "earliest")
    assert offsets.stdout == f"{topic}:0:3\n{topic}:1:10\n"


def test_partition_errors_are_printed_and_are_not_a_failure(
    delete: RunTool, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = delete(deletion(topic, 0, 11), deletion("nosuch", 0, 1), deletion(topic, 7, 1))
    assert outcome.status == 0
    assert sorted(outcome.stdout.removeprefix(STARTED).splitlines()) == sorted(
        [
            f"partition: {topic}-0\terror: {OUT_OF_RANGE}",
            f"partition: {topic}-7\terror: {UNKNOWN}",
            f"partition: nosuch-0\terror: {UNKNOWN}",
        ]
    )
    assert f"topic partition {topic}-0 failed due to an unexpected error OFFSET_OUT_OF_RANGE" in caplog.text


def test_empty_file_deletes_nothing(delete: RunTool) -> None:
    assert delete() == Outcome(0, STARTED, "")


def test_request_is_retried_at_the_new_leader(run: RunTool, tmp_path: Path) -> None:
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    asked: list[DeleteRecordsRequest] = []

    def respond(request: object) -> object:
        if isinstance(request, MetadataRequest):
            partition = MetadataResponsePartition(
                partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
            )
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=scripted.port)],
                controller_id=1,
                topics=[MetadataResponseTopic(name="t", partitions=[partition])],
            )
        assert isinstance(request, DeleteRecordsRequest)
        asked.append(request)
        result = DeleteRecordsPartitionResult(partition_index=0, low_watermark=4, error_code=codes.pop(0))
        return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=[result])])

    path = tmp_path / "del.json"
    path.write_text(json.dumps({"partitions": [deletion("t", 0, 4)]}))
    with ScriptedBroker(respond) as scripted:
        outcome = run(
            delete_records.main, "--bootstrap-server", f"127.0.0.1:{scripted.port}", "--offset-json-file", str(path)
        )
    assert outcome == Outcome(0, STARTED + "partition: t-0\tlow_watermark: 4\n", "")
    assert len(asked) == 2


def test_offsets_of_a_file_are_parsed() -> None:
    text = json.dumps({"partitions": [deletion("a", 0, 1), deletion("a", 1, -1)], "version": 1})
    assert parse_offsets(text) == {("a", 0): 1, ("a", 1): -1}
    assert parse_offsets('{"partitions": []}') == {}, "the version may be missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "The input string is not a valid JSON"),
        ("[]", "The input string is not a valid JSON"),
        ("{}", "Missing partitions field"),
        ('{"partitions": [], "version": 2}', "Not supported version field value 2"),
        ('{"partitions": [1]}', "expected a string as topic in 1"),
        ('{"partitions": [{"topic": "a"}]}', "expected a number as partition"),
        ('{"partitions": [{"topic": "a", "partition": "0", "offset": 1}]}', "expected a number as partition"),
        ('{"partitions": [{"topic": "a", "partition": 0, "offset": true}]}', "expected a number as offset"),
        (
            json.dumps({"partitions": [deletion("a", 0, 1), deletion("a", 0, 2), deletion("b", 0, 2)]}),
            "Offset json file contains duplicate topic partitions: a-0$",
        ),
    ],
)
def test_invalid_files_are_reported(text: str, message: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=message):
        parse_offsets(text)


@pytest.mark.parametrize("content", [None, b"[1", b"\xff"])
def test_unreadable_files_are_reported(run: RunTool, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "del.json"
    if content is not None:
        path.write_bytes(content)
    outcome = run(delete_records.main, "--bootstrap-server", "127.0.0.1:1", "--offset-json-file", str(path))
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"{path}: ")
    assert len(outcome.stderr.splitlines()) == 1


def test_missing_broker_is_reported(run: RunTool, tmp_path: Path) -> None:
    (tmp_path / "del.json").write_text('{"partitions": [{"topic": "a", "partition": 0, "offset": 1}]}')
    (tmp_path / "client.properties").write_text("default.api.timeout.ms=200\n")
    outcome = run(
        delete_records.main,
        *("--bootstrap-server", "127.0.0.1:1", "--command-config", str(tmp_path / "client.properties")),
        *("--offset-json-file", str(tmp_path / "del.json")),
    )
    assert outcome.status == 1
    assert "127.0.0.1:1" in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "This tool helps to delete records"),
        (("--nosuch",), "nosuch is not a recognized option"),
        (("--offset-json-file", "a"), 'Missing required argument "[bootstrap-server]"'),
        (("--bootstrap-server", "a:1"), 'Missing required argument "[offset-json-file]"'),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: Sequence[str], line: str) -> None:
    outcome = run(delete_records.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(line)
    assert "--offset-json-file" in outcome.stderr
