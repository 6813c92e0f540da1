"""ElectLeaders and the reassignment requests on a cluster of one broker, where nothing can be moved."""

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.in_process import InProcessBroker

PREFERRED, UNCLEAN = 0, 1


@pytest.mark.parametrize(
    ("version", "election_type"), [(0, PREFERRED), (1, PREFERRED), (1, UNCLEAN), (2, PREFERRED), (2, UNCLEAN)]
)
async def test_each_partition_gets_its_own_code(
    served: InProcessBroker, name: str, version: int, election_type: int
) -> None:
    await served.create_topic(name, 2)
    asked = [TopicPartitions(topic=name, partitions=[1, 9]), TopicPartitions(topic="absent", partitions=[0])]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked, timeout_ms=1000)
    response = await served.ask(request, version)
    assert response.error_code == ErrorCode.NONE
    assert {
        (topic.topic, result.partition_id): (result.error_code, result.error_message)
        for topic in response.replica_election_results
        for result in topic.partition_result
    } == {
        (name, 1): (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        (name, 9): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
        ("absent", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
    }


async def test_request_for_all_partitions_returns_only_the_elected_ones(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 2)
    response = await served.ask(ElectLeadersRequest(topic_partitions=None))
    assert (response.error_code, response.replica_election_results) == (ErrorCode.NONE, [])


async def test_unknown_kind_of_election_is_rejected(served: InProcessBroker) -> None:
    asked = [TopicPartitions(topic="t", partitions=[0])]
    response = await served.ask(ElectLeadersRequest(election_type=7, topic_partitions=asked))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("replicas", "code", "message"),
    [
        ([0], ErrorCode.NONE, None),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment."),
        (
            [0, 0],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate replica ids in partition reassignment replica list: [0, 0]",
        ),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid broker id in replica list: [-1]"),
        (
            [0, 5],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ("Replica assignment has brokers that are not alive. Replica list: [5], live broker list: [0]"),
        ),
    ],
)
async def test_invalid_target_replicas_are_rejected(
    served: InProcessBroker, name: str, replicas: list[int] | None, code: ErrorCode, message: str | None
) -> None:
    await served.create_topic(name)
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
    absent = [ReassignablePartition(partition_index=3, replicas=[0])]
    response = await served.ask(
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=partitions), ReassignableTopic(name="x", partitions=absent)]
        )
    )
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
    first, second = (topic.partitions[0] for topic in response.responses)
    assert (first.error_code, first.error_message) == (code, message)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_move_of_what_does_not_exist_cannot_be_cancelled(served: InProcessBroker, name: str) -> None:
    cancelled = ReassignablePartition(partition_index=3, replicas=None)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[cancelled])])
    (response,) = (await served.ask(request)).responses[0].partitions
    assert response.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_no_move_is_ever_under_way(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    one = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])]
    for topics in (None, one):
        response = await served.ask(ListPartitionReassignmentsRequest(topics=topics))
        assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, "", [])
