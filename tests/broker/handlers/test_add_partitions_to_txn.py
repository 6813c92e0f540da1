"""AddPartitionsToTxn: all or nothing for clients, one by one for brokers, and codes by version."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import add_partitions_to_txn
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from storage.producers.producer_state import Producer
from tests.broker.groups.served import versions_of
from tests.broker.transactions.served import ServedTransactions

VERSIONS = versions_of(AddPartitionsToTxnRequest)
NONE = ErrorCode.NONE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def topics(*partitions: tuple[str, int]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic, partitions=[partition]) for topic, partition in partitions]


def of_client(producer: Producer, *partitions: tuple[str, int], name: str = "id") -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics(*partitions),
    )


def of_broker(
    producer: Producer, *partitions: tuple[str, int], name: str = "id", verify_only: bool = True
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=topics(*partitions),
    )


def codes(results: list[AddPartitionsToTxnTopicResult]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in results
        for partition in topic.results_by_partition
    }


@pytest.fixture
async def served(tmp_path: Path) -> ServedTransactions:
    return await ServedTransactions(tmp_path).lead_all()


@pytest.mark.parametrize("version", VERSIONS[:4])
async def test_a_client_adds_partitions(served: ServedTransactions, version: int) -> None:
    producer = await served.new_producer()
    response = await served.ask(add_partitions_to_txn, of_client(producer, ("t", 0), ("u", 0)), version)
    assert codes(response.results_by_topic_v3_and_below) == {("t", 0): NONE, ("u", 0): NONE}
    assert list(served.transactions.inspection.describe("id").partitions) == [("t", 0), ("u", 0)]


@pytest.mark.parametrize("version", VERSIONS[:4])
async def test_with_one_that_is_refused_none_is_added(served: ServedTransactions, version: int) -> None:
    producer = await served.new_producer()
    asked = of_client(producer, ("t", 0), ("nosuch", 0), ("t", 9), ("__consumer_offsets", 0))
    response = await served.ask(add_partitions_to_txn, asked, version)
    assert codes(response.results_by_topic_v3_and_below) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("nosuch", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("__consumer_offsets", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert not served.transactions.inspection.describe("id").partitions


@pytest.mark.parametrize("version", VERSIONS[:4])
async def test_wrong_producer_or_id_gets_its_error_code(served: ServedTransactions, version: int) -> None:
    producer = await served.new_producer()
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    for asked, code in (
        (of_client(Producer(producer.producer_id, 9), ("t", 0)), fenced),
        (of_client(Producer(9, 0), ("t", 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (of_client(producer, ("t", 0), name="nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (of_client(producer, ("t", 0), name=""), ErrorCode.INVALID_REQUEST),
    ):
        response = await served.ask(add_partitions_to_txn, asked, version)
        assert codes(response.results_by_topic_v3_and_below) == {("t", 0): code}


@pytest.mark.parametrize("version", VERSIONS[4:])
async def test_a_broker_verifies_and_adds(served: ServedTransactions, version: int) -> None:
    producer, other = await served.new_producer(), await served.new_producer("other")
    await served.there.add_partitions("id", producer, [("t", 0)])
    response = await served.ask(
        add_partitions_to_txn,
        AddPartitionsToTxnRequest(
            transactions=[
                of_broker(producer, ("t", 0), ("t", 1)),
                of_broker(other, ("__consumer_offsets", 0), name="other", verify_only=False),
                of_broker(Producer(producer.producer_id, 9), ("t", 0)),
                of_broker(producer, ("t", 0), name="nobody"),
                of_broker(producer, ("t", 0), ("nosuch", 0), ("t", 9)),
            ]
        ),
        version,
    )
    assert [(each.transactional_id, codes(each.topic_results)) for each in response.results_by_transaction] == [
        ("id", {("t", 0): NONE, ("t", 1): ABORTABLE}),
        ("other", {("__consumer_offsets", 0): NONE}),
        ("id", {("t", 0): ErrorCode.PRODUCER_FENCED}),
        ("nobody", {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}),
        (
            "id",
            {
                ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
                ("nosuch", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
        ),
    ]
    assert list(served.transactions.inspection.describe("other").partitions) == [("__consumer_offsets", 0)]


@pytest.mark.parametrize("version", VERSIONS[4:])
async def test_a_request_of_a_broker_that_fails_as_a_whole(served: ServedTransactions, version: int) -> None:
    request = AddPartitionsToTxnRequest(transactions=[])
    response = await served.ask(add_partitions_to_txn, request, version)
    assert (response.error_code, response.results_by_transaction) == (0, [])
