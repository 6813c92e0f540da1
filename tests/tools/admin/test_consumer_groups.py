"""kafka-consumer-groups with a real broker: tables, resets, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin import consumer_groups, topics

OFFSETS_HEADING = (
    "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
    "CONSUMER-ID     HOST            CLIENT-ID\n"
)
RESET_HEADING = "GROUP                          TOPIC                          PARTITION  NEW-OFFSET     \n"
FIRST_RECORD_MS = 1_900_000_000_000


@pytest.fixture
def groups(broker: BrokerProcess, run: RunTool) -> RunTool:
    def run_groups(*arguments: str) -> Outcome:
        return run(consumer_groups.main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run_groups


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    """Two partitions with 10 and 20 records, one second apart."""
    topics.main(["--bootstrap-server", broker.bootstrap, "--create", "--topic", "flights", "--partitions", "2"])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for partition, count in ((0, 10), (1, 20)):
        for number in range(count):
            timestamp = FIRST_RECORD_MS + 1000 * number
            producer.produce("flights", b"%d" % number, partition=partition, timestamp=timestamp)
    assert producer.flush(30) == 0
    return "flights"


def commit(broker: BrokerProcess, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str, **settings: str) -> Iterator[None]:
    """A live member of a group, with all partitions of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.05)
        yield
    finally:
        consumer.close()


def test_group_without_members_is_described(broker: BrokerProcess, groups: RunTool, topic: str) -> None:
    commit(broker, "app", {(topic, 0): 10, (topic, 1): 5})
    outcome = groups("--describe", "--group", "app")
    assert outcome.status == 0
    assert outcome.stdout == (
        "\n"
        + OFFSETS_HEADING
        + "app             flights         0          10              10              0               "
        "-               -               -\n"
        "app             flights         1          5               20              15              "
        "-               -               -\n"
    )
    assert outcome.stderr == "\nConsumer group 'app' has no active members.\n"
    members = groups("--describe", "--group", "app", "--members")
    assert members.stdout == "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     \n"
    state = groups("--describe", "--group", "app", "--state").stdout
    assert state == (
        "\nGROUP                     COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE           #MEMBERS\n"
        f"app                       {f'{broker.bootstrap}  (0)':<25}                      Empty           0\n"
    )


def test_group_with_a_member_is_described(broker: BrokerProcess, groups: RunTool, topic: str) -> None:
    commit(broker, "live", {(topic, 0): 3})
    with member(broker, "live", topic, group_instance_id="inst-9"):
        offsets = groups("--describe", "--group", "live", "--offsets")
        verbose = groups("--describe", "--group", "live", "--members", "--verbose")
        state = groups("--describe", "--group", "live", "--state")
    assert offsets.stderr == verbose.stderr == state.stderr == ""
    rows = [line.split() for line in offsets.stdout.splitlines()[2:]]
    assert [row[:6] for row in rows] == [
        ["live", topic, "0", "3", "10", "7"],
        ["live", topic, "1", "-", "20", "-"],
    ]
    assert all(re.fullmatch(r"inst-9-[0-9a-f-]{36}", row[6]) for row in rows)
    assert [row[7:] for row in rows] == [["/127.0.0.1", "reader"]] * 2
    heading, row = (line.split() for line in verbose.stdout.splitlines()[1:])
    assert heading == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    assert row[2:] == ["inst-9", "/127.0.0.1", "reader", "2", "(0,1)"]
    assert state.stdout.splitlines()[2].split() == ["live", broker.bootstrap, "(0)", "range", "Stable", "1"]


def test_unknown_group_is_reported(groups: RunTool) -> None:
    for what in ("--offsets", "--state"):
        outcome = groups("--describe", "--group", "nosuch", what)
        assert outcome == Outcome(0, "\nError: Consumer group 'nosuch' does not exist.\n", "")
    assert groups("--describe", "--group", "nosuch", "--strict-exit").status == 1


def test_groups_are_listed(broker: BrokerProcess, groups: RunTool, topic: str) -> None:
    commit(broker, "listed", {(topic, 0): 1})
    assert "listed\n" in groups("--list").stdout
    by_state = groups("--list", "--state", "empty").stdout.splitlines()
    assert re.fullmatch(r"GROUP +STATE {15}", by_state[0])
    assert "listed" in [line.split()[0] for line in by_state]
    with_both = groups("--list", "--state", "--type").stdout.splitlines()
    assert with_both[0].split() == ["GROUP", "TYPE", "STATE"]
    assert ["listed", "Classic", "Empty"] in [line.split() for line in with_both]
    assert "listed" not in groups("--list", "--state", "Stable").stdout


