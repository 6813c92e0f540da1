"""Coroutines without a task: they continue within the call that completes what they wait for."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable

import pytest

from broker.loop.driver import GoingOn, Running, Turn, going_on, start
from broker.loop.promise import Promise


async def get(promise: Promise[int] | asyncio.Future[int]) -> int:
    return await promise


def started(promise: Promise[int] | asyncio.Future[int]) -> Running[int]:
    running = start(get(promise))
    assert isinstance(running, Running)
    return running


def test_coroutine_that_does_not_wait_returns_its_result() -> None:
    async def add(one: int, other: int) -> int:
        return one + other

    async def twice() -> int:
        return await add(1, 2) + await add(3, 4)

    assert start(twice()) == 10


def test_coroutine_that_does_not_wait_raises_its_exception() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start(fail())


def test_done_promise_is_not_waited_for() -> None:
    promise: Promise[int] = Promise()
    promise.set_result(3)
    assert start(get(promise)) == 3


def test_waiter_continues_within_the_call_that_completes_the_promise() -> None:
    promise: Promise[int] = Promise()
    seen: list[str] = []

    async def consume() -> str:
        return f"consumer {await promise}"

    async def produce() -> str:
        promise.set_result(5)
        return "producer"

    consuming = start(consume())
    assert isinstance(consuming, Running)
    consuming.add_done_callback(lambda done: seen.append(done.result()))
    seen.append(start(produce()))  # type: ignore[arg-type]
    assert seen == ["consumer 5", "producer"]


def test_exception_of_a_promise_is_raised_in_the_waiter() -> None:
    promise: Promise[int] = Promise()

    async def recover() -> str:
        try:
            await promise
        except ValueError as error:
            return str(error)
        return "no error"

    running = start(recover())
    assert isinstance(running, Running)
    promise.set_exception(ValueError("failed"))
    assert running.result() == "failed"


def test_exception_of_a_coroutine_that_waited_is_that_of_its_promise() -> None:
    promise: Promise[int] = Promise()
    running = started(promise)
    outer = start(get(running))
    assert isinstance(outer, Running)
    promise.set_exception(ValueError("failed"))
    assert running.done()
    with pytest.raises(ValueError, match="failed"):
        outer.result()


def test_promise_is_completed_inside_the_run_of_another_coroutine() -> None:
    """Each of two coroutines completes what the other waits for."""
    first, second = Promise[int](), Promise[int]()
    seen: list[str] = []

    async def one() -> None:
        seen.append(f"one got {await first}")
        second.set_result(2)
        seen.append("one ends")

    async def other() -> None:
        seen.append("other begins")
        first.set_result(1)
        seen.append(f"other got {await second}")

    start(one())
    start(other())
    assert seen == ["other begins", "one got 1", "one ends", "other got 2"]


def test_many_waits_in_a_row_need_no_stack() -> None:
    waiting: list[Promise[int]] = []

    async def add_up() -> int:
        total = 0
        for _ in range(10_000):
            waiting.append(Promise())
            total += await waiting[-1]
        return total

    running = start(add_up())
    assert isinstance(running, Running)
    while not running.done():
        waiting[-1].set_result(1)
    assert running.result() == 10_000


def test_chain_of_fifty_coroutines_fits_on_the_stack() -> None:
    first: Promise[int] = Promise()
    last = started(first)
    for _ in range(50):
        last = started(last)
    first.set_result(7)
    assert last.result() == 7


async def test_coroutine_awaits_futures_of_asyncio() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running = started(future)
    future.set_result(4)
    assert await running == 4
    failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running = started(failed)
    failed.set_exception(ValueError("failed"))
    with pytest.raises(ValueError, match="failed"):
        await running


async def test_coroutine_awaits_turns_tasks_and_threads() -> None:
    loop = asyncio.get_running_loop()

    async def wait() -> list[int]:
        await asyncio.sleep(0)
        task = asyncio.create_task(asyncio.sleep(0, 1))
        first, second = await asyncio.gather(task, asyncio.sleep(0.001, 2))
        return [first, second, await loop.run_in_executor(None, abs, -3)]

    running = start(wait())
    assert isinstance(running, Running)
    assert await running == [1, 2, 3]


async def test_coroutine_ends_if_the_future_it_waits_for_is_cancelled() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running = started(future)
    called: list[Running[int]] = []
    running.add_done_callback(called.append)
    future.cancel()
    await asyncio.sleep(0)
    assert called == [running]
    assert running.cancelled()
    with pytest.raises(asyncio.CancelledError):
        running.result()


async def test_coroutine_that_awaits_what_was_cancelled_before_ends_like_it() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.cancel()
    promise: Promise[int] = Promise()
    promise.cancel()
    for cancelled in (future, promise):
        assert started(cancelled).cancelled()


# -- cancelling ------------------------------------------------------------------------------------------------------


class Guarded:
    """A coroutine whose `finally` runs."""

    def __init__(self, promise: Promise[int] | asyncio.Future[int]) -> None:
        self.seen: list[str] = []
        running = start(self._run(promise))
        assert isinstance(running, Running)
        self.running = running

    async def _run(self, promise: Promise[int] | asyncio.Future[int]) -> None:
        try:
            await promise
            self.seen.append("resumed")
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise
        finally:
            self.seen.append("finally")


def test_cancelled_coroutine_ends_and_is_not_resumed() -> None:
    promise: Promise[int] = Promise()
    guarded = Guarded(promise)
    called: list[object] = []
    guarded.running.add_done_callback(called.append)
    guarded.running.cancel()
    assert guarded.seen == ["cancelled", "finally"]
    assert promise.cancelled()
    promise.set_result(1)
    guarded.running.cancel()
    assert guarded.seen == ["cancelled", "finally"]
    assert called == [], "no code waits for it"


async def test_cancelled_coroutine_is_not_resumed_by_a_future() -> None:
    for is_done in (False, True):
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        guarded = Guarded(future)
        if is_done:
            future.set_result(1)  # calls back in the next turn
        guarded.running.cancel()
        assert future.cancelled() is not is_done
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert guarded.seen == ["cancelled", "finally"]


async def test_place_of_a_cancelled_waiter_is_given_to_the_next() -> None:
    """asyncio's own primitives rely on CancelledError."""
    places = asyncio.Semaphore(1)

    async def work() -> str:
        async with places:
            return "done"

    await places.acquire()
    cancelled, waiting = start(work()), start(work())
    assert isinstance(cancelled, Running)
    assert isinstance(waiting, Running)
    places.release()  # to the first, which is cancelled before it can continue
    cancelled.cancel()
    async with asyncio.timeout(10):
        assert await waiting == "done"


