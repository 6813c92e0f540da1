"""InitProducerId: ids for all producers, epochs for transactional ids, and the error of fenced producers by version."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import init_producer_id
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.producers.producer_state import Producer
from tests.broker.groups.served import versions_of
from tests.broker.transactions.served import MINUTE_MS, ServedTransactions

VERSIONS = versions_of(InitProducerIdRequest)


def request(
    name: str | None = "id", *, producer: Producer | None = None, timeout_ms: int = MINUTE_MS
) -> InitProducerIdRequest:
    producer_id, epoch = producer or (-1, -1)
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
    )


def producer_of(response: InitProducerIdResponse) -> tuple[int, int, int]:
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.fixture
async def served(tmp_path: Path) -> ServedTransactions:
    return await ServedTransactions(tmp_path).lead_all()


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_request_gets_a_new_id_or_the_next_epoch(served: ServedTransactions, version: int) -> None:
    async def ask(name: str | None) -> tuple[int, int, int]:
        return producer_of(await served.ask(init_producer_id, request(name), version))

    assert await ask(None) == (0, 100, 0)
    assert await ask(None) == (0, 101, 0)
    assert await ask("id") == (0, 102, 0)
    assert await ask("id") == (0, 102, 1)
    assert await ask("") == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_timeout_above_the_limit_is_rejected(served: ServedTransactions, version: int) -> None:
    response = await served.ask(init_producer_id, request(timeout_ms=900_001), version)
    assert producer_of(response) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_a_producer_continues(served: ServedTransactions, version: int) -> None:
    producer = await served.new_producer()
    response = await served.ask(init_producer_id, request(producer=producer), version)
    assert producer_of(response) == (0, producer.producer_id, producer.epoch + 1)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)
async def test_fenced_producer_is_rejected(served: ServedTransactions, version: int, code: ErrorCode) -> None:
    await served.new_producer()
    newer = await served.new_producer()
    older = Producer(newer.producer_id, newer.epoch - 1)
    assert producer_of(await served.ask(init_producer_id, request(producer=older), version)) == (code, -1, -1)


@pytest.mark.parametrize("producer", [Producer(5, -1), Producer(-1, 5)])
async def test_producer_id_without_an_epoch_is_rejected(served: ServedTransactions, producer: Producer) -> None:
    response = await served.ask(init_producer_id, request(producer=producer), 5)
    assert producer_of(response) == (ErrorCode.INVALID_REQUEST, -1, -1)
