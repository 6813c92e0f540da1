"""Many questions in few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from broker.coordination.batched_requests import ITEMS_MAX, SIZE_MAX, BatchedRequests


class Number(NamedTuple):
    number: int
    size: int = 0

    @property
    def key(self) -> int:
        return self.number % ITEMS_MAX


class Asked:
    """Responds with the double, when the test allows it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_respond = asyncio.Event()
        self.error: Exception | None = None
        self.requests: BatchedRequests[Number, int] = BatchedRequests("doubles", self.send, lambda _: -1)

    async def send(self, numbers: Sequence[Number]) -> Sequence[int]:
        self.batches.append([each.number for each in numbers])
        await self.may_respond.wait()
        if self.error is not None:
            raise self.error
        return [2 * each.number for each in numbers]


async def idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_questions_of_one_turn_share_a_request() -> None:
    asked = Asked()
    asked.may_respond.set()
    assert await asyncio.gather(*(asked.requests.put(Number(number)) for number in range(5))) == [0, 2, 4, 6, 8]
    assert asked.batches == [[0, 1, 2, 3, 4]]


async def test_questions_that_come_while_a_request_is_in_flight_share_the_next() -> None:
    asked = Asked()
    responses = [asked.requests.put(Number(0))]
    await idle()
    for number in (1, 2):
        responses.append(asked.requests.put(Number(number)))
        await idle()
    asked.may_respond.set()
    await asyncio.gather(*responses)
    assert asked.batches == [[0], [1, 2]]


async def test_request_has_no_two_questions_with_the_same_key() -> None:
    asked = Asked()
    asked.may_respond.set()
    responses = [asked.requests.put(Number(number)) for number in (1, ITEMS_MAX + 1, 2)]
    assert await asyncio.gather(*responses) == [2, 2 * ITEMS_MAX + 2, 4]
    assert asked.batches == [[1, 2], [ITEMS_MAX + 1]]


async def test_request_is_bounded() -> None:
    asked = Asked()
    asked.may_respond.set()
    await asyncio.gather(*(asked.requests.put(Number(number)) for number in range(2 * ITEMS_MAX + 1)))
    assert max(map(len, asked.batches)) <= ITEMS_MAX


async def test_request_is_bounded_by_its_size_and_has_at_least_one_question() -> None:
    asked = Asked()
    asked.may_respond.set()
    sizes = [SIZE_MAX - 1, 1, 1, SIZE_MAX + 1, 5]
    await asyncio.gather(*(asked.requests.put(Number(number, size)) for number, size in enumerate(sizes)))
    assert asked.batches == [[0, 1], [2], [3], [4]]


async def test_a_request_inspects_few_of_many_questions_that_wait() -> None:
    class Inspected(Number):
        @property
        def key(self) -> int:
            inspected.append(self.number)
            return self.number

    inspected: list[int] = []
    asked = Asked()
    responses = [asked.requests.put(Inspected(number)) for number in range(20 * ITEMS_MAX)]
    await idle()
    assert asked.batches == [list(range(ITEMS_MAX))]
    assert set(inspected) == set(range(ITEMS_MAX))
    for response in responses:
        response.cancel()


async def test_cancelled_question_is_not_asked() -> None:
    asked = Asked()
    asked.may_respond.set()
    first, second = asked.requests.put(Number(1)), asked.requests.put(Number(2))
    first.cancel()
    assert await second == 4
    assert asked.batches == [[2]]


async def test_questions_after_a_defect_are_still_asked(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    asked.error = ValueError("a defect")
    asked.may_respond.set()
    assert await asked.requests.put(Number(1)) == -1
    assert "failed unexpectedly" in caplog.text
    asked.error = None
    assert await asked.requests.put(Number(2)) == 4
