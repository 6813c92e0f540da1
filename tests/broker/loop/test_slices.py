"""Work in slices: done in one step while it is short, else with turns for other connections in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from base.pause import each
from broker.loop.driver import Running
from broker.loop.promise import Promise
from broker.loop.slices import GRACE_MS, SLICE_MS, STEPS_MIN, SlicedWork
from tests.support.manual_clock import ManualClock, SteppingClock


def sliced_work(*, step_ms: int) -> SlicedWork:
    return SlicedWork(SteppingClock(step_ms).monotonic_ms, steps_min=1)


async def counting(work: SlicedWork, count: int, seen: list[int]) -> str:
    for number in range(count):
        seen.append(number)
        await work.pause()
    return "done"


async def outcome_of(started: object) -> object:
    return await started if isinstance(started, Running) else started


async def test_short_work_returns_its_result_at_once() -> None:
    work = sliced_work(step_ms=0)
    assert work.start(counting(work, 1000, [])) == "done"


async def test_other_callbacks_run_between_slices() -> None:
    seen: list[int] = []
    work = sliced_work(step_ms=SLICE_MS)
    running = work.start(counting(work, 3, seen))
    assert isinstance(running, Running)
    assert not running.is_waiting, "it computes"
    assert seen == [0]
    turns = 0
    while not running.done():
        turns += 1
        await asyncio.sleep(0)
    assert (seen, await running) == ([0, 1, 2], "done")
    assert turns >= 3


async def test_a_slice_lasts_until_its_time_is_over() -> None:
    seen: list[int] = []
    work = sliced_work(step_ms=1)
    work.start(counting(work, 1000, seen))
    assert len(seen) == SLICE_MS


async def test_concurrent_works_share_one_slice_in_a_turn_of_the_loop() -> None:
    work = sliced_work(step_ms=SLICE_MS)
    seen: list[int] = []
    started = [work.start(counting(work, 10, seen)) for _ in range(5)]
    seen.clear()
    for turn in range(1, 20):
        await asyncio.sleep(0)
        assert len(seen) <= turn
    assert [await outcome_of(one) for one in started] == ["done"] * 5


async def test_works_that_arrive_while_others_wait_share_one_slice_in_a_turn() -> None:
    work = sliced_work(step_ms=1)
    seen: list[int] = []
    started = [work.start(counting(work, 100, seen))]
    for _ in range(5):
        seen.clear()
        started += [work.start(counting(work, 100, seen)) for _ in range(20)]
        assert len(seen) <= 20 + SLICE_MS, "a step for each, and one slice"
        await asyncio.sleep(0)
    assert [await outcome_of(one) for one in started] == ["done"] * 101


async def test_paced_tasks_share_one_slice_in_a_turn_of_the_loop() -> None:
    work = sliced_work(step_ms=1)
    rounds: list[int] = []
    running = [asyncio.ensure_future(counting(work, 30, rounds)) for _ in range(20)]
    await asyncio.sleep(0)
    while not all(task.done() for task in running):
        before = len(rounds)
        await asyncio.sleep(0)
        assert len(rounds) - before <= SLICE_MS + 1
    assert len(rounds) == 20 * 30


async def test_tasks_and_works_without_one_take_turns() -> None:
    work = sliced_work(step_ms=SLICE_MS)
    of_task: list[int] = []
    of_work: list[int] = []
    task = asyncio.ensure_future(counting(work, 10, of_task))
    started = work.start(counting(work, 10, of_work))
    while not task.done():
        await asyncio.sleep(0)
        assert abs(len(of_task) - len(of_work)) <= 2
    assert await outcome_of(started) == "done"


async def test_queued_works_that_are_short_share_the_slice_of_a_turn() -> None:
    clock = ManualClock()
    work = SlicedWork(clock.monotonic_ms, steps_min=1)
    assert work.has_time()
    clock.advance(SLICE_MS + GRACE_MS)
    seen: list[int] = []
    started = [work.start(counting(work, 3, seen)) for _ in range(20)]
    assert seen == [], "the time of the new works was over before they came"
    await asyncio.sleep(0)
    assert [isinstance(one, Running) and one.done() for one in started] == [True] * 20


async def test_work_that_never_began_can_be_cancelled() -> None:
    clock = ManualClock()
    work = SlicedWork(clock.monotonic_ms, steps_min=1)
    assert work.has_time()
    clock.advance(SLICE_MS + GRACE_MS)
    seen: list[int] = []
    started = work.start(counting(work, 3, seen))
    assert isinstance(started, Running)
    started.cancel()
    await asyncio.sleep(0)
    assert seen == []


async def test_failure_in_a_later_slice_reaches_the_waiter() -> None:
    work = sliced_work(step_ms=SLICE_MS)

    async def fail() -> None:
        await work.pause()
        raise ZeroDivisionError

    running = work.start(fail())
    assert isinstance(running, Running)
    with pytest.raises(ZeroDivisionError):
        await running


async def test_cancelled_work_ends() -> None:
    seen: list[int] = []
    work = sliced_work(step_ms=SLICE_MS)
    running = work.start(counting(work, 1000, seen))
    assert isinstance(running, Running)
    running.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert seen == [0]


async def test_cancelled_work_does_not_delay_the_next() -> None:
    work = sliced_work(step_ms=SLICE_MS)
    cancelled, waiting = work.start(counting(work, 1000, [])), work.start(counting(work, 3, []))
    assert isinstance(cancelled, Running)
    assert isinstance(waiting, Running)
    cancelled.cancel()
    assert await waiting == "done"


async def test_each_returns_the_results_of_all_items_in_order() -> None:
    work = sliced_work(step_ms=0)
    assert work.start(each([1, 2, 3], lambda number: number * 2, work.pause)) == [2, 4, 6]


def test_work_of_few_steps_runs_in_one_slice_of_any_duration() -> None:
    work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms)
    assert work.start(counting(work, STEPS_MIN - 1, [])) == "done"


async def test_work_of_long_steps_pauses_after_each_when_its_slice_is_over() -> None:
    work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms)
    seen: list[int] = []

    async def heavy() -> None:
        for step in range(3):
            seen.append(step)
            await work.pause_after_long_step()

    running = work.start(heavy())
    assert isinstance(running, Running)
    assert seen == [0]
    await running
    assert seen == [0, 1, 2]


async def test_work_that_has_waited_runs_like_new_work() -> None:
    work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms)
    promise: Promise[None] = Promise()

    async def wait(then: Coroutine[Any, Any, str]) -> str:
        await promise
        return await work.anew(then)

    running = work.start(wait(counting(work, STEPS_MIN - 1, [])))
    assert isinstance(running, Running)
    promise.set_result(None)
    assert running.result() == "done"


async def test_cancelling_work_cancels_what_it_waits_for_after_its_slices() -> None:
    """Work may come to wait for something that is parked, in the moment in which its client leaves."""
    work = sliced_work(step_ms=SLICE_MS)
    promise: Promise[int] = Promise()

    async def park() -> int:
        await work.pause()
        await work.pause()
        running.cancel()
        return await promise

    running = work.start(park())
    assert isinstance(running, Running)
    for _ in range(5):
        await asyncio.sleep(0)
    assert running.cancelled()
    assert promise.cancelled()


async def test_steps_that_new_work_has_not_used_are_not_left_to_others() -> None:
    work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms)
    work.start(counting(work, 1, []))
    seen: list[int] = []
    other = asyncio.ensure_future(counting(work, STEPS_MIN, seen))
    await asyncio.sleep(0)
    assert len(seen) <= 2, "a task looks at the clock after each step"
    await other
