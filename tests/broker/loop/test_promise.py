"""Promises: one outcome, passed to callbacks in the step that sets it."""

import asyncio
import weakref
from collections.abc import Callable

import pytest

from broker.loop.promise import Promise


def test_callback_runs_within_set_result() -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []
    promise.add_done_callback(lambda done: seen.append(done.result()))
    assert not promise.done()
    promise.set_result(1)
    assert seen == [1]
    promise.set_result(2)
    promise.set_exception(ValueError())
    assert (promise.result(), promise.exception(), seen) == (1, None, [1])


def test_late_callback_runs_synchronously() -> None:
    promise: Promise[int] = Promise()
    promise.set_exception(ValueError("late"))
    seen: list[Exception | None] = []
    promise.add_done_callback(lambda done: seen.append(done.exception()))
    assert [str(error) for error in seen] == ["late"]
    with pytest.raises(ValueError, match="late"):
        promise.result()


def test_completed_promise_holds_no_callback() -> None:
    promise: Promise[int] = Promise()

    class Responder:
        def respond(self, done: Promise[int]) -> None:
            self.response = done.result()

    responder = Responder()
    kept = weakref.ref(responder)
    promise.add_done_callback(responder.respond)
    promise.set_result(1)
    del responder
    assert kept() is None


def test_cancelled_promise_calls_on_cancel_once_and_no_callback() -> None:
    promise: Promise[int] = Promise()
    reported: list[str] = []
    promise.on_cancel(lambda: reported.append("cancelled"))
    promise.add_done_callback(lambda done: reported.append("called"))
    promise.cancel()
    promise.cancel()
    promise.set_result(1)
    assert reported == ["cancelled"]
    assert promise.cancelled()


def test_completed_promise_cannot_be_cancelled() -> None:
    promise: Promise[int] = Promise()
    reported: list[str] = []
    promise.on_cancel(lambda: reported.append("cancelled"))
    promise.set_result(1)
    promise.on_cancel(lambda: reported.append("cancelled"))
    promise.cancel()
    assert not promise.cancelled()
    assert reported == []


async def test_task_can_await_a_promise() -> None:
    promise: Promise[int] = Promise()

    async def wait() -> int:
        return await promise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    promise.set_result(3)
    assert await task == 3
    assert await promise == 3


async def test_cancelled_task_cancels_its_wait() -> None:
    promise: Promise[int] = Promise()

    async def wait() -> int:
        return await promise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert promise.cancelled()


def test_promise_follows_another() -> None:
    for outcome in (5, ValueError("no")):
        other: Promise[int] = Promise()
        promise: Promise[int] = Promise()
        promise.follow(other)
        if isinstance(outcome, int):
            other.set_result(outcome)
        else:
            other.set_exception(outcome)
        assert promise.exception() is outcome or promise.result() == outcome
    left: Promise[int] = Promise()
    follower: Promise[int] = Promise()
    follower.follow(left)
    follower.cancel()
    assert left.cancelled()


def test_promise_that_follows_a_value_is_done() -> None:
    promise: Promise[int] = Promise()
    promise.follow(5)
    assert promise.result() == 5


def test_work_that_is_cancelled_calls_back() -> None:
    other: Promise[int] = Promise()
    promise: Promise[int] = Promise()
    called: list[Promise[int]] = []
    promise.add_done_callback(called.append)
    promise.follow(other)
    other.set_cancelled()
    assert called == [promise]
    assert promise.cancelled()
    with pytest.raises(asyncio.CancelledError):
        promise.result()


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


def test_passed_on_failure_references_no_frame(collector_is_off: None) -> None:
    promise: Promise[int] = Promise()
    tracebacks = []
    promise.add_done_callback(lambda done: tracebacks.append(done.exception().__traceback__ is not None))
    request = _fail(promise)
    assert tracebacks == [True], "its handler sees where it was raised"
    assert request() is None
    assert str(promise.exception()) == "failed"


@pytest.mark.parametrize("ask", [Promise.result, Promise.exception])
def test_failed_promise_is_freed_with_its_last_reference(
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


async def test_task_that_awaited_a_failure_is_freed(collector_is_off: None) -> None:
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


def test_a_task_that_waits_is_cancelled_at_the_end_of_its_loop() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await Promise[None]()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        waiting.append(asyncio.ensure_future(wait()))
        await asyncio.sleep(0)

    waiting: list[asyncio.Future[None]] = []
    asyncio.run(main())
    assert ended == ["cancelled"]
