"""Work in slices: done in one step while it is short, else with turns for other connections in between."""

from __future__ import annotations

import asyncio

import pytest

from broker.loop.promise import Promise
from broker.loop.slices import GRACE_MS, SLICE_MS, STEPS_MIN, SlicedWork, Slices, each
from tests.support.manual_clock import ManualClock, SteppingClock


def sliced_work(*, step_ms: int) -> SlicedWork:
    return SlicedWork(SteppingClock(step_ms).monotonic_ms, steps_min=1)


def counting(count: int, seen: list[int]) -> Slices[str]:
    for number in range(count):
        seen.append(number)
        yield
    return "done"


async def test_short_work_returns_its_result_at_once() -> None:
    assert sliced_work(step_ms=0).run(counting(1000, [])) == "done"


async def test_other_callbacks_run_between_slices() -> None:
    seen: list[int] = []
    future = sliced_work(step_ms=SLICE_MS).run(counting(3, seen))
    assert isinstance(future, asyncio.Future)
    assert seen == [0]
    turns = 0
    while not future.done():
        turns += 1
        await asyncio.sleep(0)
    assert (seen, await future) == ([0, 1, 2], "done")
    assert turns >= 3


async def test_a_slice_lasts_until_its_time_is_over() -> None:
    seen: list[int] = []
    sliced_work(step_ms=1).run(counting(1000, seen))
    assert len(seen) == SLICE_MS


async def test_concurrent_works_share_one_slice_in_a_turn_of_the_loop() -> None:
    work = sliced_work(step_ms=SLICE_MS)
    seen: list[int] = []
    futures = [work.run(counting(10, seen)) for _ in range(5)]
    seen.clear()
    for turn in range(1, 20):
        await asyncio.sleep(0)
        assert len(seen) <= turn
    assert [await future for future in futures if isinstance(future, asyncio.Future)] == ["done"] * 5


async def test_works_that_arrive_while_others_wait_share_one_slice_in_a_turn() -> None:
    clock = SteppingClock(1)
    work = SlicedWork(clock.monotonic_ms, steps_min=1)
    seen: list[int] = []
    futures = [work.run(counting(100, seen))]
    for _ in range(5):
        seen.clear()
        futures += [work.run(counting(100, seen)) for _ in range(20)]
        assert len(seen) <= 20 + SLICE_MS, "a step for each, and one slice"
        await asyncio.sleep(0)
    assert [await future for future in futures if isinstance(future, asyncio.Future)] == ["done"] * 101


async def test_paced_coroutines_share_one_slice_in_a_turn_of_the_loop() -> None:
    work = SlicedWork(SteppingClock(1).monotonic_ms, steps_min=1)
    rounds = 0

    async def go_round() -> None:
        nonlocal rounds
        pace = work.pace()
        for _ in range(30):
            rounds += 1
            await pace.keep()

    running = [asyncio.ensure_future(go_round()) for _ in range(20)]
    await asyncio.sleep(0)
    while not all(task.done() for task in running):
        before = rounds
        await asyncio.sleep(0)
        assert rounds - before <= SLICE_MS + 1
    assert rounds == 20 * 30


async def test_queued_works_that_are_short_share_the_slice_of_a_turn() -> None:
    clock = ManualClock()
    work = SlicedWork(clock.monotonic_ms, steps_min=1)
    work.newcomers_end_ms()
    clock.advance(SLICE_MS + GRACE_MS)
    seen: list[int] = []
    futures = [work.run(counting(3, seen)) for _ in range(20)]
    assert seen == [], "the time of the new works was over before they came"
    await asyncio.sleep(0)
    assert [future.done() for future in futures if isinstance(future, asyncio.Future)] == [True] * 20


async def test_failure_in_a_later_slice_reaches_the_waiter() -> None:
    def failing() -> Slices[None]:
        yield
        raise ZeroDivisionError

    future = sliced_work(step_ms=SLICE_MS).run(failing())
    assert future is not None
    with pytest.raises(ZeroDivisionError):
        await future


async def test_a_cancelled_future_ends_its_work() -> None:
    seen: list[int] = []
    future = sliced_work(step_ms=SLICE_MS).run(counting(1000, seen))
    assert isinstance(future, asyncio.Future)
    future.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert seen == [0]


async def test_cancelled_work_does_not_delay_the_next() -> None:
    work = sliced_work(step_ms=SLICE_MS)
    cancelled, waiting = work.run(counting(1000, [])), work.run(counting(3, []))
    assert isinstance(cancelled, asyncio.Future)
    assert isinstance(waiting, asyncio.Future)
    cancelled.cancel()
    assert await waiting == "done"


async def test_each_returns_the_results_of_all_items_in_order() -> None:
    assert sliced_work(step_ms=0).run(each([1, 2, 3], lambda number: number * 2)) == [2, 4, 6]


def test_work_of_few_steps_runs_in_one_slice_of_any_duration() -> None:
    work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms)
    assert work.run(counting(STEPS_MIN - 1, [])) == "done"


@pytest.mark.parametrize("way", ["finished", "settled"])
async def test_cancelling_the_waiter_cancels_the_result(way: str) -> None:
    """Work may end with a promise of something that is parked, in the moment in which its client leaves."""
    sliced_work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms, steps_min=1)
    promise: Promise[int] = Promise()

    def work() -> Slices[Promise[int]]:
        yield
        yield
        task.cancel()
        return promise

    task = asyncio.ensure_future(getattr(sliced_work, way)(work()))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert promise.cancelled()