def test_cancelling_reaches_the_innermost_wait() -> None:
    promise: Promise[int] = Promise()
    inner = Guarded(promise)
    outer = start(get(inner.running))  # type: ignore[arg-type]
    assert isinstance(outer, Running)
    outer.cancel()
    assert inner.seen == ["cancelled", "finally"]
    assert inner.running.cancelled()
    assert promise.cancelled()


def test_coroutine_that_is_cancelled_while_it_runs_ends_where_it_waits_next() -> None:
    first, second = Promise[int](), Promise[int]()
    seen: list[str] = []

    async def leave() -> None:
        try:
            await first
            running.cancel()
            seen.append("still runs")
            await second
            seen.append("resumed")
        finally:
            seen.append("finally")

    running = start(leave())
    assert isinstance(running, Running)
    first.set_result(1)
    assert seen == ["still runs", "finally"]
    assert second.cancelled()


def test_coroutine_that_is_cancelled_in_its_last_step_ends() -> None:
    promise: Promise[int] = Promise()

    async def leave() -> int:
        await promise
        running.cancel()
        return 1

    running = start(leave())
    assert isinstance(running, Running)
    promise.set_result(1)
    assert running.cancelled()


def test_what_a_cancelled_coroutine_awaits_to_clean_up_is_done() -> None:
    promise, clean = Promise[int](), Promise[int]()
    seen: list[int] = []

    async def work() -> None:
        try:
            await promise
        finally:
            seen.append(await clean)

    running = start(work())
    assert isinstance(running, Running)
    running.cancel()
    assert not clean.cancelled()
    clean.set_result(8)
    assert seen == [8]


def test_failure_of_cancelled_work_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    promise: Promise[int] = Promise()

    async def work() -> None:
        try:
            await promise
        finally:
            raise ZeroDivisionError

    running = start(work())
    assert isinstance(running, Running)
    with caplog.at_level(logging.ERROR):
        running.cancel()
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize("end", [lambda running: None, lambda running: running.cancel()])
def test_coroutine_is_freed_with_the_last_reference_to_what_it_waits_for(
    collector_is_off: None, end: Callable[[Running[int]], object]
) -> None:
    class Request:
        pass

    async def wait(request: Request, promise: Promise[int]) -> int:
        return await promise

    request, promise = Request(), Promise[int]()
    alive = weakref.ref(request)
    running = start(wait(request, promise))
    assert isinstance(running, Running)
    end(running)
    promise.set_result(1)
    del request, running, promise
    assert alive() is None


