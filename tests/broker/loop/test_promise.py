"""Promises: one outcome, handed on in the moment in which it is there."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from broker.loop.promise import Promise


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


async def test_one_fails_when_what_it_follows_was_cancelled_by_others() -> None:
    other: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    promise: Promise[int] = Promise()
    called: list[Promise[int]] = []
    promise.add_done_callback(called.append)
    promise.follow(other)
    other.cancel()
    await asyncio.sleep(0)
    assert called == [promise]
    assert isinstance(promise.exception(), RuntimeError)


class _Request:
    """What a frame works on."""


def _fail(promise: Promise[int]) -> weakref.ref[_Request]:
    """Have `promise` fail in a frame that holds both it and a request."""
    request = _Request()
    try:
        raise ValueError("failed")
    except ValueError as error:
        promise.set_exception(error)
    return weakref.ref(request)


@pytest.fixture
def collector_is_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_failure_that_was_handed_on_holds_no_frame(collector_is_off: None) -> None:
    promise: Promise[int] = Promise()
    tracebacks = []
    promise.add_done_callback(lambda done: tracebacks.append(done.exception().__traceback__ is not None))
    request = _fail(promise)
    assert tracebacks == [True], "whoever handles it sees where it came from"
    assert request() is None
    assert str(promise.exception()) == "failed"


@pytest.mark.parametrize("ask", [Promise.result, Promise.exception])
def test_a_promise_that_failed_dies_with_its_last_reference(
    collector_is_off: None, ask: Callable[[Promise[int]], object]
) -> None:
    promise: Promise[int] = Promise()
    request = _fail(promise)
    follower: Promise[int] = Promise()
    follower.follow(promise)
    with pytest.raises(ValueError, match="failed"):
        follower.result()
    if ask is Promise.exception:
        assert ask(promise) is not None
    else:
        with pytest.raises(ValueError, match="failed"):
            ask(promise)
    del promise, follower
    assert request() is None


async def test_a_task_that_awaited_a_failure_leaves_nothing(collector_is_off: None) -> None:
    async def wait(promise: Promise[int]) -> str:
        try:
            return str(await promise)
        except ValueError as error:
            return str(error)

    promise: Promise[int] = Promise()
    waiting = asyncio.ensure_future(wait(promise))
    await asyncio.sleep(0)
    request = _fail(promise)
    assert await waiting == "failed"
    del promise, waiting
    assert request() is None
