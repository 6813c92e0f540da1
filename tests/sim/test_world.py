"""The scheduler of the simulation: virtual time, order, pauses and kills."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.world import ProcessLoop, SimulatedThreads, World

HOUR_US = 3_600_000_000


def finished(world: World, loop: ProcessLoop, main: Coroutine[Any, Any, object]) -> object:
    task = loop.start(main)
    assert world.run_until(task.done, limit_us=HOUR_US)
    return task.result()


async def _chatter(loop: ProcessLoop, name: str, said: list[tuple[int, str]]) -> None:
    for number in range(20):
        await asyncio.sleep(0.001 * (number % 3))
        said.append((round(loop.time() * 1e6), f"{name}{number}"))


def history(seed: int) -> list[tuple[int, str]]:
    said = list[tuple[int, str]]()
    with World(seed) as world:
        tasks = []
        for name in "abc":
            loop = world.new_loop(name)
            tasks.append(loop.start(_chatter(loop, name, said)))
        assert world.run_until(lambda: all(task.done() for task in tasks), limit_us=HOUR_US)
        return said


def test_sleeping_takes_virtual_time_only() -> None:
    with World(1) as world:
        loop = world.new_loop("a")
        finished(world, loop, asyncio.sleep(1800))
        assert 1_800_000_000 <= world.now_us < 1_801_000_000


def test_same_seed_gives_the_same_history_and_others_do_not() -> None:
    assert history(1) == history(1)
    assert len({tuple(name for _, name in history(seed)) for seed in range(10)}) > 5


def test_callbacks_of_one_loop_run_in_the_order_of_the_calls() -> None:
    called = list[int]()
    with World(3) as world:
        loop = world.new_loop("a")
        for number in range(50):
            loop.call_soon(called.append, number)
        assert world.run_until(lambda: len(called) == 50, limit_us=HOUR_US)
        assert called == list(range(50))


def test_work_in_threads_returns_results_and_exceptions() -> None:
    def fail() -> None:
        raise OSError("full")

    async def main() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(None, lambda: 5)
        try:
            await loop.run_in_executor(None, fail)
        except OSError as error:
            return value, str(error)
        raise AssertionError

    with World(4) as world:
        assert finished(world, world.new_loop("a"), main()) == (5, "full")


def test_work_is_not_done_before_the_thread_is_scheduled() -> None:
    done = list[int]()
    with World(5) as world:
        loop = world.new_loop("a")
        result = SimulatedThreads(loop).submit(done.append, 1)
        assert not done
        assert world.run_until(result.done, limit_us=HOUR_US)
        assert done == [1]


def run_for(world: World, duration_us: int) -> None:
    end_us = world.now_us + duration_us
    world.after(duration_us, lambda: None)
    world.run_until(lambda: world.now_us >= end_us, limit_us=end_us)


def test_killed_process_runs_no_further_line() -> None:
    cleaned_up = list[str]()

    async def main() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cleaned_up.append("finally")

    with World(6) as world:
        loop = world.new_loop("a")
        task = loop.start(main())
        threads = SimulatedThreads(loop).submit(cleaned_up.append, "thread")
        world.after(0, loop.kill)
        run_for(world, HOUR_US)
        assert not cleaned_up
        assert not task.done()
        assert not threads.done()


def test_paused_process_stands_while_others_go_on() -> None:
    with World(7) as world:
        counts = {"a": 0, "b": 0}

        async def count(name: str) -> None:
            while True:
                await asyncio.sleep(0.01)
                counts[name] += 1

        loops = {name: world.new_loop(name) for name in counts}
        for name, loop in loops.items():
            loop.start(count(name))
        run_for(world, 100_000)
        loops["a"].pause()
        run_for(world, 100_000)
        before = dict(counts)
        run_for(world, 1_000_000)
        assert counts["a"] == before["a"]
        assert counts["b"] > before["b"] + 80
        loops["a"].resume()
        run_for(world, 1_000_000)
        assert counts["a"] > before["a"] + 80


def test_exception_of_a_callback_is_reported_by_its_process() -> None:
    with World(8) as world:
        loop = world.new_loop("a")
        failing: Callable[[], object] = lambda: 1 // 0  # noqa: E731
        loop.call_soon(failing)
        run_for(world, 1_000)
        assert isinstance(loop.failures[0]["exception"], ZeroDivisionError)