def test_work_that_goes_on_survives_its_requester(caplog: pytest.LogCaptureFixture) -> None:
    guarded_by: Promise[int] = Promise()
    finished: list[int] = []

    async def work() -> None:
        finished.append(await guarded_by)
        raise ZeroDivisionError

    outcome = going_on(work())
    assert isinstance(outcome, Promise)
    outcome.cancel()
    assert not guarded_by.cancelled()
    guarded_by.set_result(4)
    assert finished == [4]
    assert outcome.cancelled()
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_work_that_goes_on_passes_its_outcome_to_one_that_waits() -> None:
    for outcome in (4, ValueError("failed")):
        promise: Promise[int] = Promise()
        passed = going_on(get(promise))
        assert isinstance(passed, Promise)
        if isinstance(outcome, int):
            promise.set_result(outcome)
            assert passed.result() == outcome
        else:
            promise.set_exception(outcome)
            with pytest.raises(ValueError, match="failed"):
                passed.result()
    promise = Promise()
    promise.set_result(3)
    assert going_on(get(promise)) == 3


# -- turns -----------------------------------------------------------------------------------------------------------


def test_waiting_for_a_turn_is_computing() -> None:
    turn, promise = Turn(), Promise[int]()

    async def work() -> None:
        await turn
        await promise

    running = start(work())
    assert isinstance(running, Running)
    computed = running.computed()
    assert not running.is_waiting
    assert not computed.done()
    turn.set_result(None)
    assert running.is_waiting
    assert computed.done()
    assert running.computed().done()
    promise.set_result(1)
    assert not running.is_waiting
    assert running.computed().done()


@pytest.mark.parametrize("fails", [False, True])
def test_work_that_ended_has_computed(fails: bool) -> None:
    turn = Turn()

    async def work() -> None:
        await turn
        if fails:
            raise ZeroDivisionError

    running = start(work())
    assert isinstance(running, Running)
    computed = running.computed()
    turn.set_result(None)
    assert computed.done()
    assert running.done()


def test_cancelling_the_wait_for_computed_work_ends_it() -> None:
    guarded = Guarded(Promise())
    turn = Turn()

    async def work() -> None:
        await turn
        guarded.seen.append("resumed")

    running = start(work())
    assert isinstance(running, Running)
    running.computed().cancel()
    assert running.cancelled()
    turn.set_result(None)
    assert "resumed" not in guarded.seen


@pytest.mark.parametrize("end", ["waits", "ends", "fails"])
def test_awaiting_what_computes_is_no_wait_for_others(end: str) -> None:
    """A guard awaits the work of a handler, for example, which pauses."""
    turns = [Turn(), Turn()]
    promise: Promise[int] = Promise()

    async def compute() -> int:
        for turn in turns:
            await turn
        if end == "waits":
            return await promise
        if end == "fails":
            raise ValueError("failed")
        return 1

    inner = start(compute())
    assert isinstance(inner, Running)
    outer = started(started(inner))
    computed = outer.computed()
    for turn in turns:
        assert (inner.is_waiting, outer.is_waiting, computed.done()) == (False, False, False)
        turn.set_result(None)
    assert computed.done()
    assert (outer.is_waiting, outer.done()) == ((True, False) if end == "waits" else (False, True))


def test_awaiting_what_computes_again_is_reported_once_it_waits() -> None:
    promise: Promise[int] = Promise()
    turn = Turn()

    async def again() -> int:
        await started(promise)
        await turn
        return 2

    outer = started(start(again()))  # type: ignore[arg-type]
    assert outer.computed().done()
    promise.set_result(1)
    computed = outer.computed()
    assert not computed.done()
    outer.cancel()
    assert computed.done()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_work_that_goes_on_computes_until_it_waits_for_others(is_cancelled: bool) -> None:
    turn, promise = Turn(), Promise[int]()
    seen: list[int] = []

    async def work() -> None:
        await turn
        seen.append(await promise)

    outcome = going_on(work())
    assert isinstance(outcome, GoingOn)
    computed = outcome.computed()
    assert (outcome.is_waiting, computed.done()) == (False, False)
    if is_cancelled:
        computed.cancel()
    turn.set_result(None)
    assert (outcome.is_waiting, computed.done()) == (True, True)
    promise.set_result(1)
    assert seen == [1]


# -- tasks -----------------------------------------------------------------------------------------------------------


async def test_same_coroutine_runs_in_a_task() -> None:
    for outcome in (6, ValueError("failed")):
        promise: Promise[int] = Promise()
        task = asyncio.create_task(get(promise))
        await asyncio.sleep(0)
        assert promise.is_awaited_by_task
        if isinstance(outcome, int):
            promise.set_result(outcome)
            assert not task.done()
            assert await task == outcome
        else:
            promise.set_exception(outcome)
            with pytest.raises(ValueError, match="failed"):
                await task


async def test_cancelled_task_ends_the_coroutine_that_it_waits_for() -> None:
    guarded = Guarded(Promise())
    task = asyncio.create_task(get(guarded.running))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert guarded.seen == ["cancelled", "finally"]


async def test_time_limit_of_a_task_holds_for_a_promise() -> None:
    promise: Promise[int] = Promise()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await promise
    assert promise.cancelled()
    gc.collect()