def test_all_groups_are_described(broker: BrokerProcess, groups: RunTool, topic: str) -> None:
    commit(broker, "all-1", {(topic, 0): 1})
    commit(broker, "all-2", {(topic, 0): 2})
    outcome = groups("--describe", "--all-groups").stdout
    assert outcome.startswith("\n")
    assert "\n\n" not in outcome
    first, second = outcome.index("all-1 "), outcome.index("all-2 ")
    assert first < second
    assert OFFSETS_HEADING in outcome[first:second]


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 20}),
        (["--to-current"], {0: 4, 1: 8}),
        (["--to-offset", "7"], {0: 7, 1: 7}),
        (["--to-offset", "15"], {0: 10, 1: 15}),
        (["--shift-by", "-2"], {0: 2, 1: 6}),
        (["--shift-by", "3"], {0: 7, 1: 11}),
        (["--shift-by", "-99"], {0: 0, 1: 0}),
        (["--to-datetime", "2030-03-17T17:46:45.000"], {0: 5, 1: 5}),
        (["--to-datetime", "2030-03-17T17:46:55.000"], {0: 10, 1: 15}),
        (["--to-datetime", "2020-01-01T00:00:00.000Z"], {0: 0, 1: 0}),
    ],
)
def test_reset_scenarios_compute_their_offsets(
    broker: BrokerProcess, groups: RunTool, topic: str, scenario: list[str], expected: dict[int, int]
) -> None:
    commit(broker, "reset", {(topic, 0): 4, (topic, 1): 8})
    outcome = groups("--reset-offsets", "--group", "reset", "--topic", topic, *scenario, "--dry-run")
    assert outcome.status == 0
    assert outcome.stdout == "\n" + RESET_HEADING + "".join(
        f"reset                          flights                        {partition}          {offset:<15}\n"
        for partition, offset in expected.items()
    )


