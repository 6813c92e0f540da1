"""kafka-leader-election with one broker, with scripted responses, and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin import leader_election

MISSING = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: The partition does not exist."


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z]", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


@pytest.fixture
def elect(broker: BrokerProcess, run: RunTool) -> RunTool:
    return lambda *arguments: run(leader_election.main, "--bootstrap-server", broker.bootstrap, *arguments)


@pytest.mark.parametrize("kind", ["preferred", "unclean", "PREFERRED"])
def test_partition_with_its_leader_needs_no_election(elect: RunTool, topic: str, kind: str) -> None:
    outcome = elect("--election-type", kind, "--topic", topic, "--partition", "1")
    assert outcome == Outcome(0, f"Valid replica already elected for partitions {topic}-1\n", "")


def test_nothing_is_printed_if_no_partition_needs_an_election(elect: RunTool, topic: str) -> None:
    assert elect("--election-type", "preferred", "--all-topic-partitions") == Outcome(0, "", "")


def test_partitions_of_a_file_are_elected(elect: RunTool, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": index} for index in (0, 1)]}))
    outcome = elect("--election-type", "preferred", "--path-to-json-file", str(path))
    assert outcome == Outcome(0, f"Valid replica already elected for partitions {topic}-0, {topic}-1\n", "")


def test_missing_partition_is_a_failure(elect: RunTool) -> None:
    assert elect("--election-type", "preferred", "--topic", "nope", "--partition", "0") == Outcome(
        1,
        f"Error completing leader election (PREFERRED) for partition: nope-0: {MISSING}\n",
        "1 replica(s) could not be elected\n",
    )


class Controller:
    """A script: a controller that returns for each election the next codes of the partitions 0, 1, ..."""

    def __init__(self, *codes: list[int]) -> None:
        self.port = 0
        self.asked: list[ElectLeadersRequest] = []
        self._codes = list(codes)

    def __call__(self, request: object) -> object:
        if isinstance(request, MetadataRequest):
            broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
            return MetadataResponse(brokers=[broker], controller_id=1, topics=[])
        assert isinstance(request, ElectLeadersRequest)
        self.asked.append(request)
        codes = self._codes.pop(0)
        results = [PartitionResult(partition_id=index, error_code=code) for index, code in enumerate(codes)]
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic="t", partition_result=results)]
        )

    def outcome(self, run: RunTool, *arguments: str) -> Outcome:
        """Run the tool with this controller."""
        with ScriptedBroker(self) as scripted:
            self.port = scripted.port
            return run(leader_election.main, "--bootstrap-server", f"127.0.0.1:{scripted.port}", *arguments)


def test_results_are_printed_by_kind(run: RunTool) -> None:
    controller = Controller([0, ErrorCode.ELECTION_NOT_NEEDED, 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE])
    outcome = controller.outcome(run, "--election-type", "unclean", "--all-topic-partitions")
    assert outcome.status == 1
    assert outcome.stdout.splitlines() == [
        "Successfully completed leader election (UNCLEAN) for partitions t-2, t-0",
        "Valid replica already elected for partitions t-1",
        (
            "Error completing leader election (UNCLEAN) for partition: t-3: org.apache.kafka.common.errors."
            "PreferredLeaderNotAvailableException: The preferred leader was not available."
        ),
    ]
    assert outcome.stderr == "1 replica(s) could not be elected\n"
    assert (controller.asked[0].election_type, controller.asked[0].topic_partitions) == (1, None)


def test_election_is_asked_again_of_the_new_controller(run: RunTool) -> None:
    controller = Controller([ErrorCode.NOT_CONTROLLER], [0])
    outcome = controller.outcome(run, "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert outcome == Outcome(0, "Successfully completed leader election (PREFERRED) for partitions t-0\n", "")
    assert len(controller.asked) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read {path}: No such file or directory"),
        ("x", "{path} is invalid, expected "),
        ('{"partitions":[{"topic":"a"}]}', "{path} is invalid, expected "),
        ('{"partitions":[]}', "Replica election data is empty"),
        (
            '{"partitions":[{"topic":"a","partition":0},{"topic":"a","partition":0}]}',
            "Replica election data contains duplicate partitions: [a-0]",
        ),
    ],
)
def test_invalid_files_are_reported(elect: RunTool, tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "partitions.json"
    if content is not None:
        path.write_text(content)
    outcome = elect("--election-type", "preferred", "--path-to-json-file", str(path))
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message.format(path=path))


ONE_OPTION = "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), 'Missing required argument "[election-type]"'),
        (("--election-type", "foo"), "Cannot parse argument 'foo' of option election-type"),
        (("--election-type", "preferred"), ONE_OPTION),
        (("--election-type", "preferred", "--partition", "0"), ONE_OPTION),
        (("--election-type", "preferred", "--topic", "t"), "Missing required option(s): partition"),
        (("--election-type", "preferred", "--topic", "t", "--partition", "0", "--all-topic-partitions"), ONE_OPTION),
        (
            ("--election-type", "preferred", "--all-topic-partitions", "--partition", "0"),
            "Option partition is only allowed if topic is used",
        ),
    ],
)
def test_invalid_command_lines_are_rejected(elect: RunTool, arguments: tuple[str, ...], message: str) -> None:
    outcome = elect(*arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message)
