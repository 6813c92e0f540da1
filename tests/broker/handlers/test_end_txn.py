"""EndTxn: commit and abort, again, and codes by version."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import end_txn
from broker.transactions.machine.transaction import VERSION_2
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from storage.producers.producer_state import Producer
from tests.broker.groups.served import versions_of
from tests.broker.transactions.served import ServedTransactions

VERSIONS = versions_of(EndTxnRequest)


def request(producer: Producer, name: str = "id", *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=committed
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
async def test_an_end_and_its_repetition(tmp_path: Path, version: int, committed: bool) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer = await served.new_producer()
    assert (await served.ask(end_txn, request(producer), version)).error_code == ErrorCode.INVALID_TXN_STATE
    await served.there.add_partitions("id", producer, [("t", 0)])
    for _ in range(2):
        assert (await served.ask(end_txn, request(producer, committed=committed), version)).error_code == 0
        await served.idle()
    opposite = await served.ask(end_txn, request(producer, committed=not committed), version)
    assert opposite.error_code == ErrorCode.INVALID_TXN_STATE


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
        assert (await served.ask(end_txn, asked, version)).error_code == code


@pytest.mark.parametrize("committed", [True, False])
async def test_version_5_returns_the_epoch_that_the_producer_continues_with(tmp_path: Path, committed: bool) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer = await served.new_producer()
    raised = Producer(producer.producer_id, producer.epoch + 1)
    await served.there.add_partitions("id", producer, [("t", 0)], version=VERSION_2)
    for _ in range(2):
        response = await served.ask(end_txn, request(producer, committed=committed), 5)
        assert (response.error_code, Producer(response.producer_id, response.producer_epoch)) == (0, raised)
        await served.idle()
    refused = await served.ask(end_txn, request(producer, committed=not committed), 5)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (ErrorCode.INVALID_TXN_STATE, -1, -1)


async def test_version_5_aborts_a_transaction_without_partitions(tmp_path: Path) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer = await served.new_producer()
    for epoch in (1, 2):
        response = await served.ask(end_txn, request(producer, committed=False), 5)
        assert (response.error_code, response.producer_epoch) == (0, epoch)
        await served.idle()
        producer = Producer(response.producer_id, response.producer_epoch)
