"""AddOffsetsToTxn: the group's partition becomes part of the transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import add_offsets_to_txn
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from storage.producers.producer_state import Producer
from tests.broker.groups.served import versions_of
from tests.broker.transactions.served import ServedTransactions

VERSIONS = versions_of(AddOffsetsToTxnRequest)


def request(producer: Producer, name: str = "id") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_partition_of_the_group_is_added(tmp_path: Path, version: int) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer = await served.new_producer()
    response = await served.ask(add_offsets_to_txn, request(producer), version)
    assert response.error_code == ErrorCode.NONE
    assert list(served.transactions.inspection.describe("id").partitions) == [("__consumer_offsets", 0)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_wrong_producer_or_id_gets_its_error_code(tmp_path: Path, version: int) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer = await served.new_producer()
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    for asked, code in (
        (request(Producer(producer.producer_id, 9)), fenced),
        (request(Producer(9, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (request(producer, "nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (request(producer, ""), ErrorCode.INVALID_REQUEST),
    ):
        assert (await served.ask(add_offsets_to_txn, asked, version)).error_code == code


async def test_the_topic_of_the_groups_is_created(tmp_path: Path) -> None:
    served = await ServedTransactions(tmp_path, has_offsets_topic=False).lead_all()
    producer = await served.new_producer()
    served.here.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    response = await served.ask(add_offsets_to_txn, request(producer), 4)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    served.here.creation_error = None
    assert (await served.ask(add_offsets_to_txn, request(producer), 4)).error_code == ErrorCode.NONE
