"""kafka-share-groups with scripted responses: tables, resets, deletions, exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
)
from protocol.messages.alter_share_group_offsets import TopicResult as AlteredTopicResult
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)
from protocol.messages.describe_share_group_offsets import (
    DescribedGroup as GroupOffsets,
)
from protocol.messages.describe_share_group_offsets import (
    DescribedPartition,
    DescribedTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin import share_groups

ID = UUID(int=7)
FIRST, LAST, AT_TIME = 3, 9, 5
"""The offsets of each partition: the first, the end, and the one at any time."""
NO_MEMBERS = "\nShare group 'idle' has no active members.\n"
FAILED = "\nError: Executing share group command failed due to org.apache.kafka.common.errors."


class Cluster:
    """The responses of one broker with the groups `idle`, without members, and `busy`, and the topic `orders`."""

    def __init__(self) -> None:
        self.broker = ScriptedBroker(self._respond)
        self.altered: dict[tuple[str, int], int] = {}
        self.alter_error = (0, "")

    @property
    def requests(self) -> list[object]:
        return self.broker.requests

    def _respond(self, request: object) -> object:
        respond: Callable[..., object] = getattr(self, f"_{type(request).__name__.removesuffix('Request')}")
        return respond(request)

    def _FindCoordinator(self, request: FindCoordinatorRequest) -> object:  # noqa: N802
        where = {"node_id": 4, "host": "127.0.0.1", "port": self.broker.port, "error_code": 0, "error_message": None}
        return FindCoordinatorResponse(coordinators=[Coordinator(key=request.coordinator_keys[0], **where)])

    def _Metadata(self, request: MetadataRequest) -> object:  # noqa: N802
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=4, replica_nodes=[4], isr_nodes=[4])
            for index in (0, 1)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=4, host="127.0.0.1", port=self.broker.port)],
            controller_id=4,
            topics=[
                MetadataResponseTopic(name=topic.name, partitions=partitions)
                if topic.name == "orders"
                else MetadataResponseTopic(
                    name=topic.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[]
                )
                for topic in request.topics or ()
            ],
        )

    def _ListOffsets(self, request: ListOffsetsRequest) -> object:  # noqa: N802
        by_timestamp = {-1: LAST, -2: FIRST}
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            offset=by_timestamp.get(partition.timestamp, AT_TIME),
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _ListGroups(self, request: ListGroupsRequest) -> object:  # noqa: N802
        assert request.types_filter == ["share"]
        states = {"busy": "Stable", "idle": "Empty"}
        return ListGroupsResponse(
            groups=[
                ListedGroup(group_id=group, protocol_type="share", group_state=state, group_type="share")
                for group, state in states.items()
                if not request.states_filter or state in request.states_filter
            ]
        )

    def _ShareGroupDescribe(self, request: ShareGroupDescribeRequest) -> object:  # noqa: N802
        (group,) = request.group_ids
        topics = [
            TopicPartitions(topic_id=ID, topic_name=topic, partitions=partitions)
            for topic, partitions in (("orders", [1, 0]), ("bills", [2]))
        ]
        members = [
            Member(
                member_id=name,
                member_epoch=6,
                client_id="reader",
                client_host="/127.0.0.1",
                subscribed_topic_names=["orders"],
                assignment=Assignment(topic_partitions=topics if name == "first" else []),
            )
            for name in ("second-of-the-members", "first")
        ]
        described = {
            "busy": DescribedGroup(
                group_id=group, group_state="Stable", group_epoch=6, assignment_epoch=5, members=members
            ),
            "idle": DescribedGroup(group_id=group, group_state="Empty", group_epoch=2, assignment_epoch=2),
        }
        unknown = DescribedGroup(
            group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group} not found."
        )
        return ShareGroupDescribeResponse(groups=[described.get(group, unknown)])

    def _DescribeShareGroupOffsets(self, request: DescribeShareGroupOffsetsRequest) -> object:  # noqa: N802
        (asked,) = request.groups
        assert asked.topics is None
        partitions = [
            DescribedPartition(partition_index=1),
            DescribedPartition(partition_index=0, start_offset=4, leader_epoch=2),
            DescribedPartition(partition_index=2, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        topics = [DescribedTopic(topic_name="orders", topic_id=ID, partitions=partitions)]
        return DescribeShareGroupOffsetsResponse(groups=[GroupOffsets(group_id=asked.group_id, topics=topics)])

    def _DeleteGroups(self, request: DeleteGroupsRequest) -> object:  # noqa: N802
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group, error_code=0) for group in request.groups_names]
        )

    def _AlterShareGroupOffsets(self, request: AlterShareGroupOffsetsRequest) -> object:  # noqa: N802
        self.altered = {
            (topic.topic_name, partition.partition_index): partition.start_offset
            for topic in request.topics
            for partition in topic.partitions
        }
        code, text = self.alter_error
        results = [
            PartitionResult(partition_index=partition, error_code=code, error_message=text or None)
            for _, partition in self.altered
        ]
        return AlterShareGroupOffsetsResponse(
            responses=[AlteredTopicResult(topic_name="orders", topic_id=ID, partitions=results)]
        )

    def _DeleteShareGroupOffsets(self, request: DeleteShareGroupOffsetsRequest) -> object:  # noqa: N802
        if request.group_id == "busy":
            return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        codes = {"orders": (0, None), "nosuch": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Nothing to delete.")}
        unknown = (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        return DeleteShareGroupOffsetsResponse(
            responses=[
                TopicResult(topic_name=topic.topic_name, topic_id=ID, error_code=code, error_message=text)
                for topic in request.topics
                for code, text in [codes.get(topic.topic_name, unknown)]
            ]
        )


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    with cluster.broker:
        yield cluster


@pytest.fixture
def groups(cluster: Cluster, run: RunTool) -> RunTool:
    bootstrap = f"127.0.0.1:{cluster.broker.port}"
    return lambda *arguments: run(share_groups.main, "--bootstrap-server", bootstrap, *arguments)


def test_groups_are_listed(groups: RunTool) -> None:
    assert groups("--list") == Outcome(0, "busy\nidle\n", "")
    assert (
        groups("--list", "--state").stdout == "GROUP           STATE\nbusy            Stable\nidle            Empty\n"
    )
    assert groups("--list", "--state", "dead, EMPTY").stdout == "GROUP           STATE\nidle            Empty\n"


def test_start_offsets_are_described(groups: RunTool) -> None:
    assert groups("--describe", "--group", "idle") == Outcome(
        0,
        "\n"
        "GROUP           TOPIC           PARTITION  START-OFFSET\n"
        "idle            orders          0          4\n"
        "idle            orders          1          -\n",
        "",
    )
    both = groups("--describe", "--all-groups", "--offsets", "--verbose").stdout
    heading = "\nGROUP           TOPIC           PARTITION  LEADER-EPOCH  START-OFFSET\n"
    assert both == "".join(
        f"{heading}{group}            orders          0          2             4\n"
        f"{group}            orders          1          -             -\n"
        for group in ("busy", "idle")
    )


def test_members_are_described(groups: RunTool) -> None:
    columns = "GROUP           CONSUMER-ID           HOST            CLIENT-ID       #PARTITIONS  "
    first = "busy            first                 /127.0.0.1      reader          3            "
    second = "busy            second-of-the-members /127.0.0.1      reader          0            "
    assert groups("--describe", "--all-groups", "--members") == Outcome(
        0, f"\n{columns}ASSIGNMENT\n{first}bills:2;orders:0,1\n{second}\n", NO_MEMBERS
    )
    assert groups("--describe", "--group", "busy", "--members", "--verbose").stdout == (
        f"\n{columns}MEMBER-EPOCH  ASSIGNMENT\n{first}6             bills:2;orders:0,1\n{second}6             \n"
    )


def test_states_are_described(cluster: Cluster, groups: RunTool) -> None:
    coordinator = f"{f'127.0.0.1:{cluster.broker.port}  (4)':<25}"
    heading = "\nGROUP           COORDINATOR (ID)          STATE           "
    assert groups("--describe", "--all-groups", "--state") == Outcome(
        0,
        f"{heading}#MEMBERS\nbusy            {coordinator} Stable          2\n"
        f"{heading}#MEMBERS\nidle            {coordinator} Empty           0\n",
        NO_MEMBERS,
    )
    assert groups("--describe", "--group", "busy", "--state", "--verbose").stdout == (
        f"{heading}GROUP-EPOCH  ASSIGNMENT-EPOCH  #MEMBERS\n"
        f"busy            {coordinator} Stable          6            5                 2\n"
    )


def test_an_unknown_group_fails_the_description(groups: RunTool) -> None:
    expected = Outcome(0, f"{FAILED}GroupIdNotFoundException: Group nosuch not found.\n", "")
    assert groups("--describe", "--group", "busy", "--group", "nosuch") == expected
    assert groups("--describe", "--group", "nosuch", "--state", "--strict-exit") == expected._replace(status=1)


def test_only_share_groups_without_members_are_deleted(cluster: Cluster, groups: RunTool) -> None:
    assert groups("--delete", "--group", "idle") == Outcome(
        0, "Deletion of requested share groups ('idle') was successful.\n", ""
    )
    assert groups("--delete", "--group", "busy", "--group", "idle", "--group", "nosuch") == Outcome(
        0,
        "\nError: Deletion of some share groups failed:\n"
        "* Group 'busy' could not be deleted due to: "
        "org.apache.kafka.common.errors.GroupNotEmptyException: Share group 'busy' is not EMPTY.\n"
        "* Group 'nosuch' could not be deleted due to: "
        "java.lang.IllegalArgumentException: Group 'nosuch' is not a share group.\n"
        "\nThese share groups were deleted successfully: 'idle'\n",
        "",
    )
    assert groups("--delete", "--all-groups", "--strict-exit").status == 1
    deleted = [request.groups_names for request in cluster.requests if isinstance(request, DeleteGroupsRequest)]
    assert deleted == [["idle"]] * 3


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (("--topic", "orders", "--to-earliest"), {0: FIRST, 1: FIRST}),
        (("--topic", "orders:1", "--to-latest"), {1: LAST}),
        (("--all-topics", "--to-datetime", "2030-03-17T17:46:45.000"), {0: AT_TIME, 1: AT_TIME}),
    ],
)
def test_start_offsets_are_reset_with_execute(
    cluster: Cluster, groups: RunTool, arguments: tuple[str, ...], offsets: dict[int, int]
) -> None:
    table = "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\n" + "".join(
        f"idle            orders          {partition}          {offset}\n" for partition, offset in offsets.items()
    )
    assert groups("--reset-offsets", "--group", "idle", *arguments, "--dry-run") == Outcome(0, table, "")
    assert not cluster.altered
    assert groups("--reset-offsets", "--group", "idle", *arguments, "--execute") == Outcome(0, table, "")
    assert cluster.altered == {("orders", partition): offset for partition, offset in offsets.items()}


RESET = ("--reset-offsets", "--topic", "orders", "--to-latest", "--execute")


def test_the_coordinator_decides_about_a_group_that_does_not_exist(cluster: Cluster, groups: RunTool) -> None:
    assert groups(*RESET, "--group", "new").status == 0
    assert cluster.altered == {("orders", 0): LAST, ("orders", 1): LAST}


def test_a_rejected_reset_is_reported(cluster: Cluster, groups: RunTool) -> None:
    assert groups(*RESET, "--group", "busy").stdout == (
        f"{FAILED}GroupNotEmptyException: Share group 'busy' is not empty.\n"
    )
    unknown = ("--reset-offsets", "--topic", "nosuch", "--to-latest", "--execute", "--group", "idle")
    assert groups(*unknown).stdout.startswith(f"{FAILED}UnknownTopicOrPartitionException: ")
    assert not cluster.altered
    cluster.alter_error = (ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
    assert groups(*RESET, "--group", "idle").stdout == f"{FAILED}KafkaStorageException: The disk is full.\n"


def test_a_reset_without_a_result_for_a_partition_fails(
    cluster: Cluster, groups: RunTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_AlterShareGroupOffsets", lambda request: AlterShareGroupOffsetsResponse())
    assert groups(*RESET, "--group", "idle").stdout == (
        f"{FAILED}UnknownServerException: The response has no result for orders-0.\n"
    )


def test_start_offsets_of_topics_are_deleted(groups: RunTool) -> None:
    arguments = ("--delete-offsets", "--group", "idle", "--topic", "orders", "--topic", "nosuch")
    table = "\nTOPIC           STATUS\nnosuch          Error: Nothing to delete.\norders          Successful\n"
    assert groups(*arguments) == Outcome(0, table, "")
    assert groups(*arguments, "--strict-exit").status == 1


def test_a_failed_deletion_of_offsets_is_reported(groups: RunTool) -> None:
    arguments = ("--delete-offsets", "--topic", "orders", "--group", "busy")
    text = "Error: The group is not empty.\n"
    assert groups(*arguments).stdout == f"\n{text}\nTOPIC           STATUS\norders          {text}"
    odd = groups("--delete-offsets", "--topic", "odd", "--group", "idle").stdout
    assert odd.startswith(
        "\nError: Encounter some unknown error: org.apache.kafka.common.errors.CoordinatorNotAvailableException: "
    )


BAD: list[tuple[tuple[str, ...], str]] = [
    ((), "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets."),
    (("--list", "--describe", "--group", "g"), 'Option "[group]" can\'t be used with option "[list]"'),
    (("--list", "--topic", "t"), 'Option "[topic]" can\'t be used with option "[list]"'),
    (("--list", "--state", "assigning"), "Invalid state list 'assigning'. Valid states are: Dead, Empty, Stable"),
    (("--list", "--members"), 'Option "[members]" can\'t be used with option "[list]"'),
    (("--describe",), "Option [describe] takes one of these options: [all-groups], [group]"),
    (
        ("--describe", "--group", "g", "--state", "--members"),
        "Option [describe] takes at most one of these options: [members], [offsets], [state]",
    ),
    (
        ("--describe", "--group", "g", "--state", "stable"),
        "Option [describe] does not take a value for [state]",
    ),
    (("--describe", "--group", "g", "--topic", "t"), 'Option "[topic]" can\'t be used with option "[describe]"'),
    (("--describe", "--group", "g", "--all-groups"), 'Option "[group]" can\'t be used with option "[all-groups]"'),
    (("--delete",), "Option [delete] takes the options [group] or [all-groups]"),
    (("--delete", "--group", "g", "--all-groups"), "Option [delete] takes either [group] or [all-groups], not both."),
    (("--delete", "--group", "g", "--topic", "t"), "Option [delete] does not take the option: [topic]"),
    (("--delete-offsets", "--group", "g"), "Option [delete-offsets] takes the following options: [topic], [group]"),
    (
        ("--delete-offsets", "--group", "g", "--group", "h", "--topic", "t"),
        "Found multiple arguments for option group, but you asked for only one",
    ),
    (("--reset-offsets", "--execute"), "Option [reset-offsets] takes the option: [group]"),
    (RESET[:-1], "Option [reset-offsets] takes the option: [execute] or [dry-run]"),
    ((*RESET, "--dry-run"), "Option [reset-offsets] only accepts one of [execute] and [dry-run]"),
    ((*RESET, "--group", "g", "--to-earliest"), 'Option "[to-earliest]" can\'t be used with option "[to-latest]"'),
    ((*RESET, "--group", "g", "--all-topics"), 'Option "[all-topics]" can\'t be used with option "[topic]"'),
    (
        ("--reset-offsets", "--execute", "--group", "g", "--to-latest"),
        "One of the reset scopes should be defined: --all-topics, --topic.",
    ),
    (
        ("--reset-offsets", "--execute", "--group", "g", "--topic", "t"),
        "Option [reset-offsets] requires one of the following scenarios: --to-earliest, --to-latest, --to-datetime",
    ),
]


@pytest.mark.parametrize(("arguments", "error"), BAD)
def test_a_wrong_command_line_is_rejected(run: RunTool, arguments: tuple[str, ...], error: str) -> None:
    outcome = run(share_groups.main, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"{error}\n")
