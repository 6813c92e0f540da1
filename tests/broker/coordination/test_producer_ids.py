"""Producer ids: none is assigned twice, the next block is requested in time, and the error without a block."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordination.producer_ids import ProducerIds
from protocol.errors import ErrorCode, KafkaError


class Blocks:
    """Blocks of 20 ids, which the test releases."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: KafkaError | None = None
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def allocate(self) -> range:
        number = self.asked
        self.asked += 1
        await self.may_respond.wait()
        if self.error is not None:
            raise self.error
        return range(20 * number, 20 * number + 20)


async def idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_id_is_given_twice_to_concurrent_requests() -> None:
    ids = ProducerIds(Blocks().allocate)
    given = await asyncio.gather(*(ids.next_id() for _ in range(100)))
    assert sorted(given) == list(range(100))


async def test_the_next_block_is_requested_when_a_tenth_is_left() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    for _ in range(17):
        await ids.next_id()
    await idle()
    assert blocks.asked == 1
    blocks.may_respond.clear()
    assert [await ids.next_id() for _ in range(3)] == [17, 18, 19]
    await idle()
    assert blocks.asked == 2
    waiting = asyncio.ensure_future(ids.next_id())
    await idle()
    assert not waiting.done()
    blocks.may_respond.set()
    assert await waiting == 20
    assert blocks.asked == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR]
)
async def test_request_without_a_block_returns_a_retriable_error(code: ErrorCode) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    blocks.error = KafkaError(code)
    reported = await asyncio.gather(*(ids.next_id() for _ in range(3)), return_exceptions=True)
    assert [getattr(each, "code", each) for each in reported] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    blocks.error = None
    assert await ids.next_id() >= 20


async def test_a_failed_prefetch_keeps_the_ids_that_are_left() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    assert await ids.next_id() == 0
    blocks.error = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert [await ids.next_id() for _ in range(19)] == list(range(1, 20))
    await idle()
    with pytest.raises(KafkaError):
        await ids.next_id()
    blocks.error = None
    assert await ids.next_id() >= 40


async def test_the_error_of_a_failed_prefetch_is_not_returned_later() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    await ids.next_id()
    blocks.error = KafkaError(ErrorCode.NOT_CONTROLLER)
    for _ in range(19):
        await ids.next_id()
    await idle()
    blocks.error = None
    assert await ids.next_id() >= 40


async def test_a_block_requested_by_a_disconnected_client_is_used() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    blocks.may_respond.clear()
    gone, waiting = asyncio.ensure_future(ids.next_id()), asyncio.ensure_future(ids.next_id())
    await idle()
    gone.cancel()
    await idle()
    blocks.may_respond.set()
    assert await waiting == 0
    assert blocks.asked == 1
