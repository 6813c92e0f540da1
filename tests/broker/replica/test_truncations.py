"""Truncations in threads and requests of the controller exclude each other."""

from __future__ import annotations

import asyncio
import gc

import pytest

from broker.replica.truncations import Truncations

A, B = ("t", 0), ("t", 1)


class Work:
    """A truncation that lasts until the test ends it."""

    def __init__(self) -> None:
        self.has_begun = False
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.has_begun = True
        await self.may_end.wait()
        return 7


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_request_waits_for_truncations_of_its_partitions() -> None:
    truncations, concerned, other = Truncations(), Work(), Work()
    running = [
        asyncio.ensure_future(truncations.run(A, concerned)),
        asyncio.ensure_future(truncations.run(B, other)),
    ]
    await turns()
    assert concerned.has_begun
    applied = []

    async def apply() -> None:
        async with truncations.kept_out(lambda: [A]):
            applied.append(True)

    applying = asyncio.ensure_future(apply())
    await turns()
    assert not applied
    concerned.may_end.set()
    await applying
    assert not running[1].done()
    other.may_end.set()
    assert await asyncio.gather(*running) == [7, 7]


async def test_truncation_waits_for_a_request_in_progress() -> None:
    truncations, work = Truncations(), Work()
    async with truncations.kept_out(lambda: pytest.fail("nothing runs")):
        running = asyncio.ensure_future(truncations.run(A, work))
        await turns()
        assert not work.has_begun
    await turns()
    assert work.has_begun
    work.may_end.set()
    assert await running == 7


async def test_truncations_of_one_log_follow_each_other() -> None:
    truncations, first, second = Truncations(), Work(), Work()
    running = [asyncio.ensure_future(truncations.run(A, work)) for work in (first, second)]
    await turns()
    assert (first.has_begun, second.has_begun) == (True, False)
    first.may_end.set()
    await turns()
    assert second.has_begun
    second.may_end.set()
    await asyncio.gather(*running)


async def test_truncation_that_has_begun_ends_although_its_caller_is_cancelled() -> None:
    truncations, work = Truncations(), Work()
    running = asyncio.ensure_future(truncations.run(A, work))
    await turns()
    running.cancel()
    stopping = asyncio.ensure_future(truncations.stop())
    await turns()
    assert not stopping.done()
    work.may_end.set()
    await stopping


async def test_failed_request_lets_truncations_begin_again() -> None:
    truncations, work = Truncations(), Work()
    with pytest.raises(ValueError, match="bad request"):
        async with truncations.kept_out(list):
            raise ValueError("bad request")
    work.may_end.set()
    assert await truncations.run(A, work) == 7


async def test_failure_after_the_caller_was_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    unhandled: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    truncations, may_fail = Truncations(), asyncio.Event()

    async def fail() -> int:
        await may_fail.wait()
        raise OSError("disk full")

    running = asyncio.ensure_future(truncations.run(A, fail))
    await turns()
    running.cancel()
    may_fail.set()
    await turns()
    gc.collect()
    assert not unhandled
    assert "truncation of t-0 failed: disk full" in caplog.text
