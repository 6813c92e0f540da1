"""Work in slices: at once if there is one, else with turns for others in between."""

from __future__ import annotations

import asyncio

import pytest

from broker import slices
from broker.slices import Slices


def counting(count: int, seen: list[int]) -> Slices[str]:
    for number in range(count):
        seen.append(number)
        yield
    return "done"


def test_work_of_one_slice_needs_no_event_loop() -> None:
    assert slices.run(counting(0, [])) == "done"


async def test_others_have_their_turn_between_slices() -> None:
    seen: list[int] = []
    task = slices.run(counting(3, seen))
    assert isinstance(task, asyncio.Task)
    assert seen == [0]
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert (seen, await task) == ([0, 1, 2], "done")
    assert turns >= 3


async def test_a_failure_reaches_whoever_waits() -> None:
    def failing() -> Slices[None]:
        yield
        raise ZeroDivisionError

    task = slices.run(failing())
    assert task is not None
    with pytest.raises(ZeroDivisionError):
        await task
