"""kafka-log-dirs with a real broker, and with one that has an offline directory."""

import json
from collections.abc import Sequence

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin import log_dirs

HEAD = "Querying brokers for log directories information\nReceived log directory information from brokers {}\n"


@pytest.fixture
def describe(broker: BrokerProcess, run: RunTool) -> RunTool:
    return lambda *arguments: run(log_dirs.main, "--bootstrap-server", broker.bootstrap, "--describe", *arguments)


def test_partitions_of_a_topic_are_printed(broker: BrokerProcess, describe: RunTool) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("assigned", 4, 1)])["assigned"].result()
    partitions = ",".join(
        f'{{"partition":"assigned-{index}","size":0,"offsetLag":0,"isFuture":false}}' for index in (3, 2, 1, 0)
    )
    text = f'{{"brokers":[{{"broker":0,"logDirs":[{{"partitions":[{partitions}],"error":null,'
    expected = HEAD.format(0) + f'{text}"logDir":"{broker.log_dir}"}}]}}],"version":1}}\n'
    assert described(describe("--topic-list", "assigned", "--broker-list", "0")) == described(Outcome(0, expected, ""))
    names = [partition["partition"] for partition in described(describe())["brokers"][0]["logDirs"][0]["partitions"]]
    assert set(names) >= {f"assigned-{index}" for index in range(4)}


def described(outcome: Outcome) -> dict[str, list[dict[str, list[dict[str, list[dict[str, str]]]]]]]:
    """The JSON of a description without the order of partitions, which depends on all contents of the directory."""
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(HEAD.format(0))
    description: dict[str, list[dict[str, list[dict[str, list[dict[str, str]]]]]]] = json.loads(
        outcome.stdout.splitlines()[2]
    )
    for broker in description["brokers"]:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda partition: partition["partition"])
    return description


def test_unknown_topic_has_no_partitions(broker: BrokerProcess, describe: RunTool) -> None:
    assert describe("--topic-list", "nope") == Outcome(
        0,
        HEAD.format(0)
        + f'{{"brokers":[{{"broker":0,"logDirs":[{{"partitions":[],"error":null,"logDir":"{broker.log_dir}"}}]}}]'
        + ',"version":1}\n',
        "",
    )


def test_unknown_broker_is_reported(describe: RunTool) -> None:
    message = "ERROR: The given brokers do not exist from --broker-list: 99. Current existent brokers: 0\n"
    assert describe("--broker-list", "0,99") == Outcome(1, "", message)


def test_offline_directory_and_lag_are_printed_in_order(run: RunTool) -> None:
    def respond(request: object) -> object:
        if isinstance(request, MetadataRequest):
            nodes = [MetadataResponseBroker(node_id=node, host="127.0.0.1", port=scripted.port) for node in (2, 1)]
            return MetadataResponse(brokers=nodes, controller_id=1, topics=[])
        moved = [
            DescribeLogDirsPartition(partition_index=index, partition_size=10, offset_lag=5, is_future_key=index == 2)
            for index in (0, 2, 3)
        ]
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(log_dir="/d1", topics=[DescribeLogDirsTopic(name="assigned", partitions=moved)]),
                DescribeLogDirsResult(log_dir="/d2", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            ]
        )

    with ScriptedBroker(respond) as scripted:
        outcome = run(log_dirs.main, "--bootstrap-server", f"127.0.0.1:{scripted.port}", "--describe")
    text = (
        '"logDirs":[{"partitions":[{"partition":"assigned-3","size":10,"offsetLag":5,"isFuture":false},'
        '{"partition":"assigned-2","size":10,"offsetLag":5,"isFuture":true},'
        '{"partition":"assigned-0","size":10,"offsetLag":5,"isFuture":false}],"error":null,"logDir":"/d1"},'
        '{"partitions":[],"error":"org.apache.kafka.common.errors.KafkaStorageException","logDir":"/d2"}]'
    )
    json_line = f'{{"brokers":[{{"broker":1,{text}}},{{"broker":2,{text}}}],"version":1}}\n'
    assert outcome == Outcome(0, HEAD.format("1,2") + json_line, "")


def test_an_error_of_a_broker_is_reported(run: RunTool) -> None:
    def respond(request: object) -> object:
        if isinstance(request, MetadataRequest):
            node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=scripted.port)
            return MetadataResponse(brokers=[node], controller_id=1, topics=[])
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    with ScriptedBroker(respond) as scripted:
        outcome = run(log_dirs.main, "--bootstrap-server", f"127.0.0.1:{scripted.port}", "--describe")
    assert (outcome.status, outcome.stderr) == (1, "Cluster authorization failed.\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "This tool helps to query log directory usage"),
        (("--nosuch",), "nosuch is not a recognized option"),
        (("--describe",), 'Missing required argument "[bootstrap-server]"'),
        (("--bootstrap-server", "a:1"), 'Missing required argument "[describe]"'),
        (
            ("--bootstrap-server", "a:1", "--describe", "--broker-list", "a"),
            "Cannot parse argument 'a' of option broker-list",
        ),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: Sequence[str], line: str) -> None:
    outcome = run(log_dirs.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(line)
    assert "--broker-list <Broker list>" in outcome.stderr
