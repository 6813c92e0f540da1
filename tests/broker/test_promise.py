"""Promises: one outcome, handed on in the moment in which it is there."""

import asyncio

import pytest

from broker.promise import Promise


def test_who_waits_is_called_within_the_call_that_sets_the_result() -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []
    promise.add_done_callback(lambda done: seen.append(done.result()))
    assert not promise.done()
    promise.set_result(1)
    assert seen == [1]
    promise.set_result(2)
    promise.set_exception(ValueError())
    assert (promise.result(), promise.exception(), seen) == (1, None, [1])


def test_who_comes_late_is_called_at_once() -> None:
    promise: Promise[int] = Promise()
    promise.set_exception(ValueError("late"))
    seen: list[Exception | None] = []
    promise.add_done_callback(lambda done: seen.append(done.exception()))
    assert [str(error) for error in seen] == ["late"]
    with pytest.raises(ValueError, match="late"):
        promise.result()


def test_one_that_nobody_waits_for_tells_so_once_and_never_calls() -> None:
    promise: Promise[int] = Promise()
    told: list[str] = []
    promise.on_cancel(lambda: told.append("cancelled"))
    promise.add_done_callback(lambda done: told.append("called"))
    promise.cancel()
    promise.cancel()
    promise.set_result(1)
    assert told == ["cancelled"]
    assert promise.cancelled()


def test_one_that_is_done_cannot_be_cancelled() -> None:
    promise: Promise[int] = Promise()
    told: list[str] = []
    promise.on_cancel(lambda: told.append("cancelled"))
    promise.set_result(1)
    promise.on_cancel(lambda: told.append("cancelled"))
    promise.cancel()
    assert not promise.cancelled()
    assert told == []


async def test_a_task_may_await_one() -> None:
    promise: Promise[int] = Promise()

    async def wait() -> int:
        return await promise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    promise.set_result(3)
    assert await task == 3
    assert await promise == 3


async def test_a_task_that_is_cancelled_waits_no_more() -> None:
    promise: Promise[int] = Promise()

    async def wait() -> int:
        return await promise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert promise.cancelled()


@pytest.mark.parametrize("kind", ["promise", "future"])
async def test_one_follows_another(kind: str) -> None:
    for outcome in (5, ValueError("no")):
        other: Promise[int] | asyncio.Future[int]
        other = Promise() if kind == "promise" else asyncio.get_running_loop().create_future()
        promise: Promise[int] = Promise()
        promise.follow(other)
        if isinstance(outcome, int):
            other.set_result(outcome)
        else:
            other.set_exception(outcome)
        await asyncio.sleep(0)
        assert promise.exception() is outcome or promise.result() == outcome
    left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    follower: Promise[int] = Promise()
    follower.follow(left)
    follower.cancel()
    assert left.cancelled()
