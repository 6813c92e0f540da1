"""Lines of kafka-topics --describe for states of clusters: reassignments, replicas out of sync, missing leaders."""

from __future__ import annotations

import pytest

from config.topic_properties import TOPIC_PROPERTIES
from protocol.ids import parse_id
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin.topic_descriptions import PARTITION_FILTERS, describe_topics
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import Endpoint

DEFAULT, OVERRIDE, CLUSTER_DEFAULT = 5, 1, 3


def topic(name: str, topic_id: str, *partitions: MetadataResponsePartition) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, topic_id=parse_id(topic_id), partitions=list(partitions))


def partition(index: int, leader: int, replicas: list[int], isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)


EVENTS = topic(
    "events",
    "pSEGtdSkRXmCBClYmmbVaw",
    partition(1, 3, [3, 1, 2], [3, 1, 2]),
    partition(0, 2, [2, 3, 1], [2, 3, 1]),
)
MOVING = topic("bigt", "mxeDiPb0QsCUKycbljLM5g", partition(0, 1, [2, 3, 1], [1, 2]))
LAGGING = topic(
    "lagging",
    "AAAAAAAAAAAAAAAAAAAAAQ",
    partition(0, 1, [1, 2, 3], [1, 2]),
    partition(1, 2, [2, 3, 1], [2]),
    partition(2, -1, [9, 1], [9]),
    partition(3, 9, [9, 1], [9, 1]),
)
# A broker returns every key; the printed order depends on their number.
EVERY_DEFAULT = dict.fromkeys(TOPIC_PROPERTIES, ("1", DEFAULT))
CONFIGS = {
    "events": {"max.message.bytes": ("2000000", OVERRIDE), "retention.ms": ("7200000", OVERRIDE)},
    "bigt": {
        "max.message.bytes": ("1500000", CLUSTER_DEFAULT),
        "follower.replication.throttled.replicas": ("0:3", OVERRIDE),
        "leader.replication.throttled.replicas": ("0:1,0:2", OVERRIDE),
    },
    "lagging": {"min.insync.replicas": ("2", DEFAULT)},
}


def describe(*topics: MetadataResponseTopic, **wanted: object) -> list[str]:
    def respond(request: object) -> object:
        match request:
            case DescribeConfigsRequest():
                return DescribeConfigsResponse(
                    results=[configs(resource.resource_name) for resource in request.resources]
                )
            case ListPartitionReassignmentsRequest():
                move = OngoingPartitionReassignment(
                    partition_index=0, replicas=[2, 3, 1], adding_replicas=[3], removing_replicas=[1]
                )
                moving = OngoingTopicReassignment(name="bigt", partitions=[move])
                return ListPartitionReassignmentsResponse(topics=[moving], error_message=None)
            case _:
                brokers = [
                    MetadataResponseBroker(node_id=node, host="127.0.0.1", port=broker.port) for node in (1, 2, 3)
                ]
                return MetadataResponse(brokers=brokers, controller_id=1, topics=[])

    with ScriptedBroker(respond) as broker, AdminClient([Endpoint("127.0.0.1", broker.port)], timeout_ms=5000) as admin:
        return list(describe_topics(admin, topics, **wanted))  # type: ignore[arg-type]


def configs(name: str) -> DescribeConfigsResult:
    rows = [
        DescribeConfigsResourceResult(
            name=key, value=value, read_only=False, config_source=source, is_sensitive=False, synonyms=[]
        )
        for key, (value, source) in {**EVERY_DEFAULT, **CONFIGS[name]}.items()
    ]
    return DescribeConfigsResult(error_message=None, resource_type=2, resource_name=name, configs=rows)


def test_replicas_keep_their_order_and_partitions_are_sorted() -> None:
    assert describe(EVENTS) == [
        (
            "Topic: events\tTopicId: pSEGtdSkRXmCBClYmmbVaw\tPartitionCount: 2\tReplicationFactor: 3\t"
            "Configs: retention.ms=7200000,max.message.bytes=2000000"
        ),
        "\tTopic: events\tPartition: 0\tLeader: 2\tReplicas: 2,3,1\tIsr: 2,3,1\tElr: N/A\tLastKnownElr: N/A",
        "\tTopic: events\tPartition: 1\tLeader: 3\tReplicas: 3,1,2\tIsr: 3,1,2\tElr: N/A\tLastKnownElr: N/A",
    ]


def test_reassigned_partition_shows_added_and_removed_replicas() -> None:
    assert describe(MOVING) == [
        (
            "Topic: bigt\tTopicId: mxeDiPb0QsCUKycbljLM5g\tPartitionCount: 1\tReplicationFactor: 2\t"
            "Configs: leader.replication.throttled.replicas=0:1,0:2,follower.replication.throttled.replicas=0:3,"
            "max.message.bytes=1500000"
        ),
        (
            "\tTopic: bigt\tPartition: 0\tLeader: 1\tReplicas: 2,3,1\tIsr: 1,2\t"
            "Adding Replicas: 3\tRemoving Replicas: 1\tElr: N/A\tLastKnownElr: N/A"
        ),
    ]


def test_partition_without_leader_is_described() -> None:
    assert "\tPartition: 2\tLeader: none\tReplicas: 9,1\tIsr: 9\t" in describe(LAGGING)[3]


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("--under-replicated-partitions", [0, 1, 2]),
        ("--unavailable-partitions", [2, 3]),
        ("--under-min-isr-partitions", [1, 2]),
        ("--at-min-isr-partitions", [0, 3]),
    ],
)
def test_filters_show_matching_partitions_only(name: str, partitions: list[int]) -> None:
    lines = describe(LAGGING, MOVING, only_partitions=[name])
    of_lagging = [line for line in lines if "\tTopic: lagging\t" in line]
    assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in of_lagging] == partitions
    assert all(line.startswith("\tTopic: ") for line in lines)


def test_replicas_of_a_reassignment_are_not_under_replicated() -> None:
    assert describe(MOVING, only_partitions=["--under-replicated-partitions"]) == []


def test_only_topics_with_overrides_are_described() -> None:
    lines = describe(EVENTS, LAGGING, only_overrides=True)
    assert [line.split("\t")[0] for line in lines] == ["Topic: events"]


def test_no_topics_print_no_lines() -> None:
    assert describe() == []


def test_descriptions_have_four_filters() -> None:
    assert len(PARTITION_FILTERS) == 4


def test_partitions_of_any_of_several_filters_are_described() -> None:
    names = list(PARTITION_FILTERS)
    each = {line for name in names for line in describe(LAGGING, MOVING, only_partitions=[name])}
    assert sorted(describe(LAGGING, MOVING, only_partitions=names)) == sorted(each)
