"""A topic named in several places, a partition named twice, a topic without partitions.

A response has each partition once, all partitions of a topic together, and no topic without partitions; as Apache
Kafka 3.9.1 does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from base.pause import never, whole
from broker.handlers.group_by_topic import group_by_topic
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker

Named = list[tuple[str, list[int]]]

ASKED: Named = [("b", [1, 0, 1]), ("a", [0]), ("none", []), ("b", [0, 2])]
RESPONDED: Named = [("b", [1, 0, 2]), ("a", [0])]
ONE_RECORD = build_batch([RecordData(0, None, b"x")])


def shown(topics: Sequence[Any], partitions: str = "partitions", index: str = "partition_index") -> Named:
    return [(topic.name, [getattr(it, index) for it in getattr(topic, partitions)]) for topic in topics]


@pytest.fixture
async def broker(served: InProcessBroker) -> InProcessBroker:
    await served.create_topic("a")
    await served.create_topic("b", 3)
    await served.create_topic("none")
    for key_type, key in ((0, "g"), (1, "id")):
        await served.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
    return served


async def commit(broker: InProcessBroker, version: int = 9) -> Any:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=it, committed_offset=place, committed_metadata=None)
                for place, it in enumerate(partitions)
            ],
        )
        for name, partitions in ASKED
    ]
    return await broker.ask(OffsetCommitRequest(group_id="g", topics=topics), version)


@pytest.mark.parametrize("version", [0, 1, 9])
async def test_offset_commit_response_groups_repeated_partitions(broker: InProcessBroker, version: int) -> None:
    assert shown((await commit(broker, version)).topics) == RESPONDED


@pytest.mark.parametrize("version", [0, 7])
async def test_offset_fetch_response_groups_repeated_partitions(broker: InProcessBroker, version: int) -> None:
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in ASKED]
    response = await broker.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
    assert shown(response.topics) == RESPONDED


async def test_offset_fetch_response_of_several_groups_groups_repeated_partitions(broker: InProcessBroker) -> None:
    await commit(broker)
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in ASKED]
    (group,) = (
        await broker.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]))
    ).groups
    assert shown(group.topics) == RESPONDED
    assert [it.committed_offset for it in group.topics[0].partitions] == [2, 0, 1], "the last one that was committed"


async def test_offset_delete_response_groups_repeated_partitions(broker: InProcessBroker) -> None:
    await commit(broker)
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=it) for it in partitions]
        )
        for name, partitions in ASKED
    ]
    response = await broker.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    assert shown(response.topics) == RESPONDED
    assert {it.error_code for topic in response.topics for it in topic.partitions} == {ErrorCode.NONE}


async def test_offsets_in_a_transaction(broker: InProcessBroker) -> None:
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=it, committed_offset=1, committed_metadata=None)
                for it in partitions
            ],
        )
        for name, partitions in ASKED
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="id", group_id="g", producer_id=1, producer_epoch=0, topics=topics
    )
    assert shown((await broker.ask(request)).topics) == RESPONDED


async def test_partitions_of_a_transaction(broker: InProcessBroker) -> None:
    while producer := await broker.ask(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000)):
        if not producer.error_code:
            break
        await asyncio.sleep(0.01)
    topics = [AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in ASKED]
    of_client = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    added = await broker.ask(of_client, 3)
    of_broker = AddPartitionsToTxnTransaction(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=True,
        topics=topics,
    )
    verified = await broker.ask(AddPartitionsToTxnRequest(transactions=[of_broker]))
    for results, expected in (
        (added.results_by_topic_v3_and_below, ASKED),
        (verified.results_by_transaction[0].topic_results, RESPONDED),
    ):
        assert shown(results, "results_by_partition") == expected, "as asked where all have one code"
        assert {it.partition_error_code for topic in results for it in topic.results_by_partition} == {0}


async def test_records_are_deleted_up_to_the_last_offset_that_is_named(broker: InProcessBroker) -> None:
    for _ in range(3):
        await broker.ask(produce([("b", [0])]))
    topics = [
        DeleteRecordsTopic(name="b", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)]),
        DeleteRecordsTopic(name="none", partitions=[]),
        DeleteRecordsTopic(
            name="b", partitions=[DeleteRecordsPartition(partition_index=it, offset=1 - it) for it in (1, 0)]
        ),
    ]
    (topic,) = (await broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))).topics
    assert topic.name == "b"
    assert sorted((it.partition_index, it.low_watermark, it.error_code) for it in topic.partitions) == [
        (0, 1, ErrorCode.NONE),
        (1, 0, ErrorCode.NONE),
    ]


async def test_reassignment_response_groups_repeated_partitions(broker: InProcessBroker) -> None:
    topics = [
        ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=it, replicas=[0]) for it in partitions]
        )
        for name, partitions in ASKED
    ]
    response = await broker.ask(AlterPartitionReassignmentsRequest(topics=topics))
    assert shown(response.responses) == RESPONDED


def produce(named: Named) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=it, records=ONE_RECORD) for it in partitions]
            )
            for name, partitions in named
        ],
    )


@pytest.mark.parametrize(
    ("asked", "responded"),
    [
        (ASKED, RESPONDED),
        ([("b", [1]), ("a", [0]), ("b", [0])], [("b", [1, 0]), ("a", [0])]),
        ([("none", []), ("a", [0])], [("a", [0])]),
        ([("none", [])], []),
    ],
)
async def test_produce_response_groups_repeated_partitions(
    broker: InProcessBroker, asked: Named, responded: Named
) -> None:
    response = await broker.ask(produce(asked))
    assert shown(response.responses, "partition_responses", "index") == responded


def test_results_by_partition_are_grouped_by_topic() -> None:
    def made(topic: str, responses: list[str]) -> tuple[str, list[str]]:
        return topic, responses

    responses = [(("b", 1), "x"), (("a", 0), "y"), (("b", 0), "z")]
    assert whole(group_by_topic(responses, made, never)) == [("b", ["x", "z"]), ("a", ["y"])]
    assert whole(group_by_topic([], made, never)) == []