def test_reset_warns_about_clamped_offsets(
    broker: BrokerProcess, groups: RunTool, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit(broker, "clamped", {(topic, 0): 4})
    groups("--reset-offsets", "--group", "clamped", "--topic", f"{topic}:0", "--to-offset", "99", "--dry-run")
    assert caplog.messages == [
        "New offset (99) is higher than latest offset for topic partition flights-0. Value will be set to 10"
    ]


def test_reset_is_executed_only_with_execute(broker: BrokerProcess, groups: RunTool, topic: str) -> None:
    commit(broker, "executed", {(topic, 0): 4, (topic, 1): 8})
    dry = groups("--reset-offsets", "--group", "executed", "--all-topics", "--to-earliest")
    assert dry.stderr.startswith("WARN: No action will be performed as the --execute option is missing.")
    assert "executed        flights         0          4 " in groups("--describe", "--group", "executed").stdout
    groups("--reset-offsets", "--group", "executed", "--topic", f"{topic}:0", "--to-earliest", "--execute")
    described = groups("--describe", "--group", "executed").stdout
    assert "executed        flights         0          0 " in described
    assert "executed        flights         1          8 " in described


def test_exported_offsets_are_imported(broker: BrokerProcess, groups: RunTool, topic: str, tmp_path: Path) -> None:
    commit(broker, "exported", {(topic, 0): 4, (topic, 1): 8})
    exported = groups(
        "--reset-offsets", "--group", "exported", "--topic", topic, "--to-current", "--export", "--dry-run"
    )
    assert exported.stdout == "flights,0,4\nflights,1,8\n"
    path = tmp_path / "offsets.csv"
    path.write_text(exported.stdout)
    groups("--reset-offsets", "--group", "exported", "--topic", topic, "--to-latest", "--execute")
    restored = groups("--reset-offsets", "--group", "exported", "--from-file", str(path), "--execute")
    assert "flights                        1          8 " in restored.stdout
    assert "exported        flights         1          8 " in groups("--describe", "--group", "exported").stdout
    two = groups(
        "--reset-offsets",
        "--group",
        "exported",
        "--group",
        "app",
        "--topic",
        f"{topic}:0",
        "--to-offset",
        "1",
        "--export",
        "--dry-run",
    )
    assert two.stdout == "app,flights,0,1\nexported,flights,0,1\n"


def test_active_group_cannot_be_reset(broker: BrokerProcess, groups: RunTool, topic: str) -> None:
    with member(broker, "busy", topic):
        outcome = groups("--reset-offsets", "--group", "busy", "--topic", topic, "--to-earliest", "--execute")
        strict = groups(
            "--reset-offsets", "--group", "busy", "--topic", topic, "--to-earliest", "--execute", "--strict-exit"
        )
    assert outcome.status == 0
    assert outcome.stdout == (
        "\nError: Assignments can only be reset if the group 'busy' is inactive, but the current state is Stable.\n"
        "\n" + RESET_HEADING
    )
    assert strict.status == 1


def test_reset_of_an_unknown_topic_is_reported(groups: RunTool) -> None:
    outcome = groups("--reset-offsets", "--group", "g", "--topic", "nosuch", "--to-latest", "--dry-run")
    assert outcome.status == 0
    assert outcome.stdout == (
        "\nError: Executing consumer group command failed due to org.apache.kafka.common.errors."
        "UnknownTopicOrPartitionException: This server does not host this topic-partition.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--group", "g"), "Command must include exactly one action"),
        (("--list", "--describe"), "Command must include exactly one action"),
        (
            ("--describe",),
            "Option [describe] takes one of these options: [reset-offsets], [describe], [delete], [list]",
        ),
        (
            ("--describe", "--group", "g", "--members", "--state"),
            "Option [describe] takes at most one of these options",
        ),
        (("--describe", "--group", "g", "--state", "Empty"), "Option [describe] does not take a value for [state]"),
        (("--describe", "--group", "g", "--topic", "t"), 'Option "[topic]" can\'t be used with option "[describe]"'),
        (("--list", "--group", "g"), 'Option "[group]" can\'t be used with option "[list]"'),
        (("--delete", "--group", "g", "--topic", "t"), "The consumer does not support topic-specific offset deletion"),
        (("--delete-offsets", "--group", "g"), "Option [delete-offsets] takes the following options: [topic], [group]"),
        (
            ("--reset-offsets", "--group", "g", "--dry-run", "--execute"),
            "Option [reset-offsets] only accepts one of [execute] and [dry-run]",
        ),
        (
            ("--reset-offsets", "--group", "g", "--to-latest", "--to-earliest", "--dry-run"),
            'Option "[to-earliest]" can\'t be used with option "[to-latest]"',
        ),
        (("--list", "--nosuch"), "nosuch is not a recognized option"),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(consumer_groups.main, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--list", "--state", "asleep"), "Invalid state list 'asleep'. Valid states are: "),
        (("--list", "--type", "share"), "Invalid types list 'share'. Valid types are: Consumer, Classic"),
        (("--reset-offsets", "--group", "g", "--to-latest", "--dry-run"), "One of the reset scopes should be defined"),
        (
            ("--reset-offsets", "--group", "g", "--topic", "t:0", "--dry-run"),
            "Option '[reset-offsets]' requires one of",
        ),
        (("--reset-offsets", "--group", "g", "--topic", "t:x", "--to-latest", "--dry-run"), "Invalid topic arg 't:x'"),
        (
            ("--reset-offsets", "--group", "g", "--from-file", "/nowhere", "--dry-run"),
            "Cannot read offsets from /nowhere",
        ),
        (
            ("--reset-offsets", "--group", "g", "--topic", "t:0", "--shift-by", "1", "--dry-run"),
            "Cannot shift offset for partition t-0 since there is no current committed offset",
        ),
    ],
)
def test_usage_errors_after_requests_are_reported(groups: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = groups(*arguments)
    assert outcome.status == 1
    assert text in outcome.stderr


def test_missing_broker_is_reported(run: RunTool) -> None:
    outcome = run(consumer_groups.main, "--bootstrap-server", "127.0.0.1:1", "--list", "--timeout", "200")
    assert outcome.status == 1
    assert outcome.stderr.startswith("No broker at 127.0.0.1:1: Connection refused")


class TestDeletion:
    """Deletion of groups and offsets, with a scripted broker."""

    @staticmethod
    def scripted(responses: dict[str, int], partition_code: int = 0) -> ScriptedBroker:
        def respond(request: object) -> object:
            match request:
                case FindCoordinatorRequest():
                    here = Coordinator(key=request.coordinator_keys[0], node_id=0, host="127.0.0.1", port=broker.port)
                    return FindCoordinatorResponse(coordinators=[here])
                case DeleteGroupsRequest():
                    (group,) = request.groups_names
                    return DeleteGroupsResponse(
                        results=[DeletableGroupResult(group_id=group, error_code=responses[group])]
                    )
                case OffsetDeleteRequest():
                    partition = OffsetDeleteResponsePartition(partition_index=1, error_code=partition_code)
                    topics = [OffsetDeleteResponseTopic(name="wire", partitions=[partition])]
                    return OffsetDeleteResponse(error_code=responses[request.group_id], topics=topics)
                case _:
                    partitions = [
                        MetadataResponsePartition(partition_index=1, leader_id=0, replica_nodes=[0], isr_nodes=[0])
                    ]
                    return MetadataResponse(
                        brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=broker.port)],
                        topics=[MetadataResponseTopic(name="wire", partitions=partitions)],
                    )

        broker = ScriptedBroker(respond)
        return broker

    def test_groups_are_deleted(self, run: RunTool) -> None:
        with self.scripted({"a": 0, "b": 0}) as broker:
            bootstrap = f"127.0.0.1:{broker.port}"
            outcome = run(
                consumer_groups.main, "--bootstrap-server", bootstrap, "--delete", "--group", "a", "--group", "b"
            )
        assert outcome == Outcome(0, "Deletion of requested consumer groups ('a', 'b') was successful.\n", "")

    def test_groups_that_cannot_be_deleted_are_reported(self, run: RunTool) -> None:
        with self.scripted({"a": 0, "live": ErrorCode.NON_EMPTY_GROUP}) as broker:
            bootstrap = f"127.0.0.1:{broker.port}"
            outcome = run(
                consumer_groups.main, "--bootstrap-server", bootstrap, "--delete", "--group", "a", "--group", "live"
            )
        assert outcome == Outcome(
            0,
            "\nError: Deletion of some consumer groups failed:\n"
            "* Group 'live' could not be deleted due to: java.util.concurrent.ExecutionException: "
            "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty.\n"
            "\nThese consumer groups were deleted successfully: 'a'\n",
            "",
        )

    def test_offsets_are_deleted(self, run: RunTool) -> None:
        with self.scripted({"cons-g": 0}) as broker:
            bootstrap = f"127.0.0.1:{broker.port}"
            outcome = run(
                consumer_groups.main,
                "--bootstrap-server",
                bootstrap,
                "--delete-offsets",
                "--group",
                "cons-g",
                "--topic",
                "wire:1",
            )
        assert outcome.stdout == (
            "Request succeed for deleting offsets with topic wire:1 group cons-g\n\n"
            "TOPIC                          PARTITION       STATUS         \n"
            "wire                           1               Successful     \n"
        )

    def test_offsets_of_a_consumed_partition_are_not_deleted(self, run: RunTool) -> None:
        with self.scripted({"cons-g": 0}, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) as broker:
            bootstrap = f"127.0.0.1:{broker.port}"
            outcome = run(
                consumer_groups.main,
                "--bootstrap-server",
                bootstrap,
                "--delete-offsets",
                "--group",
                "cons-g",
                "--topic",
                "wire",
            )
        assert outcome.stdout.startswith(
            "\nError: Encounter some partition level error, see the follow-up details:\n\nTOPIC "
        )
        assert "Error: Deleting offsets of a topic is forbidden" in outcome.stdout

    @pytest.mark.parametrize(
        ("code", "text"),
        [
            (ErrorCode.GROUP_ID_NOT_FOUND, "'g' does not exist."),
            (ErrorCode.INVALID_GROUP_ID, "'g' is not valid."),
            (
                ErrorCode.NON_EMPTY_GROUP,
                "Deleting offsets of a consumer group 'g' is forbidden if the group is not empty.",
            ),
            (ErrorCode.UNKNOWN_SERVER_ERROR, "Encounter some unknown error: UnknownServerException"),
        ],
    )
    def test_offsets_of_other_groups_are_kept(self, run: RunTool, code: ErrorCode, text: str) -> None:
        with self.scripted({"g": code}) as broker:
            bootstrap = f"127.0.0.1:{broker.port}"
            outcome = run(
                consumer_groups.main,
                "--bootstrap-server",
                bootstrap,
                "--delete-offsets",
                "--group",
                "g",
                "--topic",
                "wire:1",
            )
        assert outcome.stdout == f"\nError: {text}\n"
